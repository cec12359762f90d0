package fleet

import (
	"testing"

	"github.com/wherry-node/wherry/internal/sim/simkube"
)

// A node whose Node is gone starts its agent again, also if only a list shows that, or if it was never Ready. It does not if it leaves, if its machine
// is off, or if no agent runs.
func TestNodesThatAreGone(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*Fleet, *node)
		want   int
	}{
		"runs":           {func(*Fleet, *node) {}, 1},
		"joins":          {func(_ *Fleet, n *node) { n.joined = false }, 1},
		"leaves":         {func(_ *Fleet, n *node) { n.leaves = true }, 0},
		"down":           {func(_ *Fleet, n *node) { n.down = true }, 0},
		"between agents": {func(_ *Fleet, n *node) { n.stop = nil }, 0},
		"not wanted":     {func(f *Fleet, _ *node) { f.roster.names = map[string]bool{} }, 0},
		"not held":       {func(f *Fleet, _ *node) { f.held[0] = false }, 0},
	} {
		for _, how := range []string{"list", "watch"} {
			f, err := New(Config{Name: "f", Client: simkube.New(simkube.Config{}).RESTConfig("test"), Identity: Shared, Groups: []Group{{Count: 2}}})
			if err != nil {
				t.Fatal(err)
			}
			stops := 0
			for _, name := range []string{"f-node-1", "f-node-2"} {
				f.nodes[name] = &node{fleet: f, name: name, joined: true, stop: func() { stops++ }}
			}
			f.readiness(map[string]bool{"f-node-1": true, "f-node-2": true})
			f.readiness(map[string]bool{"f-node-1": false, "f-node-2": true})
			c.change(f, f.nodes["f-node-1"])
			if how == "list" {
				f.readiness(map[string]bool{"f-node-2": true})
				f.readiness(map[string]bool{"f-node-2": true})
			} else {
				f.changed("f-node-1", false, true)
				f.readiness(map[string]bool{"f-node-2": true})
			}
			if stops != c.want {
				t.Errorf("%s, %s: %d agents are stopped, want %d", name, how, stops, c.want)
			}
		}
	}
}
