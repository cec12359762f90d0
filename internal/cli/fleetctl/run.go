package fleetctl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"runtime"
	"runtime/metrics"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/client-go/rest"

	"github.com/wherry-node/wherry/agent/fleet"
	"github.com/wherry-node/wherry/agent/simulated"
	"github.com/wherry-node/wherry/internal/cli/plain"
	"github.com/wherry-node/wherry/internal/edge/server"
	"github.com/wherry-node/wherry/internal/edge/socket"
)

// Run is the command `wherry fleet`.
type Run struct {
	Name     string
	Nodes    int    // the number of nodes; 0: as the template says, or 10 without a template
	Template string // a file; "": one group
	// Snapshot is a file of `wherry fleet snapshot`, whose cluster the fleet imitates with Scale times as many nodes and pods; "": none.
	Snapshot string
	Scale    int
	Scenario string // a file with faults that happen; "": none
	// Rules are files that say what containers and images do.
	Rules []string
	// Kubeconfig and Context name a cluster. Without Kubeconfig a control plane is started.
	Kubeconfig, Context string
	// InCluster names the cluster of the pod in which the command runs. It is used instead of Kubeconfig.
	InCluster bool
	// Shard is the name of this process among several that share the fleet's nodes; "": it runs all nodes; ShardAuto: it chooses a name itself.
	// ShardNamespace is the namespace of the leases with which they share them.
	Shard, ShardNamespace string
	// Yes is the user's permission to add nodes to the cluster of Kubeconfig.
	Yes bool
	// Keep leaves the nodes and pods in the cluster of Kubeconfig when the fleet ends.
	Keep bool
	// NoTaint leaves out the taint of the simulated nodes, so that the scheduler may place any pod of the cluster of Kubeconfig on them.
	NoTaint   bool
	Identity  string
	Pods      int
	Namespace string
	// DataDir is the directory in which the control plane keeps its data; "": a temporary directory. ControlPlane is the path of the control
	// plane's program.
	DataDir, ControlPlane string
	Seed                  uint64
	Socket                string
	// Once ends the command when the expectations hold (see Expect). Within is the maximum time until they hold; 0: no maximum.
	Once   bool
	Within time.Duration
	// Expect lists expectations, such as pods=running, that must all hold at the same time, for the duration Hold. Without any, the command
	// expects all nodes to be Ready and all pods Running.
	Expect []string
	Hold   time.Duration
	// Output is the form of the result: "" (only progress) or json. Result gets it.
	Output string
	Result io.Writer
	// OwnWatches lets each node have its own watches of the API, as real nodes have. Otherwise the nodes share watches.
	OwnWatches bool
	// Storage makes the fleet the provisioner, attacher and resizer of the template's CSI drivers in the cluster of Kubeconfig. In a control plane of
	// its own it always is.
	Storage bool
	// NoServe leaves out the nodes' HTTPS APIs and the logs of containers.
	NoServe bool
	// Metrics is an address at which the fleet serves its metrics for Prometheus; "": it serves none.
	Metrics string
	// Record is a file for each change of nodes and pods (see fleet.Recorder); "": none.
	Record string
	// Virtual is how much virtual time the whole fleet runs for, in this process alone (see runVirtual); 0: it runs in real time.
	Virtual time.Duration
	// Manifests are files with pods, config maps and secrets for a fleet in virtual time.
	Manifests []string
	// Verbosity is how much the fleet and, from 2 on, its agents log.
	Verbosity int
}

// progressEvery is the interval of lines about the progress.
const progressEvery = 2 * time.Second

// Run runs the fleet until ctx ends or the user calls `wherry fleet stop`. It writes progress to out.
func (r *Run) Run(ctx context.Context, out io.Writer) (err error) {
	in, err := r.read()
	if err != nil {
		return err
	}
	cfg, err := r.config(&in)
	if err != nil {
		return err
	}
	if r.Virtual > 0 {
		return r.runVirtual(ctx, out, &in, cfg)
	}
	var pacing sync.WaitGroup
	defer pacing.Wait()
	paced, endPacing := context.WithCancel(context.WithoutCancel(ctx))
	defer endPacing()
	pacing.Go(func() { paceGC(paced) })
	l, err := r.listen()
	if err != nil {
		return err
	}
	// The socket is served until everything is cleaned up, so that `wherry fleet stop` can wait for the end of the clean-up.
	served, endServing := context.WithCancel(context.WithoutCancel(ctx))
	var serving sync.WaitGroup
	defer serving.Wait()
	defer func() { _ = l.Close() }()
	defer endServing()
	said := &progress{out: out, began: time.Now()}
	said.ignored(in.rules)
	if r.Shard != "" {
		said.line("this process is the shard %s", r.Shard)
	}
	c, err := r.cluster(ctx, in.nodes, said)
	switch {
	case err != nil && ctx.Err() != nil && r.awaits():
		return r.early(unmet(in.expect))
	case err != nil:
		return err
	}
	defer func() { err = errors.Join(err, c.plane.stop()) }()
	cfg.Client, cfg.ServerBegan = c.client, c.began
	w := &watcher{run: r, expect: in.expect, workloads: in.workloads, cluster: c, said: said}
	return w.live(ctx, &in, cfg, func(h http.Handler) {
		serving.Go(func() { _ = server.Serve(served, l, h, server.ServeOptions{Log: r.log(2)}) })
	})
}

// live runs the fleet in its cluster until ctx ends, the user calls `wherry fleet stop`, or the fleet's own control plane ends. It calls serve
// with the handler of the control socket.
func (w *watcher) live(ctx context.Context, in *input, cfg fleet.Config, serve func(http.Handler)) (err error) {
	if !w.run.NoServe {
		if cfg.Dir, err = os.MkdirTemp("", "wherry-fleet-nodes-"); err != nil {
			return fmt.Errorf("make the directory of the nodes: %w", err)
		}
		defer func() { _ = os.RemoveAll(cfg.Dir) }()
		cfg.Address = hostAddress()
	}
	endRecord, err := w.run.record(&cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, endRecord()) }()
	if w.fleet, err = fleet.New(cfg); err != nil {
		return err
	}
	w.base, w.idle = memory(), runtime.NumGoroutine()
	user := ctx
	ctx, stop := context.WithCancel(ctx)
	judge := w.cluster.plane.guard(user, ctx, stop)
	defer func() { err = judge(err) }()
	plays := &plays{ctx: ctx, fleet: w.fleet, said: w.said}
	defer plays.wait()
	defer stop() // before plays.wait and judge, which wait for the end of ctx
	serve((&control{fleet: w.fleet, state: w.state, stop: stop, play: plays.begin}).handler())
	endMetrics, err := w.serveMetrics()
	if err != nil {
		return err
	}
	defer endMetrics()
	if w.run.Pods > 0 && len(w.workloads) == 0 {
		if err := w.fleet.EnsureNamespace(ctx, w.run.Namespace, w.cluster.plane != nil); err != nil {
			return fmt.Errorf("--namespace: %w", err)
		}
	}
	if in.plan != nil {
		if err := plays.begin(w.run.Scenario, in.plan); err != nil {
			return err
		}
	}
	return w.runFleet(ctx, stop)
}

// runFleet runs the fleet and watches it until ctx ends. It calls stop, which ends ctx, when the time for the expectations is over, or when
// they hold and the fleet runs only until then (Once).
func (w *watcher) runFleet(ctx context.Context, stop func()) error {
	var late error
	var watching sync.WaitGroup
	watching.Go(func() {
		if late = w.watch(ctx); late != nil || w.run.Once {
			stop()
		}
	})
	over := make(chan struct{})
	watching.Go(func() { w.said.tellRemoval(ctx, over, w.fleet.Removal) })
	err := w.fleet.Run(ctx)
	close(over)
	stop()
	watching.Wait()
	if _, ok := errors.AsType[*early](late); ok && err != nil { // nobody has ended the fleet: it has failed
		return err
	}
	return errors.Join(err, late)
}

// config returns the configuration of the fleet, before the cluster is known. It checks the configuration and the scenario.
func (r *Run) config(in *input) (fleet.Config, error) {
	own := !r.joins()
	cfg := fleet.Config{
		Name: r.Name, Groups: in.groups, Identity: fleet.Identity(r.Identity), Taint: !own && !r.NoTaint, Keep: r.Keep || own, Seed: r.Seed, Rules: in.rules, OwnWatches: r.OwnWatches,
		Storage: r.Storage || own && r.Virtual == 0,
		Shard:   fleet.Shard{Name: r.Shard, Namespace: r.ShardNamespace, Input: in.sum},
		Log:     r.log(1), NodeLog: r.log(2), Client: &rest.Config{Host: "https://127.0.0.1"},
	}
	checked, err := fleet.New(cfg) // checks the configuration before anything is started
	if err != nil {
		return cfg, configFlags.name(err)
	}
	if in.plan != nil {
		err = checked.Check(in.plan)
	}
	return cfg, err
}

// listen opens the control socket of the fleet.
func (r *Run) listen() (net.Listener, error) {
	l, err := socket.Listen(socketPath(r.Socket, r.Name, r.Shard), socketDir())
	switch {
	case errors.Is(err, socket.ErrInUse) && r.Shard != "":
		return nil, fmt.Errorf("shard %s of fleet %s runs already on this machine: choose another --shard", r.Shard, r.Name)
	case errors.Is(err, socket.ErrInUse):
		return nil, fmt.Errorf("a fleet %s runs already on this machine: choose another --name, or end it with wherry fleet stop --name %s", r.Name, r.Name)
	}
	return l, err
}

// log returns a logger to standard error. Its level is Debug if Verbosity is greater than from, Info if both are equal, and otherwise Warn
// (or Error for the agents).
func (r *Run) log(from int) *slog.Logger {
	level := slog.LevelWarn
	switch {
	case r.Verbosity > from:
		level = slog.LevelDebug
	case r.Verbosity == from:
		level = slog.LevelInfo
	case from > 1: // most warnings of single agents are not important for the fleet
		level = slog.LevelError
	}
	var to slog.Handler = slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level})
	if level > slog.LevelInfo {
		to = goneQuiet{to}
	}
	return slog.New(to)
}

// progress writes lines with the time since the start. Methods may be called concurrently.
type progress struct {
	out   io.Writer
	began time.Time
	mu    sync.Mutex
}

// ignored writes what the files with rules contain and the fleet ignores. A nil rules has nothing.
func (p *progress) ignored(rules *simulated.Rules) {
	if rules == nil {
		return
	}
	for _, text := range rules.Ignored() {
		p.line("%s", plain.Text(text))
	}
}

func (p *progress) line(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.write(time.Since(p.began), format, args...)
}

// at writes a line with a given time since the start.
func (p *progress) at(since time.Duration, format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.write(since, format, args...)
}

func (p *progress) write(since time.Duration, format string, args ...any) {
	fmt.Fprintf(p.out, "%6.1f s  %s\n", since.Seconds(), fmt.Sprintf(format, args...))
}

// watcher observes a running fleet and reports its state and progress to the user.
type watcher struct {
	run       *Run
	fleet     *fleet.Fleet
	expect    []fleet.Expectation
	workloads []fleet.Workload // to create when the nodes are Ready, instead of pods that are all alike
	base      uint64           // memory of the process before the first node began
	idle      int              // goroutines of the process at that time
	cluster   usedCluster
	said      *progress
	stuck     stuck
}

// state returns the state of the fleet for clients of the socket.
func (w *watcher) state() State {
	s := State{Status: w.fleet.Status(), Kubeconfig: w.cluster.kubeconfig, Server: w.cluster.server, Wanted: w.run.Pods, Memory: memory(), Goroutines: runtime.NumGoroutine()}
	if n := s.Nodes.Present; n > 0 {
		s.MemoryPerNode = (s.Memory - min(s.Memory, w.base)) / uint64(n)
		s.GoroutinesPerNode = float64(max(0, s.Goroutines-w.idle)) / float64(n)
	}
	var used unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &used) == nil {
		s.CPUSeconds = time.Duration(used.Utime.Nano() + used.Stime.Nano()).Seconds()
	}
	return s
}

// memory returns the bytes that the process uses for its objects and stacks.
func memory() uint64 {
	samples := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/stacks:bytes"}}
	metrics.Read(samples)
	return samples[0].Value.Uint64() + samples[1].Value.Uint64()
}

// watch creates the pods when all nodes are Ready, and prints how many nodes are Ready and how many pods Running. It returns when the
// expectations hold. The error is a *fleet.Unmet if that takes longer than Within, and an *early if ctx ends before and the user waits for that.
func (w *watcher) watch(ctx context.Context) error {
	began := time.Now()
	bounded := ctx
	if w.run.Within > 0 {
		var cancel context.CancelFunc
		bounded, cancel = context.WithTimeout(ctx, w.run.Within)
		defer cancel()
	}
	err := w.stages(bounded)
	var outcomes []fleet.Outcome
	switch {
	case err == nil:
		last := time.Now()
		outcomes, err = fleet.AwaitStatus(bounded, w.run.Hold, w.expect, func(context.Context) (fleet.Status, int, error) {
			s := w.fleet.Status()
			if time.Since(last) >= progressEvery {
				last = time.Now()
				w.said.line("%d of %d nodes Ready; pods: %d Running, %d Pending, %d Succeeded, %d Failed%s",
					s.Nodes.Ready, s.Nodes.Want, s.Pods.Running, s.Pods.Pending, s.Pods.Succeeded, s.Pods.Failed, w.stuck.tell(bounded, &s.Pods, time.Now(), w.fleet.Unplaced))
			}
			return s, w.run.Pods, nil
		})
	case bounded.Err() != nil: // the time Within has passed, or ctx has ended, while stages still waited
		s := w.fleet.Status()
		for _, e := range w.expect {
			outcomes = append(outcomes, e.Check(&s, w.run.Pods))
		}
		err = &fleet.Unmet{Outcomes: outcomes}
	}
	if ctx.Err() != nil { // the user ends the fleet
		return w.run.early(err)
	}
	if err := w.report(outcomes, err, time.Since(began)); err != nil {
		return err
	}
	if err == nil && !w.run.Once {
		named := "--name " + w.run.Name
		if w.run.Shard != "" {
			named += " --shard " + w.run.Shard
		}
		w.said.line("the fleet runs: see it with wherry fleet top %s; end it with Ctrl-C or wherry fleet stop %s", named, named)
	}
	return err
}

// report prints the outcomes of the expectations that the user gave, and writes the result as JSON if Output says so.
func (w *watcher) report(outcomes []fleet.Outcome, err error, took time.Duration) error {
	if len(w.run.Expect) > 0 {
		for _, o := range outcomes {
			w.said.line("%s", outcomeText(&o))
		}
	}
	if outcomes == nil || w.run.Output == "" || w.run.Result == nil {
		return nil
	}
	return writeResult(w.run.Result, outcomes, err, took, w.state())
}

// stages waits until all nodes are Ready, creates the pods, and waits until all pods are Running. If the user gave expectations, it does
// not wait until the pods run; if there are also no pods to create, it does nothing.
func (w *watcher) stages(ctx context.Context) error {
	if len(w.run.Expect) > 0 && w.run.Pods == 0 && len(w.workloads) == 0 {
		return nil
	}
	began, before := time.Now(), w.fleet.Status().Joins
	nodes := func(s *State) (string, bool) {
		if s.Shard != nil && s.Shard.Slices == 0 {
			return fmt.Sprintf("this shard waits for its share of the %d nodes", s.Shard.Nodes), s.Settled()
		}
		return fmt.Sprintf("%d of %d nodes Ready, at most %d join at once", s.Nodes.Ready, s.Nodes.Want, s.JoinWindow) + joined(before, s.Joins, time.Since(began)), s.Settled()
	}
	late := func(s *State) string {
		switch o := s.Leases.Overdue; {
		case o > 5*fleet.LateForJoins:
			return fmt.Sprintf("; leases are %s late, so no node joins", short(o))
		case o > fleet.LateForJoins:
			return fmt.Sprintf("; leases are %s late, so nodes join one at a time", short(o))
		}
		return ""
	}
	pods := func(s *State) (string, bool) {
		return fmt.Sprintf("%d of %d pods Running, %.0f a second", s.Pods.Running, s.Wanted, s.Pods.StartsPerSecond), s.Pods.Running >= s.Wanted
	}
	if err := w.until(ctx, nodes, late); err != nil {
		return err
	}
	w.said.line("%d nodes Ready in %s", w.fleet.Status().Nodes.Ready, time.Since(began).Round(10*time.Millisecond))
	if w.run.Pods == 0 && len(w.workloads) == 0 {
		return nil
	}
	began = time.Now()
	created, err := w.create(ctx)
	if err != nil {
		return err
	}
	if len(w.run.Expect) > 0 || w.run.Pods == 0 {
		w.said.line("%s created in %s", created, time.Since(began).Round(10*time.Millisecond))
		return nil
	}
	if err := w.until(ctx, pods, func(s *State) string { return w.stuck.tell(ctx, &s.Pods, time.Now(), w.fleet.Unplaced) }); err != nil {
		return err
	}
	w.said.line("%d pods Running in %s", w.fleet.Status().Pods.Running, time.Since(began).Round(10*time.Millisecond))
	return nil
}

// until waits until done returns true, and prints the progress: the text of done, and what also adds to it.
func (w *watcher) until(ctx context.Context, done func(*State) (string, bool), also func(*State) string) error {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	last := time.Now()
	for {
		s := w.state()
		text, ok := done(&s)
		if ok {
			return nil
		}
		if time.Since(last) >= progressEvery {
			last = time.Now()
			w.said.line("%s%s", text, also(&s))
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}
