package work

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/wherry-node/wherry/bench/internal/rig"
)

// Plan says how much work each round of the benchmark has.
type Plan struct {
	Sequence int           // number of pods that start one after another
	Pods     int           // number of pods that start at once
	Deaths   int           // number of containers to kill
	Rest     time.Duration // how long the agent is measured while nothing happens
	Parallel int           // number of workers that start pods in the arms "bare CRI" and "limit"
	Volumes  int           // number of pods with 20 ConfigMap volumes, one after another
	Probes   []string      // kinds of probes that run in all pods each second: exec, http, grpc
	Dense    int           // number of pods on a node with many pods, started in two halves; 0: skip this work
	Brief    bool          // if set, only the first rounds run the steps that take long or hardly vary (step.brief)
	Work     map[string]bool
	// Profiles is the directory for profiles of the agents while they work; "": no profiles. Profiling slows the agents down.
	Profiles string
}

// Samples are measured values by name. Durations are in seconds, sizes in bytes.
type Samples map[string][]float64

func (s Samples) add(name string, v float64) { s[name] = append(s[name], v) }

func (s Samples) took(name string, d time.Duration) { s.add(name, d.Seconds()) }

// Session runs one block (a part of a round) with one agent, or with a Limit (the minimal node agent) in place of an agent.
type Session struct {
	Rig     *rig.Rig
	Agent   *rig.Agent // nil in the arm "limit", which uses the field limit instead
	Node    string
	Plan    Plan
	Samples Samples
	// Calls and Requests have CRI calls and API requests per minute while nothing happens, by name. Starts has API requests per started pod,
	// and Stops has CRI calls per deleted pod.
	Calls, Requests, Starts, Stops map[string]float64

	watch *rig.Watch
	count *rig.Counter
	limit *Limit // nil if the session has an Agent
	CRI   *CRI
	round int
}

// block is a part of a round of the benchmark. All agents and baselines run one block before any of them runs the next, so that the
// measurements that are compared are only seconds apart and the machine hardly changes in between.
type block struct {
	name  string
	steps []step
}

// step is one kind of work. If a step fails, the table has no rows for that step and for the steps that depend on it.
type step struct {
	name  string
	needs string // name of the step whose pods this step uses; "": none
	do    func(*Session, context.Context) error
	brief int  // number of rounds that run this step if Plan.Brief is set; 0: all rounds
	limit bool // the arm "limit" also runs this step
	alone bool // only the arm "bare CRI" runs this step, because the step measures no agent
}

// blocks lists all work of a round. It is never changed.
var blocks = []block{
	{"one", []step{
		{name: "idle", do: (*Session).idle, brief: 3},
		{name: "one", do: (*Session).one, limit: true},
		{name: "volumes", do: (*Session).volumes, brief: 3},
	}},
	{"many", []step{
		{name: "many", do: (*Session).many, limit: true},
		{name: "death", needs: "many", do: (*Session).deaths, limit: true},
		{name: "restart", needs: "many", do: (*Session).restart, brief: 3},
		{name: "delete", needs: "many", do: (*Session).deleteMany, limit: true},
	}},
	{"busy", []step{{name: "busy", do: (*Session).busy, brief: 2}}},
	{"trouble", []step{
		{name: "crash", do: (*Session).crash, brief: 1},
		{name: "chatter", do: (*Session).chatter, brief: 1},
		{name: "pull", do: (*Session).pull, brief: 1},
		{name: "slow", do: (*Session).slow, brief: 1},
	}},
	{"pressure", []step{{name: "pressure", do: (*Session).pressure, brief: 1}}},
	{"collect", []step{{name: "collect", do: (*Session).collect, brief: 1}}},
	{"disks", []step{{name: "disks", do: (*Session).disks, brief: 1}}},
	{"probes", []step{{name: "probes", do: (*Session).probes, brief: 3}}},
	{"exec", []step{{name: "exec", brief: 1, alone: true}}},
	{"dense", []step{{name: "dense", do: (*Session).crowd, brief: 1}}},
}

// Blocks returns the names of the blocks (parts of a round) that a round runs: with an agent if agent is true, otherwise in the baselines
// without one ("bare CRI" and "limit").
func (p *Plan) Blocks(round int, agent bool) (names []string) {
	for _, b := range blocks {
		if slices.ContainsFunc(b.steps, func(s step) bool { return p.wants(s, round) && (agent && !s.alone || !agent && (s.limit || s.alone)) }) {
			names = append(names, b.name)
		}
	}
	return names
}

// BlockNames returns the names of all blocks, in the order in which they run.
func BlockNames() (names []string) {
	for _, b := range blocks {
		names = append(names, b.name)
	}
	return names
}

// Check returns an error if the plan names a step or a kind of probe that does not exist, or if it has a step but not the step whose pods
// that step needs.
func (p *Plan) Check() error {
	known := map[string]string{} // name of the step that each step needs
	for _, b := range blocks {
		for _, s := range b.steps {
			known[s.name] = s.needs
		}
	}
	for _, name := range slices.Sorted(maps.Keys(p.Work)) {
		needs, ok := known[name]
		if !ok {
			return fmt.Errorf("there is no work %q, only %s", name, strings.Join(slices.Sorted(maps.Keys(known)), ", "))
		}
		if needs != "" && !p.Work[needs] {
			return fmt.Errorf("the work %q continues with the pods of %q, which is not named", name, needs)
		}
	}
	if p.Work["dense"] && p.Dense == 0 {
		return errors.New(`the work "dense" has no pods: give -dense`)
	}
	for _, kind := range p.Probes {
		if !slices.Contains(probeKinds, kind) {
			return fmt.Errorf("there is no kind of probe %q, only %s", kind, strings.Join(probeKinds, ", "))
		}
	}
	return nil
}

func steps(name string) []step {
	for _, b := range blocks {
		if b.name == name {
			return b.steps
		}
	}
	return nil
}

// wants reports whether a round runs the step s. A plan with the step "many" always runs "delete" too, because "delete" removes the pods of
// "many".
func (p *Plan) wants(s step, round int) bool {
	if p.Brief && s.brief > 0 && round >= s.brief || s.name == "dense" && p.Dense == 0 {
		return false
	}
	return len(p.Work) == 0 || p.Work[s.name] || s.name == "delete" && p.Work["many"]
}

// Run runs a block with an agent, and removes all pods afterwards. If a step fails, Run skips the steps that need it, continues with the
// others, and returns all errors.
func (s *Session) Run(ctx context.Context, round int, block string) (err error) {
	s.round = round
	if s.watch, err = s.Rig.Watch(ctx); err != nil {
		return err
	}
	defer s.watch.Close()
	defer func() {
		ctx := context.WithoutCancel(ctx)
		err = errors.Join(err, s.stop(ctx), s.clear(ctx))
	}()
	if block == blocks[0].name { // only the first block of a round measures a start without credentials
		if err := s.Agent.Forget(); err != nil {
			return err
		}
	}
	what := "start to Ready, no pods"
	if !s.Agent.HasCredentials() {
		what = "first start to Ready"
	}
	took, err := s.start(ctx, s.Rig.Socket)
	if err != nil {
		return err
	}
	s.Samples.took(what, took)
	var errs []error
	failed := map[string]bool{}
	for _, step := range steps(block) {
		if !s.Plan.wants(step, round) || failed[step.needs] {
			continue
		}
		s.Rig.Log("  %s: %s", s.Node, step.name)
		err := step.do(s, ctx)
		if err == nil {
			continue
		}
		err = fmt.Errorf("%s: %w", step.name, err)
		s.Rig.Log("  %s: %v", s.Agent.Node, err)
		errs = append(errs, err)
		failed[step.name] = true
		if step.needs != "" {
			failed[step.needs] = true // s.anew deletes all pods, also those of that step
		}
		if ctx.Err() != nil {
			break
		}
		if err := s.anew(ctx); err != nil {
			return errors.Join(append(errs, fmt.Errorf("begin again: %w", err))...)
		}
	}
	return errors.Join(errs...)
}

// RunLimit runs a block like Run, but with a Limit (the minimal node agent) in place of an agent. It runs only the steps that a Limit can
// do, and returns the first error.
func (s *Session) RunLimit(ctx context.Context, round int, block string) (err error) {
	todo := slices.DeleteFunc(slices.Clone(steps(block)), func(step step) bool { return !step.limit || !s.Plan.wants(step, round) })
	if len(todo) == 0 {
		return nil
	}
	s.round = round
	if s.watch, err = s.Rig.Watch(ctx); err != nil {
		return err
	}
	defer s.watch.Close()
	leave, err := s.Rig.PretendNode(ctx, s.Node)
	if err != nil {
		return err
	}
	defer leave()
	if s.limit, err = NewLimit(ctx, s.Rig, s.CRI, s.Node, s.Plan.Parallel); err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, s.limit.Close(context.WithoutCancel(ctx)), s.clear(context.WithoutCancel(ctx)))
	}()
	for _, step := range todo {
		if step.name == "death" && !s.limit.HasEvents() {
			continue
		}
		s.Rig.Log("  %s: %s", s.Node, step.name)
		if err := step.do(s, ctx); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
	}
	return nil
}

// start starts the agent, waits until its node is Ready, and returns how long that took.
func (s *Session) start(ctx context.Context, socket string) (time.Duration, error) {
	if err := s.Agent.Start(socket); err != nil {
		return 0, err
	}
	return rig.Within(ctx, time.Minute, func(ctx context.Context) (time.Duration, error) { return s.Agent.AwaitReady(ctx, s.watch) })
}

// stop stops the agent and waits for the next second, so that the agent may be started again at once (see Watch.NodeReady).
func (s *Session) stop(ctx context.Context) error {
	s.Agent.Stop()
	s.endCount()
	return rig.Sleep(ctx, 1100*time.Millisecond)
}

func (s *Session) endCount() {
	if s.count != nil {
		s.count.Close()
		s.count = nil
	}
}

// anew removes all pods and restarts the agent. It is called after a failed step, or after a step that leaves pods behind.
func (s *Session) anew(ctx context.Context) error {
	if err := s.stop(ctx); err != nil {
		return err
	}
	if err := s.clear(ctx); err != nil {
		return err
	}
	_, err := s.start(ctx, s.Rig.Socket)
	return err
}

// pod returns a pod with one container that sleeps and ignores SIGTERM. Its grace period is one second.
func (s *Session) pod(name string) *v1.Pod {
	grace, no := int64(1), false
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: rig.Namespace},
		Spec: v1.PodSpec{
			NodeName: s.Node, TerminationGracePeriodSeconds: &grace, EnableServiceLinks: &no,
			Containers: []v1.Container{{
				Name: "sleep", Image: image, ImagePullPolicy: v1.PullIfNotPresent, Command: command,
			}},
		},
	}
}

func (s *Session) create(ctx context.Context, name string, change func(*v1.Pod)) error {
	p := s.pod(name)
	if change != nil {
		change(p)
	}
	if _, err := s.Rig.Client.CoreV1().Pods(rig.Namespace).Create(ctx, p, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create pod %s: %w", name, err)
	}
	return nil
}

func (s *Session) delete(ctx context.Context, name string) error {
	if err := s.Rig.Client.CoreV1().Pods(rig.Namespace).Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		return fmt.Errorf("delete pod %s: %w", name, err)
	}
	return nil
}

// deleteNow deletes a pod with grace period 0.
func (s *Session) deleteNow(ctx context.Context, name string) error {
	if err := s.Rig.Client.CoreV1().Pods(rig.Namespace).Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}); err != nil {
		return fmt.Errorf("delete pod %s by force: %w", name, err)
	}
	return nil
}

// clear removes every pod from the API and from the runtime. The agent must be stopped.
func (s *Session) clear(ctx context.Context) error {
	pods := s.Rig.Client.CoreV1().Pods(rig.Namespace)
	if err := pods.DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}, metav1.ListOptions{}); err != nil {
		return fmt.Errorf("delete all pods: %w", err)
	}
	_, err := rig.Within(ctx, 3*time.Minute, func(ctx context.Context) (struct{}, error) { return struct{}{}, s.CRI.Clear(ctx) })
	return err
}

// profile starts to fetch a profile of the agent if the plan has a directory for profiles. The returned function waits until the profile is
// written. Errors are only logged.
func (s *Session) profile(ctx context.Context, step, what string) (wait func()) {
	if s.Plan.Profiles == "" || s.Agent == nil {
		return func() {}
	}
	name, _, _ := strings.Cut(what, "?")
	file := filepath.Join(s.Plan.Profiles, s.Node+"-"+step+"-"+name+".pprof")
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := s.Agent.Profile(ctx, what, file); err != nil {
			s.Rig.Log("  %v", err)
		}
	}()
	return func() { <-done }
}
