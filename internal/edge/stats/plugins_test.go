package stats

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
)

// A plugin counts in the state of its socket and in that of its registration. The path of a socket is made safe to show, and however strange the
// paths are, the page stays readable: no two series are the same.
func TestPluginSockets(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	long := "/" + strings.Repeat("x", 2*maxSocketPath)
	if err := RegisterPlugins(reg, func() []PluginSocket {
		return []PluginSocket{{"/p/a", true, true}, {"/p/b", true, false}, {"/p/c", false, true}, {"/p/\xff", true, false}, {"/p/\xfe", true, false}, {long + "1", true, false}, {long + "2", true, false}}
	}); err != nil {
		t.Fatal(err)
	}
	var got []string
	for line := range strings.Lines(text(t, reg)) {
		if !strings.HasPrefix(line, "#") {
			got = append(got, strings.TrimPrefix(strings.TrimSpace(line), "plugin_manager_total_plugins"))
		}
	}
	want := []string{
		`{socket_path="/p/a",state="actual_state_of_world"} 1`, `{socket_path="/p/a",state="desired_state_of_world"} 1`,
		`{socket_path="/p/b",state="desired_state_of_world"} 1`, `{socket_path="/p/c",state="actual_state_of_world"} 1`,
		`{socket_path="/p/�",state="desired_state_of_world"} 2`, `{socket_path="` + long[:maxSocketPath-3] + `...",state="desired_state_of_world"} 2`,
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}
