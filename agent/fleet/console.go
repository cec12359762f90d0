package fleet

import (
	"cmp"
	"context"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/wherry-node/wherry/internal/core/view"
	"github.com/wherry-node/wherry/internal/edge/console"
)

// Console returns a handler for the web page of the fleet at /console/, and for the pages of its nodes at /console/nodes/NODE/. The
// handler does not check the client's rights: the caller must. It computes nothing while no browser shows a page.
func (f *Fleet) Console() http.Handler {
	page := console.New(looker{f})
	mux := http.NewServeMux()
	mux.Handle("GET "+console.Path, page)
	mux.HandleFunc("GET "+console.Path+"nodes/{node}/", func(w http.ResponseWriter, r *http.Request) {
		if !console.Secure(w, r) {
			return
		}
		name := r.PathValue("node")
		h := f.consoleOf(name)
		if h == nil {
			http.Error(w, "the agent of node "+name+" does not run", http.StatusServiceUnavailable)
			return
		}
		http.StripPrefix(console.Path+"nodes/"+name, rooted(h)).ServeHTTP(w, r)
	})
	return mux
}

// rooted returns a handler that adds console.Path to the path of each request and passes it on to h.
func rooted(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		to := r.Clone(r.Context())
		to.URL.Path, to.URL.RawPath = console.Path+r.URL.Path[1:], "" // the path begins with a slash: see Console
		h.ServeHTTP(w, to)
	})
}

// consoleOf returns the console of a node's agent; nil: the fleet has no such node, or its agent does not run.
func (f *Fleet) consoleOf(name string) http.Handler {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := f.nodes[name]
	if n == nil || n.agent == nil {
		return nil
	}
	if n.page == nil {
		n.page = n.agent.Console()
	}
	return n.page
}

// looker computes what the console of a fleet shows.
type looker struct{ f *Fleet }

var _ console.Source = looker{}

// Look stores the parts of the fleet's page in b: the fleet as "fleet", and each node as "cell/NODE".
func (l looker) Look(_ context.Context, _ []string, b *console.Board) {
	f := l.f
	s := f.Status()
	_, pods := f.pods.count()
	out := view.Fleet{
		Faults: []view.Fault{}, Name: s.Name, Want: s.Nodes.Want, Ready: s.Nodes.Ready, Overdue: s.Leases.Overdue.Round(100 * time.Millisecond).Seconds(),
		Pods: view.FleetPods{
			Pending: s.Pods.Pending, Running: s.Pods.Running, Succeeded: s.Pods.Succeeded, Failed: s.Pods.Failed, Ready: s.Pods.Ready,
			StartsPerSecond: s.Pods.StartsPerSecond,
		},
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	out.Began = f.began
	for _, a := range f.underWay() {
		out.Faults = append(out.Faults, view.Fault{Kind: string(a.Kind), Text: a.Text, Since: a.Since, Until: a.Until, Nodes: a.Nodes})
	}
	for _, n := range f.nodes {
		c := view.Cell{Name: n.name, Group: n.group.Name, State: n.state(), Pods: pods[n.name].all, Ready: pods[n.name].ready}
		if n.err != nil {
			c.Reason = n.err.Error()
		}
		for _, i := range slices.Sorted(maps.Keys(n.faults)) {
			c.Faults = append(c.Faults, string(n.faults[i].kind))
		}
		b.Put("cell/"+n.name, c)
	}
	b.Put("fleet", out)
}

// Forget does nothing, because Look keeps nothing.
func (looker) Forget() {}

// mostFaults is the maximum number of active faults that the console and Status show.
const mostFaults = 50

// underWay returns the active faults of the nodes, newest first, at most mostFaults. The caller holds the lock.
func (f *Fleet) underWay() []FaultStatus {
	byNumber := map[int]FaultStatus{}
	for _, n := range f.nodes {
		for number, a := range n.faults {
			v, ok := byNumber[number]
			if !ok {
				v = FaultStatus{Kind: a.kind, Text: a.text, Since: a.since, Until: a.until}
			}
			v.Nodes++
			byNumber[number] = v
		}
	}
	numbers := slices.SortedFunc(maps.Keys(byNumber), func(a, b int) int { return cmp.Compare(b, a) })
	out := make([]FaultStatus, 0, len(numbers))
	for _, i := range numbers[:min(len(numbers), mostFaults)] {
		out = append(out, byNumber[i])
	}
	return out
}
