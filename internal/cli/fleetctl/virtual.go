package fleetctl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/wherry-node/wherry/agent/fleet"
	"github.com/wherry-node/wherry/agent/simulated"
	"github.com/wherry-node/wherry/internal/base/bubble"
	"github.com/wherry-node/wherry/internal/base/kubeclient"
	"github.com/wherry-node/wherry/internal/cli/plain"
)

// VirtualTime says how much virtual time a run had, and how long that took.
type VirtualTime struct {
	SpanSeconds float64 `json:"spanSeconds"`
	RealSeconds float64 `json:"realSeconds"`
	Speed       float64 `json:"speed"` // SpanSeconds / RealSeconds
}

// These are reasons why an option makes no sense in virtual time.
const (
	noCluster   = "the nodes join an API server in memory, because a real one does not run in virtual time"
	noOther     = "no other process can take part in virtual time"
	noServer    = "nobody can ask a fleet whose time is not theirs; see what has happened with --record"
	noWorkloads = "a copy has workloads, which need controllers and a scheduler, and none runs in virtual time"
)

// notVirtual has the options that cannot be used in virtual time, each with the reason.
var notVirtual = []struct{ flag, why string }{
	{"kubeconfig", noCluster}, {"context", noCluster}, {"in-cluster", noCluster}, {"yes", noCluster}, {"no-taint", noCluster},
	{"keep", "the cluster ends with the command"},
	{"controlplane", noCluster}, {"data-dir", "nothing is on disk"},
	{"shard", noOther}, {"shard-namespace", noOther}, {"snapshot", noWorkloads}, {"scale", noWorkloads},
	{"identity", "the API server in memory checks no rights, so all nodes are one user"},
	{"storage", "no controllers bind claims in virtual time"},
	{"no-serve", "the nodes serve no API in any case"},
	{"socket", noServer}, {"metrics", noServer},
	{"hold", "each expectation is checked at one instant; see what was between two of them with --record"},
	{"once", "the command ends in any case"},
}

// CheckVirtual returns an error if the user gave an option that cannot be used with --virtual. given reports whether the user gave a flag.
func (r *Run) CheckVirtual(given func(flag string) bool) error {
	if !given("virtual") {
		if given("manifest") {
			return errors.New("--manifest is for --virtual: in a cluster use kubectl apply")
		}
		return nil
	}
	var errs []error
	if r.Virtual <= 0 {
		errs = append(errs, fmt.Errorf("--virtual=%s: use a positive time, such as 1h", r.Virtual))
	}
	for _, n := range notVirtual {
		if given(n.flag) {
			errs = append(errs, fmt.Errorf("--%s cannot be used with --virtual: %s", n.flag, n.why))
		}
	}
	if r.Within > r.Virtual {
		errs = append(errs, fmt.Errorf("--within=%s is longer than --virtual=%s", r.Within, r.Virtual))
	}
	return errors.Join(errs...)
}

// These are intervals of virtual time.
const (
	virtualRest  = time.Second            // between two looks at the fleet
	eventsExpire = time.Hour              // between two removals of the events, as in an API server
	virtualWaits = 100 * time.Millisecond // between two looks while something is awaited
)

// tellEvery is the interval of lines about the progress, in real time.
const tellEvery = time.Second

// virtual is a fleet in virtual time. The fields of the first part belong to the bubble while it lasts; those of the second are used on both sides at once.
type virtual struct {
	run    *Run
	pods   int // to create, in all
	in     *input
	cfg    fleet.Config
	said   *progress // its time is virtual
	settle bubble.Settle
	state  func() State
	// The result, which the bubble leaves.
	last     State
	outcomes []fleet.Outcome
	took     time.Duration // virtual time until the expectations held, or until the end
	passed   time.Duration // virtual time
	early    bool          // the user has ended the run

	stopped func() bool // the user ends the command
	asked   atomic.Bool
	seen    atomic.Pointer[glimpse]
}

// glimpse is the state of a fleet at an instant of virtual time.
type glimpse struct {
	at time.Duration
	fleet.Status
}

// runVirtual runs the fleet in virtual time and prints the result.
func (r *Run) runVirtual(ctx context.Context, out io.Writer, in *input, cfg fleet.Config) (err error) {
	began := time.Now()
	endRecord, err := r.record(&cfg)
	if err != nil {
		return err
	}
	var over atomic.Bool
	instants := fleet.NewInstants(func(fleet.Change) {})
	if to := cfg.Changed; to != nil {
		instants = fleet.NewInstants(to)
		cfg.Changed = func(c fleet.Change) {
			if !over.Load() { // what ends the agents at the end is no part of the run
				instants.Changed(c)
			}
		}
	}
	if in.plan != nil {
		plan := *in.plan
		plan.Seed ^= r.Seed
		in.plan = &plan
	}
	v := &virtual{run: r, pods: r.Pods + len(in.manifests.Pods), in: in, cfg: cfg, said: &progress{out: out}, stopped: func() bool { return ctx.Err() != nil }}
	endTelling := v.tell(began)
	unmet := bubble.Run(func(settle bubble.Settle) error {
		v.settle = settle
		return v.live(func() { over.Store(true) })
	})
	endTelling()
	instants.Flush()
	if err := endRecord(); err != nil {
		return errors.Join(err, unmet)
	}
	if v.last.Name == "" { // it did not get that far
		return unmet
	}
	return errors.Join(v.print(time.Since(began), unmet), unmet)
}

// live runs the fleet for the time of --virtual. It calls over at the end of this time, before the nodes end.
func (v *virtual) live(over func()) (err error) {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	api := simulated.NewAPIServer(v.run.Seed)
	v.cfg.Client, v.cfg.Identity, v.cfg.Settle = api.Client("wherry-fleet"), fleet.Shared, v.settle
	f, err := fleet.New(v.cfg)
	if err != nil {
		return err
	}
	v.said.began = time.Now()
	v.said.ignored(v.in.rules)
	v.noteDocuments()
	w := &watcher{run: v.run, fleet: f, base: memory(), idle: runtime.NumGoroutine(), cluster: usedCluster{server: "in memory"}}
	v.state = w.state
	ended := make(chan error, 1)
	go func() { ended <- f.Run(ctx) }()
	plays := &plays{ctx: ctx, fleet: f, said: v.said}
	if v.in.plan != nil {
		if err = plays.begin(v.run.Scenario, v.in.plan); err != nil {
			stop()
			<-ended
			return err
		}
	}
	var failed error
	if failed, err = v.watch(f, api, ended); failed == nil {
		over()
		v.last = v.state()
		stop()
		failed = <-ended
	}
	stop()
	plays.wait()
	return errors.Join(failed, err)
}

// noteDocuments says which documents of the manifests are left out.
func (v *virtual) noteDocuments() {
	for _, note := range v.in.manifests.Notes {
		v.said.line("%s", plain.Text(note.Error()))
	}
}

// watch places the pods and looks at the fleet until the time is over. failed is why the fleet has ended before; unmet is a *fleet.Unmet.
func (v *virtual) watch(f *fleet.Fleet, api *simulated.APIServer, ended <-chan error) (failed, unmet error) {
	began := time.Now()
	placed, awaits, expire := v.pods == 0, v.run.Within > 0, eventsExpire
	for {
		v.settle()
		s, now := f.Status(), time.Since(began)
		v.passed = now
		if !placed && s.Settled() {
			placed = true
			v.said.line("%d nodes Ready: creating %d pods", s.Nodes.Ready, v.pods)
			if err := v.create(f, api); err != nil {
				return nil, err
			}
		}
		if now >= expire {
			api.ExpireEvents()
			expire += eventsExpire
		}
		if awaits {
			held := v.check(&s)
			awaits = !held
			if !held && now >= v.run.Within {
				return nil, &fleet.Unmet{Outcomes: v.outcomes}
			}
		}
		if v.asked.Swap(false) {
			v.seen.Store(&glimpse{now, s})
		}
		switch {
		case v.stopped():
			v.early = true
			if !awaits && (len(v.run.Expect) == 0 || v.run.Within > 0) {
				return nil, nil
			}
			v.check(&s)
			return nil, v.run.early(&fleet.Unmet{Outcomes: v.outcomes, Hold: v.run.Virtual})
		case now >= v.run.Virtual && len(v.run.Expect) > 0 && v.run.Within == 0 && !v.check(&s):
			return nil, &fleet.Unmet{Outcomes: v.outcomes}
		case now >= v.run.Virtual:
			return nil, nil
		}
		pace := virtualRest
		if !placed || awaits {
			pace = virtualWaits
		}
		select {
		case err := <-ended:
			return errors.Join(err, errors.New("the fleet has ended too early")), nil
		case <-time.After(min(pace, v.run.Virtual-now)):
		}
	}
}

// create creates the pods and what the manifests have.
func (v *virtual) create(f *fleet.Fleet, api *simulated.APIServer) error {
	ctx := context.Background()
	c, err := kubeclient.New(api.Client("wherry-fleet"))
	if err != nil {
		return err
	}
	m := &v.in.manifests
	for _, o := range m.ConfigMaps {
		namespace := cmp.Or(o.Namespace, v.run.Namespace)
		if _, err := c.ConfigMaps(namespace).Create(ctx, o, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("create config map %s/%s: %w", namespace, o.Name, err)
		}
	}
	for _, o := range m.Secrets {
		namespace := cmp.Or(o.Namespace, v.run.Namespace)
		if _, err := c.Secrets(namespace).Create(ctx, o, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("create secret %s/%s: %w", namespace, o.Name, err)
		}
	}
	return f.PlacePods(ctx, v.run.Namespace, v.run.Pods, m.Pods...)
}

// check stores the outcomes of the expectations, and reports whether all hold.
func (v *virtual) check(s *fleet.Status) bool {
	v.took = v.passed
	outcomes, held := fleet.CheckAll(v.in.expect, s, v.pods)
	v.outcomes = outcomes
	return held
}

// tell prints the progress until the caller calls end. It runs in real time, outside of the bubble: it asks for a glimpse and prints the one that it
// asked for before.
func (v *virtual) tell(began time.Time) (end func()) {
	done := make(chan struct{})
	var group sync.WaitGroup
	group.Go(func() {
		tick := time.NewTicker(tellEvery)
		defer tick.Stop()
		for {
			v.asked.Store(true)
			select {
			case <-done:
				return
			case <-tick.C:
			}
			if g := v.seen.Swap(nil); g != nil {
				v.said.at(g.at, "of %s, %s; %d of %d nodes Ready; pods: %d Running, %d Pending, %d Succeeded, %d Failed", v.run.Virtual, fast(g.at, time.Since(began)),
					g.Nodes.Ready, g.Nodes.Want, g.Pods.Running, g.Pods.Pending, g.Pods.Succeeded, g.Pods.Failed)
			}
		}
	})
	return func() {
		close(done)
		group.Wait()
	}
}

// fast says how much faster virtual time passes.
func fast(virtual, took time.Duration) string {
	return fmt.Sprintf("%.0f times as fast as real time", virtual.Seconds()/max(took.Seconds(), 1e-3))
}

// print prints the result. err is nil if the expectations held.
func (v *virtual) print(took time.Duration, err error) error {
	out := v.run.Result
	if out == nil {
		return nil
	}
	if v.run.Output == "json" {
		r := Result{Held: err == nil && !v.early, TookSeconds: v.took.Seconds(), Expectations: v.outcomes, State: v.last}
		if r.Expectations == nil {
			r.Expectations = []fleet.Outcome{}
		}
		r.Virtual = &VirtualTime{SpanSeconds: v.passed.Seconds(), RealSeconds: took.Seconds(), Speed: v.passed.Seconds() / took.Seconds()}
		return r.write(out)
	}
	writeState(out, &v.last)
	for i := range v.outcomes {
		fmt.Fprintf(out, "expected  %s\n", outcomeText(&v.outcomes[i]))
	}
	_, wrong := fmt.Fprintf(out, "time      %s of virtual time in %s: %s\n", v.passed, short(took), fast(v.passed, took))
	return wrong
}
