package launch

import (
	"testing"

	"github.com/wherry-node/wherry/internal/edge/config"
)

// The links to container logs are in /var/log/containers, where log collectors look, even if podLogsDir is another directory. The agent of
// wherry run and a simulated node make no links.
func TestLinksOfContainerLogs(t *testing.T) {
	t.Parallel()
	own, err := (&Own{Runtime: "unix:///nowhere", Root: t.TempDir(), Socket: "/nowhere"}).config()
	if err != nil {
		t.Fatal(err)
	}
	moved, _, err := config.Load([]string{"--hostname-override=a"})
	if err != nil {
		t.Fatal(err)
	}
	moved.Kubelet.PodLogsDir = "/data/logs"
	simulated := moved
	simulated.Simulated = &config.SimulatedNode{}
	for _, c := range []struct {
		name string
		cfg  config.Config
		want string
	}{{"another podLogsDir", moved, "/var/log/containers"}, {"wherry run", own, ""}, {"a simulated node", simulated, ""}} {
		a, err := AgentConfig(c.cfg, "a")
		if err != nil {
			t.Fatal(err)
		}
		if got := a.LogLinkDir; got != c.want {
			t.Errorf("%s: links in %q, want %q", c.name, got, c.want)
		}
	}
}
