package fleet

import (
	"errors"
	"math/rand/v2"
	"path"
	"slices"

	"github.com/wherry-node/wherry/agent/simulated"
)

// Exit says which containers end, and how. Namespace, Pod, Container and Image are patterns as in path.Match; "" matches everything.
type Exit struct {
	Namespace string `json:"namespace"`
	Pod       string `json:"pod"`
	Container string `json:"container"`
	Image     string `json:"image"`
	// Count or Percent limits how many of the matching containers end; the Selector's seed decides which. If both are 0, all matching
	// containers end.
	Count   int     `json:"count"`
	Percent float64 `json:"percent"`
	// Code is the exit code. If Reason is "", the reason is Error or Completed.
	Code    int32  `json:"code"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
	// OOM ends the containers as the kernel does when their memory is short: exit code 137, reason OOMKilled.
	OOM bool `json:"oom"`
}

// check returns an error if the Exit is not valid, a *simulated.FieldError if a single field is wrong.
func (e *Exit) check() error {
	for _, p := range []struct{ field, pattern string }{{"namespace", e.Namespace}, {"pod", e.Pod}, {"container", e.Container}, {"image", e.Image}} {
		if _, err := path.Match(p.pattern, ""); err != nil {
			return wrong(p.field, "%q is no pattern: use * for any text, ? for a character, [a-z] for one of these; a backslash takes away their meaning", brief(p.pattern))
		}
	}
	switch {
	case e.Count < 0 || !(e.Percent >= 0 && e.Percent <= 100) || e.Count > 0 && e.Percent > 0:
		return errors.New("choose a positive number of containers, or at most 100 percent")
	case e.Code < 0 || e.Code > 255:
		return wrong("code", "%d: use 0 to 255", e.Code)
	case e.OOM && (e.Code != 0 || e.Reason != ""):
		return wrong("oom", "it sets code and reason itself: remove them")
	}
	return nil
}

func (e *Exit) matches(c *simulated.Container) bool {
	for _, p := range [][2]string{{e.Namespace, c.Namespace}, {e.Pod, c.Pod}, {e.Container, c.Name}, {e.Image, c.Image}} {
		if ok, _ := path.Match(p[0], p[1]); !ok && p[0] != "" {
			return false
		}
	}
	return true
}

// exit ends the containers of the given nodes that e matches, and returns their names. The caller holds the lock.
func (f *Fleet) exit(nodes []*node, e Exit, seed uint64) []string {
	type running struct {
		node *node
		simulated.Container
	}
	var found []running
	for _, n := range nodes {
		if n.sim == nil {
			continue
		}
		for _, c := range n.sim.Running() {
			if e.matches(&c) {
				found = append(found, running{n, c})
			}
		}
	}
	most := len(found)
	if e.Count > 0 {
		most = min(most, e.Count)
	} else if e.Percent > 0 {
		most = int(float64(most)*e.Percent/100 + 0.5)
	}
	if most < len(found) {
		order := rand.New(rand.NewPCG(seed, 2)).Perm(len(found))[:most]
		slices.Sort(order)
		var chosen []running
		for _, i := range order {
			chosen = append(chosen, found[i])
		}
		found = chosen
	}
	var names []string
	for _, c := range found {
		if e.OOM {
			c.node.sim.ExitOOM(c.ID, e.Message)
		} else {
			c.node.sim.Exit(c.ID, e.Code, e.Reason, e.Message)
		}
		names = append(names, c.node.name+"/"+c.Namespace+"/"+c.Pod+"/"+c.Name)
	}
	f.cfg.Log.Info("containers end", "containers", len(names), "code", e.Code, "oom", e.OOM)
	return names
}
