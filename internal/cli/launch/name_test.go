package launch

import (
	"testing"

	"github.com/wherry-node/wherry/internal/edge/config"
)

// The Node, its address of type Hostname and its label kubernetes.io/hostname have the same name, in lower case as in upstream's kubelet. Local
// volumes and pods name a node by this label.
func TestTheNodeHasOneName(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ host, override, want string }{
		{"Node-A.Example", "", "node-a.example"}, {" node-a\n", "", "node-a"}, {"Node-A", "Other", "other"},
	} {
		cfg, _, err := config.Load([]string{"--hostname-override=" + c.override})
		if err != nil {
			t.Fatal(err)
		}
		a, err := AgentConfig(cfg, c.host)
		if err != nil || a.NodeName != c.want || a.Hostname != c.want {
			t.Errorf("host name %q, --hostname-override=%q: name %q, label %q, %v; want %q", c.host, c.override, a.NodeName, a.Hostname, err, c.want)
		}
	}
}
