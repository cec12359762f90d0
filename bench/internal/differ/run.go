package differ

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	tools "k8s.io/client-go/tools/watch"

	"github.com/wherry-node/wherry/bench/internal/rig"
)

const (
	// goneWithin is how long a pod may take to leave the API and the runtime after its deletion.
	goneWithin = 60 * time.Second
	// lastEvents is how long the runner waits for a pod's last events after the pod has gone, because an agent sends events in the
	// background.
	lastEvents = 10 * time.Second
)

// unlimited is a part of the kubelets' configuration. It raises rate limits, which many pods at once would reach: that would only make
// the cases slower.
const unlimited = `kubeAPIQPS: 2000
kubeAPIBurst: 4000
eventRecordQPS: 2000
eventBurst: 4000
registryPullQPS: 0
serializeImagePulls: false
`

// ErrRefused says that the API server refused the pod of a case.
var ErrRefused = errors.New("the API server refuses the pod")

// ErrWatchEnded says that a watch of the API ended by itself. Later changes were not seen, so no case can be compared any more.
var ErrWatchEnded = errors.New("the watch ended")

// side is one of the two agents of a pair, with its runtime.
type side struct {
	name      string
	upstream  bool
	agent     *rig.Agent
	runtime   *Runtime
	manifests string // directory of the static pods' manifests
	downs     []Down // when the agent did not run; guarded by Runner.mu
}

// Runner runs cases on both agents and compares the traces. Close ends the agents.
type Runner struct {
	rig   *rig.Rig
	pairs []*[2]*side // each pair has upstream's kubelet first
	// restarted is how many of pairs, at the end of the list, are only for cases in which the agents restart.
	restarted int
	stop      context.CancelFunc
	wg        sync.WaitGroup
	runs      atomic.Int64 // number of cases so far; it makes the names of the pods unique

	mu     sync.Mutex
	lost   error                    // ErrWatchEnded when a watch has ended; nil before
	traces map[string]*Trace        // traces of the cases that run now, by pod name
	lags   map[string]time.Duration // how late the newest event came, by node: upstream's kubelet sends events one by one
}

// Start starts agents on one control plane: pairs of upstream's kubelet and Wherry for most cases, and restarted more pairs for cases in
// which the agents restart.
func Start(ctx context.Context, r *rig.Rig, pairs, restarted int, upstream, wherry rig.Program) (_ *Runner, err error) {
	run := &Runner{rig: r, restarted: restarted, traces: map[string]*Trace{}, lags: map[string]time.Duration{}}
	defer func() {
		if err != nil {
			run.Close()
		}
	}()
	seen, err := r.Watch(ctx)
	if err != nil {
		return run, err
	}
	defer seen.Close()
	for n := range pairs + restarted {
		pair := &[2]*side{}
		run.pairs = append(run.pairs, pair)
		for i, p := range []rig.Program{upstream, wherry} {
			p.Name += fmt.Sprint("-", n)
			if pair[i], err = run.startSide(p, i == 0, fmt.Sprintf("127.%d.0.0/16", firstSubnet+2*n+i)); err != nil {
				return run, err
			}
		}
	}
	for s := range sides(run.pairs) {
		if _, err := s.agent.AwaitReady(ctx, seen); err != nil {
			return run, err
		}
	}
	watching, stop := context.WithCancel(ctx)
	run.stop = stop
	core := r.Client.CoreV1()
	pods, events := core.Pods(rig.Namespace), core.Events(rig.Namespace)
	err1 := run.follow(watching, pods.Watch, run.seePod)
	err2 := run.follow(watching, events.Watch, run.seeEvent)
	return run, errors.Join(err1, err2)
}

// firstSubnet is the second byte of the pod addresses of the first agent (127.60.0.0/16). Each further agent has the next number.
const firstSubnet = 60

// startSide starts an agent with a runtime of its own. After an error it may return a side whose runtime runs; the caller then has to
// close the runtime.
func (run *Runner) startSide(p rig.Program, upstream bool, subnet string) (s *side, err error) {
	s = &side{name: p.Name, upstream: upstream, manifests: filepath.Join(run.rig.Dir, "static", p.Name)}
	if err := os.MkdirAll(s.manifests, 0o755); err != nil {
		return nil, err
	}
	p.Config += unlimited + fmt.Sprintf("staticPodPath: %q\n", s.manifests)
	if s.runtime, err = Serve(filepath.Join(run.rig.Dir, p.Name+".sock"), subnet); err != nil {
		return nil, err
	}
	if s.agent, err = run.rig.NewAgent(p); err != nil {
		return s, err
	}
	return s, s.agent.Start(s.runtime.Socket)
}

// sides iterates over the agents of all pairs.
func sides(pairs []*[2]*side) iter.Seq[*side] {
	return func(yield func(*side) bool) {
		for _, pair := range pairs {
			for _, s := range pair {
				if s != nil && !yield(s) {
					return
				}
			}
		}
	}
}

// Close ends all agents and their runtimes.
func (run *Runner) Close() {
	if run.stop != nil {
		run.stop()
	}
	run.wg.Wait()
	for s := range sides(run.pairs) {
		if s.agent != nil {
			s.agent.Stop()
		}
		s.runtime.Close()
	}
}

// of returns the pairs on which cases of the kind k run.
func (run *Runner) of(k Kind) []*[2]*side {
	quiet := len(run.pairs) - run.restarted
	if k == Restart {
		return run.pairs[quiet:]
	}
	return run.pairs[:quiet]
}

// Restart stops the agents on which cases of kind Restart run, and starts them again. If kill is true it kills them with SIGKILL, otherwise
// it sends SIGTERM.
func (run *Runner) Restart(kill bool) error {
	var wg sync.WaitGroup
	from := time.Now()
	for s := range sides(run.of(Restart)) {
		wg.Go(func() {
			if kill {
				s.agent.Kill()
			} else {
				s.agent.Stop()
			}
		})
	}
	wg.Wait()
	var errs []error
	for s := range sides(run.of(Restart)) {
		errs = append(errs, s.agent.Start(s.runtime.Socket))
		run.mu.Lock()
		s.downs = append(s.downs, Down{from, time.Now()})
		run.mu.Unlock()
	}
	return errors.Join(errs...)
}

// during returns those of the times without an agent (downs) that overlap with the time of the trace.
func (t *Trace) during(downs []Down) (out []Down) {
	for _, d := range downs {
		if d.To.After(t.Created) && d.From.Before(t.Ended) {
			out = append(out, d)
		}
	}
	return out
}

// follow opens a watch at the present resource version, and calls see for each change from then on.
func (run *Runner) follow(ctx context.Context, open func(context.Context, metav1.ListOptions) (watch.Interface, error), see func(watch.Event)) error {
	list, err := run.rig.Client.CoreV1().Pods(rig.Namespace).List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return fmt.Errorf("list pods: %w", err)
	}
	w, err := tools.NewRetryWatcherWithContext(ctx, list.ResourceVersion, &cache.ListWatch{WatchFuncWithContext: open})
	if err != nil {
		return fmt.Errorf("watch: %w", err)
	}
	run.wg.Go(func() { run.read(ctx, w.ResultChan(), see) })
	return nil
}

// read calls see for each change until ctx ends. If the changes end earlier, every later run of a case fails with ErrWatchEnded.
func (run *Runner) read(ctx context.Context, changes <-chan watch.Event, see func(watch.Event)) {
	for e := range changes {
		see(e)
	}
	if ctx.Err() == nil {
		run.mu.Lock()
		run.lost = ErrWatchEnded
		run.mu.Unlock()
	}
}

// lostWatch returns ErrWatchEnded if a watch has ended, otherwise nil.
func (run *Runner) lostWatch() error {
	run.mu.Lock()
	defer run.mu.Unlock()
	return run.lost
}

// seePod appends a new version of a pod to the trace of the pod.
func (run *Runner) seePod(e watch.Event) {
	p, ok := e.Object.(*v1.Pod)
	if !ok {
		return
	}
	run.mu.Lock()
	defer run.mu.Unlock()
	t := run.traces[p.Name]
	switch {
	case t == nil:
	case e.Type == watch.Deleted:
		t.Gone, t.Ended = true, time.Now()
	default:
		t.Gone = false // a mirror pod may return after its deletion
		t.Statuses = append(t.Statuses, Seen{time.Now(), p})
	}
}

// seeEvent records the newest version of an event in the trace of its pod.
func (run *Runner) seeEvent(e watch.Event) {
	v, ok := e.Object.(*v1.Event)
	if !ok || e.Type == watch.Deleted {
		return
	}
	run.mu.Lock()
	defer run.mu.Unlock()
	run.lags[v.Source.Host] = max(0, time.Since(v.LastTimestamp.Time)-time.Second) // LastTimestamp has whole seconds, so up to one second is no delay
	t := run.traces[v.InvolvedObject.Name]
	if t == nil {
		return
	}
	t.events[v.Name] = v
}

// eventKey returns the key of an event in Trace.Events: type, reason, the container and, for the reason Unhealthy, the probe.
func eventKey(v *v1.Event) string {
	reason := v.Reason
	if probe, _, ok := strings.Cut(v.Message, " probe "); ok && reason == "Unhealthy" {
		reason += " " + probe
	}
	return v.Type + " " + reason + " " + v.InvolvedObject.FieldPath
}

// countEvents fills Trace.Events from the recorded events.
func (t *Trace) countEvents() {
	t.Events = map[string]Event{}
	for _, v := range slices.SortedFunc(maps.Values(t.events), func(a, b *v1.Event) int {
		return cmp.Or(a.FirstTimestamp.Compare(b.FirstTimestamp.Time), cmp.Compare(a.Name, b.Name))
	}) {
		k := eventKey(v)
		n := t.Events[k]
		if n.Count == 0 {
			n.Message, n.First = v.Message, v.FirstTimestamp.Time
		}
		n.Count += int(max(v.Count, 1))
		t.Events[k] = n
	}
}

// Run runs a case on both agents. It returns the result of the comparison and the traces. It may be called concurrently.
func (run *Runner) Run(ctx context.Context, c *Case) (Verdict, *Pair, error) {
	if err := run.lostWatch(); err != nil {
		return Verdict{}, nil, err
	}
	c = c.clone()
	n := run.runs.Add(1)
	c.Name = fmt.Sprintf("case-%d-%d", c.Seed, n)
	var traces [2]*Trace
	var errs [2]error
	var wg sync.WaitGroup
	pairs := run.of(c.Kind)
	for i, s := range pairs[int(n)%len(pairs)] {
		wg.Go(func() { traces[i], errs[i] = run.life(ctx, s, c) })
	}
	wg.Wait()
	if err := errors.Join(append(errs[:], run.lostWatch())...); err != nil {
		return Verdict{}, nil, err
	}
	if what := traces[0].slow(c); what != "" {
		return Verdict{}, nil, fmt.Errorf("%w: %s of seed %d", ErrSlow, what, c.Seed)
	}
	return CompareAll(c, traces[0], traces[1]), &Pair{traces[0], traces[1]}, nil
}

// life runs a case on one agent and returns the trace.
func (run *Runner) life(ctx context.Context, s *side, c *Case) (*Trace, error) {
	l := &living{run: run, side: s, c: c, file: c.Name + "-" + s.name, t: &Trace{Created: time.Now(), events: map[string]*v1.Event{}}}
	l.name = l.file
	if c.Kind == Static {
		l.name += "-" + s.agent.Node
	}
	s.runtime.Play(l.name, c)
	defer s.runtime.Forget(l.name)
	run.mu.Lock()
	run.traces[l.name] = l.t
	run.mu.Unlock()
	if err := l.live(ctx); err != nil {
		return nil, fmt.Errorf("seed %d on %s: %w", c.Seed, s.name, err)
	}
	l.t.Calls, l.t.Configs = s.runtime.Calls(l.name), s.runtime.Configs(l.name)
	run.mu.Lock()
	defer run.mu.Unlock()
	delete(run.traces, l.name)
	if !l.t.Gone {
		l.t.Ended = time.Now()
	}
	l.t.Downs = l.t.during(s.downs)
	l.t.countEvents()
	return l.t, nil
}

func sleepUntil(ctx context.Context, at time.Time) error {
	select {
	case <-time.After(time.Until(at)):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
