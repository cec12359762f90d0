package crispec

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestHostname(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a", 62) + ".bbb"
	for _, tc := range []struct {
		name string
		spec v1.PodSpec
		want string // "short|domain|kernel" or an error
	}{
		{"p", v1.PodSpec{}, "p||p"},
		{long, v1.PodSpec{}, long[:62] + "||" + long[:62]},
		{"p", v1.PodSpec{Hostname: "h", Subdomain: "s"}, "h|s.ns.svc.cluster.local|h"},
		{"p", v1.PodSpec{Hostname: "h", Subdomain: "s", SetHostnameAsFQDN: ptr(true)}, "h|s.ns.svc.cluster.local|h.s.ns.svc.cluster.local"},
		{"p", v1.PodSpec{SetHostnameAsFQDN: ptr(true)}, "p||p"},
		{"p", v1.PodSpec{HostnameOverride: ptr("other.example"), Subdomain: "s", SetHostnameAsFQDN: ptr(true)}, "other.example||other.example"},
		{"p", v1.PodSpec{Hostname: "Not_valid"}, `pod Hostname "Not_valid" is not a valid DNS label`},
		{"p", v1.PodSpec{Subdomain: "a.b"}, `pod Subdomain "a.b" is not a valid DNS label`},
		{"p", v1.PodSpec{HostnameOverride: ptr("_")}, `pod HostnameOverride "_" is not a valid DNS subdomain`},
		{strings.Repeat("-", 70), v1.PodSpec{}, "was invalid"},
		{
			strings.Repeat("p", 50), v1.PodSpec{Subdomain: "s", SetHostnameAsFQDN: ptr(true)},
			"is too long (64 characters is the max, 73 characters requested)",
		},
	} {
		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: tc.name, Namespace: "ns"}, Spec: tc.spec}
		short, domain, err := Hostname(p, "cluster.local")
		kernel, err2 := KernelHostname(p, "cluster.local")
		got := short + "|" + domain + "|" + kernel
		if err := errors.Join(err, err2); err != nil {
			got = err.Error()
		}
		if got != tc.want && (err2 == nil || !strings.Contains(got, tc.want)) {
			t.Errorf("%s %+v:\n got %s\nwant %s", tc.name, tc.spec, got, tc.want)
		}
	}
}

func TestDNS(t *testing.T) {
	t.Parallel()
	host := &runtimeapi.DNSConfig{Servers: []string{"192.0.2.1"}, Searches: []string{"example.com", "cluster.local"}, Options: []string{"ndots:1", "rotate"}}
	many := func(n int, format string) (out []string) {
		for i := range n {
			out = append(out, fmt.Sprintf(format, i))
		}
		return out
	}
	cluster := []string{"ns.svc.cluster.local", "svc.cluster.local", "cluster.local"}
	for _, tc := range []struct {
		name     string
		in       DNSInput
		spec     v1.PodSpec
		want     *runtimeapi.DNSConfig
		warnings []string
	}{
		{
			name: "Default: the node's", in: DNSInput{Host: host, ClusterDNS: []string{"10.0.0.10"}},
			spec: v1.PodSpec{DNSPolicy: v1.DNSDefault}, want: host,
		},
		{
			name: "ClusterFirst: the cluster's server, the node's searches without duplicates",
			in:   DNSInput{Host: host, ClusterDNS: []string{"10.0.0.10"}, ClusterDomain: "cluster.local"},
			spec: v1.PodSpec{DNSPolicy: v1.DNSClusterFirst},
			want: &runtimeapi.DNSConfig{Servers: []string{"10.0.0.10"}, Searches: append(cluster, "example.com"), Options: []string{"ndots:5"}},
		},
		{
			name: "ClusterFirst on the host's network: the node's", in: DNSInput{Host: host, ClusterDNS: []string{"10.0.0.10"}},
			spec: v1.PodSpec{DNSPolicy: v1.DNSClusterFirst, HostNetwork: true}, want: host,
		},
		{
			name: "ClusterFirstWithHostNet", in: DNSInput{ClusterDNS: []string{"10.0.0.10"}, ClusterDomain: "cluster.local"},
			spec: v1.PodSpec{DNSPolicy: v1.DNSClusterFirstWithHostNet, HostNetwork: true},
			want: &runtimeapi.DNSConfig{Servers: []string{"10.0.0.10"}, Searches: cluster, Options: []string{"ndots:5"}},
		},
		{
			name: "ClusterFirst on a node without a cluster DNS", in: DNSInput{Host: host}, spec: v1.PodSpec{DNSPolicy: v1.DNSClusterFirst},
			want: host, warnings: []string{"MissingClusterDNS"},
		},
		{
			name: "resolvConf is empty", in: DNSInput{NodeIPs: []string{"192.0.2.5", "2001:db8::5"}}, spec: v1.PodSpec{DNSPolicy: v1.DNSDefault},
			want: &runtimeapi.DNSConfig{Servers: []string{"127.0.0.1", "::1"}, Searches: []string{"."}},
		},
		{
			name: "dnsConfig merges by name", in: DNSInput{Host: host},
			spec: v1.PodSpec{DNSPolicy: v1.DNSDefault, DNSConfig: &v1.PodDNSConfig{
				Nameservers: []string{"192.0.2.1", "192.0.2.2"}, Searches: []string{"more"},
				Options: []v1.PodDNSConfigOption{{Name: "ndots", Value: ptr("3")}, {Name: "edns0"}},
			}},
			want: &runtimeapi.DNSConfig{
				Servers: []string{"192.0.2.1", "192.0.2.2"}, Searches: []string{"example.com", "cluster.local", "more"},
				Options: []string{"ndots:3", "rotate", "edns0"},
			},
		},
		{
			name: "limits", spec: v1.PodSpec{DNSPolicy: v1.DNSNone, DNSConfig: &v1.PodDNSConfig{
				Nameservers: many(4, "192.0.2.%d"), Searches: append([]string{strings.Repeat("x", 254)}, many(33, "d%d")...),
			}},
			want:     &runtimeapi.DNSConfig{Servers: many(3, "192.0.2.%d"), Searches: many(31, "d%d")},
			warnings: []string{"DNSConfigForming", "DNSConfigForming"},
		},
		{
			name: "search line of at most 2048 characters",
			spec: v1.PodSpec{DNSPolicy: v1.DNSNone, DNSConfig: &v1.PodDNSConfig{Searches: many(12, strings.Repeat("y", 198)+"%02d")}},
			want: &runtimeapi.DNSConfig{Searches: many(10, strings.Repeat("y", 198)+"%02d")}, warnings: []string{"DNSConfigForming"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			tc.in.Pod = &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns"}, Spec: tc.spec}
			got, warnings := DNS(tc.in)
			if diff := cmp.Diff(render(tc.want), render(got)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			var reasons []string
			for _, w := range warnings {
				reasons = append(reasons, w.Reason)
			}
			if diff := cmp.Diff(tc.warnings, reasons); diff != "" {
				t.Errorf("warnings: -want +got:\n%s", diff)
			}
		})
	}
}

// The test makes the DNS configuration of a pod with 300,000 options. This must be fast (comparing each option with every other would take
// minutes), and a later option must replace an earlier one of the same name.
func TestVeryManyOptionsOfDNS(t *testing.T) {
	t.Parallel()
	const many = 300_000
	p := &v1.Pod{Spec: v1.PodSpec{DNSPolicy: v1.DNSNone, DNSConfig: &v1.PodDNSConfig{}}}
	for i := range many {
		p.Spec.DNSConfig.Options = append(p.Spec.DNSConfig.Options, v1.PodDNSConfigOption{Name: fmt.Sprint("o", i)})
	}
	p.Spec.DNSConfig.Options = append(p.Spec.DNSConfig.Options, v1.PodDNSConfigOption{Name: "o7", Value: ptr("x")})
	c, _ := DNS(DNSInput{Pod: p})
	if len(c.Options) != many || c.Options[7] != "o7:x" || c.Options[many-1] != fmt.Sprint("o", many-1) {
		t.Errorf("%d options, the eighth is %q", len(c.Options), c.Options[7])
	}
}

func TestParseResolvConf(t *testing.T) {
	t.Parallel()
	got, err := ParseResolvConf([]byte("# c\n; c\nnameserver 1.1.1.1 # x\nnameserver 9.9.9.9\nsearch old\nsearch a. b .\noptions ndots:1 rotate\noptions ndots:2\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := &runtimeapi.DNSConfig{Servers: []string{"1.1.1.1", "9.9.9.9"}, Searches: []string{"a", "b"}, Options: []string{"ndots:2", "rotate"}}
	if diff := cmp.Diff(render(want), render(got)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	got, err = ParseResolvConf([]byte("search a\nnameserver\nnameserver\nnameserver 1.1.1.1\n"))
	if err == nil || !strings.Contains(err.Error(), "line 2") || len(got.GetServers()) != 1 || len(got.GetSearches()) != 1 {
		t.Errorf("a nameserver without an address: got %v, %v; want the other lines and the number of the line", got, err)
	}
}

// TestMissingClusterDNSNamesThePod checks the warning about a ClusterFirst pod on a node without a cluster DNS. The pod's event has the
// text of upstream's kubelet. The node's event has the same text without the name of the pod.
func TestMissingClusterDNSNamesThePod(t *testing.T) {
	t.Parallel()
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "ns", UID: "u1"}, Spec: v1.PodSpec{DNSPolicy: v1.DNSClusterFirst}}
	_, warnings := DNS(DNSInput{Pod: p})
	want := `pod: "web_ns(u1)". kubelet does not have ClusterDNS IP configured and cannot create Pod using "ClusterFirst" policy. Falling back to "Default" policy.`
	if len(warnings) != 1 || warnings[0].Message != want || `pod: "web_ns(u1)". `+warnings[0].Node != want {
		t.Errorf("warnings %+v, want %q, and for the node without the pod", warnings, want)
	}
}
