package agent

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/wherry-node/wherry/internal/core/view"
	"github.com/wherry-node/wherry/internal/core/why"
	"github.com/wherry-node/wherry/internal/edge/console"
	"github.com/wherry-node/wherry/internal/edge/server"
)

// pages holds the console of the node. The first request creates the console, so a console that nobody opens costs nothing.
type pages struct {
	once sync.Once
	page *console.Console
}

// page returns the node's console.
func (a *Agent) page() *console.Console {
	a.pages.once.Do(func() {
		a.pages.page = console.New(&looker{a: a, view: a.view(), rows: map[types.UID]shown{}, reading: make(chan struct{}, 1)})
	})
	return a.pages.page
}

// servePage answers requests for the node's console.
func (a *Agent) servePage(w http.ResponseWriter, r *http.Request) { a.page().ServeHTTP(w, r) }

// consolePage returns the console for a server of the node; nil: the configuration has none.
func (a *Agent) consolePage() http.Handler {
	if !a.cfg.Console {
		return nil
	}
	return http.HandlerFunc(a.servePage)
}

// consoleRefused returns the function that answers a browser whose user may not see the console; nil: there is no console.
func (a *Agent) consoleRefused() func(w http.ResponseWriter, status int, node, user string) {
	if !a.cfg.Console {
		return nil
	}
	return console.Refuse
}

// Console returns a handler for the node's console, with the container logs that it shows, at the paths below /console/. The
// handler does not check the client's rights: the caller must. It answers 503 while the agent does not run. It may be called at any time.
func (a *Agent) Console() http.Handler {
	var once sync.Once
	var h http.Handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "the console of this node cannot be served", http.StatusInternalServerError)
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !a.built.Load() {
			http.Error(w, "the node agent is not running", http.StatusServiceUnavailable)
			return
		}
		once.Do(func() {
			s, err := server.New(server.Config{
				NodeName: a.cfg.NodeName, Authenticator: socketUser{}, Authorizer: server.AlwaysAllow{}, Pods: a.view(),
				Enable: server.Enable{Debugging: true}, Sources: server.Sources{Console: http.HandlerFunc(a.servePage)}, Log: a.log,
			})
			if err != nil {
				a.log.Error("the console cannot be served", "err", err)
				return
			}
			h = s.Handler()
		})
		h.ServeHTTP(w, r)
	})
}

// These limit how often the console measures the node for the parts of its page: nodeEvery is for the part "node", and useEvery and
// useSoon are for the part "use" (CPU and memory).
const (
	nodeEvery = 5 * time.Second
	useEvery  = 10 * time.Second
	useSoon   = 3 * time.Second // in place of useEvery while somebody looks at one pod
	// The console explains each pod again at the latest after this time, even if nothing has changed: againAfter is for pods that are in
	// trouble or that somebody looks at in detail, wellAfter is for all other pods.
	againAfter = 5 * time.Second
	wellAfter  = 30 * time.Second
	// maxShownEvents is how many events the console shows at most.
	maxShownEvents = 100
)

// looker computes what the console shows. The console calls Look from one goroutine at a time.
type looker struct {
	a    *Agent
	view *podView

	rows           map[types.UID]shown
	nodeAt, usedAt time.Time
	cpu, memory    int64  // of the node, as last measured
	events         string // the version of the newest event that is shown

	reading chan struct{} // holds a value while a goroutine reads the log of a container
}

// shown has the values from which the console made its row about a pod. The method changed compares them with the present values.
type shown struct {
	recorded int
	pod      *v1.Pod // the source's object
	failures int     // of probes, in a row
	at       time.Time
	nextAt   time.Time
	level    why.Level
}

var _ console.Source = (*looker)(nil)

// Forget drops what the looker has kept of the pods.
func (l *looker) Forget() { l.rows = map[types.UID]shown{} }

// Look stores the parts of the console's page in b: "node", "work", "use", "events", "row/UID" for each pod, and
// "detail/NAMESPACE/NAME/pod" for each pod in wanted, the pods that somebody looks at in detail. For a wanted pod that the node does not
// have, it stores "detail/NAMESPACE/NAME/missing" instead.
func (l *looker) Look(ctx context.Context, wanted []string, b *console.Board) {
	now := time.Now()
	l.lookPods(ctx, now, wanted, b)
	l.lookWork(b)
	l.lookEvents(b)
	every := useEvery
	if len(wanted) > 0 {
		every = useSoon
	}
	if now.Sub(l.usedAt) >= every || !b.Keep("use") {
		l.usedAt = now
		l.lookUse(ctx, now, b)
	}
	if now.Sub(l.nodeAt) >= nodeEvery || !b.Keep("node") {
		l.nodeAt = now
		l.lookNode(ctx, b)
	}
}

// lookPods updates the rows and details of the pods that have changed. It asks the workers of only these pods for an answer.
func (l *looker) lookPods(ctx context.Context, now time.Time, wanted []string, b *console.Board) {
	all := l.a.pods.List()
	var ask []*v1.Pod
	for _, p := range all {
		detailed := slices.Contains(wanted, p.Namespace+"/"+p.Name)
		if l.changed(p, now, detailed) || !b.Keep("row/"+string(p.UID)) || detailed && !b.Keep(detailKey(p)) {
			ask = append(ask, l.view.withStatus(p))
		}
	}
	for i, e := range l.a.answers(ctx, ask) {
		p := ask[i]
		in := view.Pod{Pod: p, Answer: e.Answer, Inspection: e.Inspection}
		in.Records, in.Dropped, _ = l.a.timelineOf(p.UID)
		for _, f := range e.UnderWay {
			in.UnderWay = append(in.UnderWay, why.Flight{Action: f.Action, Began: f.Began})
		}
		for _, f := range l.a.probes.Failing(p.UID) {
			in.Failing = append(in.Failing, why.FailingProbe{Container: f.Container, Kind: f.Kind.String(), Times: f.Times, Threshold: f.Threshold, Output: f.Output})
		}
		s := l.rows[p.UID]
		s.level, s.nextAt = e.Answer.Level, e.Answer.NextAt
		l.rows[p.UID] = s
		b.Put("row/"+string(p.UID), view.RowOf(&in))
		if slices.Contains(wanted, p.Namespace+"/"+p.Name) {
			if in.Answer.Ended != "" {
				in.Answer.Output(l.lastOutput(ctx, p.UID, in.Answer.Ended))
			}
			b.Put(detailKey(p), view.DetailOf(&in))
		}
	}
	for _, name := range wanted {
		if !slices.ContainsFunc(all, func(p *v1.Pod) bool { return p.Namespace+"/"+p.Name == name }) {
			b.Put("detail/"+name+"/missing", view.Missing{Near: nearest(all, name)})
		}
	}
	if len(l.rows) > 2*len(all)+16 {
		l.forget(all)
	}
}

func detailKey(p *v1.Pod) string { return "detail/" + p.Namespace + "/" + p.Name + "/pod" }

// lastOutput returns the last lines in the log of a container instance; none if the log cannot be read. All viewers wait for Look, so a
// disk that does not answer may delay it only by outputWithin, and only one goroutine waits for such a disk.
func (l *looker) lastOutput(ctx context.Context, uid types.UID, id string) []string {
	select {
	case l.reading <- struct{}{}:
	default:
		return nil
	}
	lines := make(chan []string, 1)
	go func() {
		text := l.a.lastOutput(ctx, uid, id)
		<-l.reading
		lines <- text
	}()
	patience := time.NewTimer(outputWithin)
	defer patience.Stop()
	select {
	case text := <-lines:
		return text
	case <-patience.C:
		return nil
	}
}

// changed reports whether the row of a pod may differ from the row that is shown. If so, it stores the values for the next comparison.
func (l *looker) changed(p *v1.Pod, now time.Time, detailed bool) bool {
	old := l.rows[p.UID]
	s := shown{pod: p, at: now, level: old.level, nextAt: old.nextAt}
	if w := l.a.loop.Worker(p.UID); w != nil {
		s.recorded = w.Recorded()
	}
	for _, f := range l.a.probes.Failing(p.UID) {
		s.failures += f.Times
	}
	patience := wellAfter
	if old.level != why.Well || detailed {
		patience = againAfter
	}
	late := now.Sub(old.at) >= patience || !old.nextAt.IsZero() && old.nextAt.After(old.at) && !old.nextAt.After(now)
	if old.pod == s.pod && old.recorded == s.recorded && old.failures == s.failures && !late {
		return false
	}
	l.rows[p.UID] = s
	return true
}

// forget drops the pods that the node does not have any more.
func (l *looker) forget(all []*v1.Pod) {
	have := make(map[types.UID]shown, len(all))
	for _, p := range all {
		have[p.UID] = l.rows[p.UID]
	}
	l.rows = have
}

func (l *looker) lookNode(ctx context.Context, b *console.Board) {
	a := l.a
	a.refreshNode(ctx)
	m := l.measured(ctx)
	n := view.NodeOf(a.nodeObject(), l.view.List(), &m)
	n.Standalone = a.deps.Client == nil
	n.Name = cmp.Or(n.Name, a.cfg.NodeName)
	b.Put("node", n)
}

// measured measures the node, and adds the thresholds in effect.
func (l *looker) measured(ctx context.Context) view.Measured {
	m := view.Measured{Signals: l.a.platform.signals(ctx), Thresholds: l.a.node.Settings().Thresholds, CPU: l.cpu, Memory: l.memory}
	if l.a.heartbeat != nil {
		m.Lease = l.a.heartbeat.Renewed()
	}
	return m
}

// lookWork stores in b the pods that wait for a slot to start (the gate), and the jobs that wait for a slot of the agent's scheduler.
func (l *looker) lookWork(b *console.Board) {
	gate := l.a.loop.Gate()
	load := l.a.work.Load()
	w := view.Work{Slots: gate.Slots, Starting: gate.Inside, Limit: load.Limit, Busy: load.Flying, Held: []view.Held{}}
	hold := func(class string, uid types.UID, since time.Time) {
		if len(w.Held) >= view.MaxHeld {
			w.More++
			return
		}
		h := view.Held{Class: class, Since: since, Pod: string(uid)}
		if p, _ := l.a.pods.Get(uid); p != nil {
			h.Pod = p.Namespace + "/" + p.Name
		}
		w.Held = append(w.Held, h)
	}
	for _, uid := range gate.Starts {
		hold("start", uid, time.Time{})
	}
	for _, uid := range gate.Restarts {
		hold("restart", uid, time.Time{})
	}
	for _, j := range l.a.work.Waiting() {
		hold(j.Class.String(), j.UID, j.Since)
	}
	b.Put("work", w)
}

// lookEvents stores the newest events that the node has kept in b. A node with an API server and without a console of its own keeps none:
// then lookEvents stores nil, and the page says how to read the events from the API.
func (l *looker) lookEvents(b *console.Board) {
	local := l.a.events.shown
	if local == nil {
		if !b.Keep("events") {
			b.Put("events", nil)
		}
		return
	}
	events := local.Newest(maxShownEvents)
	version := ""
	if len(events) > 0 {
		version = events[len(events)-1].ResourceVersion
	}
	if b.Keep("events") && version == l.events {
		return
	}
	l.events = version
	out := make([]view.Event, 0, len(events))
	for i := range slices.Backward(events) {
		e := &events[i]
		o := &e.InvolvedObject
		out = append(out, view.EventOf(e.LastTimestamp.Time, e.Type, e.Reason, o.Kind+" "+o.Namespace+"/"+o.Name, e.Message, int(e.Count)))
	}
	b.Put("events", out)
}

// lookUse measures CPU and memory of the node and of its containers.
func (l *looker) lookUse(ctx context.Context, now time.Time, b *console.Board) {
	sum := l.a.stats.CPUAndMemory(ctx)
	use := view.Use{At: now, Pods: map[string][]view.UnitUse{}}
	l.cpu, l.memory = amounts(sum.Node.CPU, sum.Node.Memory)
	for i := range sum.Pods {
		p := &sum.Pods[i]
		for j := range p.Containers {
			c := &p.Containers[j]
			cpu, memory := amounts(c.CPU, c.Memory)
			use.Pods[p.PodRef.UID] = append(use.Pods[p.PodRef.UID], view.UnitUse{Name: c.Name, CPU: cpu, Memory: memory})
		}
	}
	b.Put("use", use)
}

// amounts returns the CPU use in thousandths of a core and the working set in bytes; 0: not measured.
func amounts(c *statsapi.CPUStats, m *statsapi.MemoryStats) (cpu, memory int64) {
	if c != nil && c.UsageNanoCores != nil {
		cpu = int64(*c.UsageNanoCores / 1_000_000) //nolint:gosec // fewer than 2^63 thousandths of a core
	}
	if m != nil && m.WorkingSetBytes != nil {
		memory = int64(*m.WorkingSetBytes) //nolint:gosec // fewer than 2^63 bytes
	}
	return cpu, memory
}
