package pod

import (
	"slices"
	"testing"
)

func TestAddresses(t *testing.T) {
	t.Parallel()
	v4, v6 := []string{"192.0.2.1"}, []string{"2001:db8::1", "192.0.2.1"}
	for name, c := range map[string]struct{ ips, node, want []string }{
		"none":                    {nil, v4, nil},
		"one":                     {[]string{"10.0.0.1"}, v4, []string{"10.0.0.1"}},
		"of the other family":     {[]string{"10.0.0.1"}, v6, []string{"10.0.0.1"}},
		"in order":                {[]string{"10.0.0.1", "fd00::1"}, v4, []string{"10.0.0.1", "fd00::1"}},
		"the runtime's own order": {[]string{"10.0.0.1", "fd00::1"}, v6, []string{"fd00::1", "10.0.0.1"}},
		"several of a family":     {[]string{"10.0.0.1", "10.1.0.1", "fd00::1", "fd01::1"}, v6, []string{"fd00::1", "10.0.0.1"}},
		"the node has none yet":   {[]string{"fd00::1", "10.0.0.1"}, nil, []string{"10.0.0.1", "fd00::1"}},
		"unusual forms":           {[]string{"FD00:0::1", "::ffff:10.0.0.1"}, v4, []string{"10.0.0.1", "fd00::1"}},
		"what the API refuses":    {[]string{"fe80::1%eth0", "10.0.0", "10.0.0.1"}, v6, []string{"10.0.0.1"}},
	} {
		if got := Addresses(c.ips, c.node); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
