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

// Plan says how much work a round has.
type Plan struct {
	Sequence int           // number of pods that start one after another
	Pods     int           // number of pods that start at once
	Deaths   int           // number of containers to kill
	Rest     time.Duration // how long the agent is measured at rest
	Parallel int           // number of workers that start pods in the arms "bare CRI" and "limit"
	Volumes  int           // number of pods with 20 ConfigMap volumes, one after another
	Probes   []string      // kinds of probes that run in all pods each second: exec, http, grpc
	Dense    int           // number of pods on a crowded node, started in two halves; 0: skip
	Brief    bool          // in some rounds, leave out the blocks that take long or whose results hardly vary
	Work     map[string]bool
	// Profiles is the directory for profiles of the agents while they work; "": no profiles. Profiling slows the agents down.
	Profiles string
}

// Samples are measured values by name; durations are in seconds, sizes in bytes.
type Samples map[string][]float64

func (s Samples) add(name string, v float64) { s[name] = append(s[name], v) }

func (s Samples) took(name string, d time.Duration) { s.add(name, d.Seconds()) }

// Session is one agent's run of a block.
type Session struct {
	Rig     *rig.Rig
	Agent   *rig.Agent // nil in the arm "limit", which uses the field limit instead
	Node    string
	Plan    Plan
	Samples Samples
	// These are counts by name. At rest: Calls is CRI calls per minute, Requests is API requests per minute. Starts is API requests per
	// start of a pod, Stops is CRI calls per deletion of a pod.
	Calls, Requests, Starts, Stops map[string]float64

	watch *rig.Watch
	count *rig.Counter
	limit *Limit // nil in the arms with an agent
	CRI   *CRI
	round int
}

// block is a part of a round. All arms run a block before the next block begins, so that the compared measurements are only
// seconds apart, and the state of the machine hardly changes in between.
type block struct {
	name  string
	steps []step
}

// step is one kind of work. If it fails, its own rows are missing, and those of the steps that continue with its pods.
type step struct {
	name  string
	needs string // another step, with whose pods it continues
	do    func(*Session, context.Context) error
	brief int  // number of rounds with this block if Plan.Brief is set; 0: all
	limit bool // the arm "limit" runs this step too
	alone bool // only the arm "bare CRI" runs this step, because it has no agent in it
}

// blocks is the table of all work; it is never changed.
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
	{"probes", []step{{name: "probes", do: (*Session).probes, brief: 3}}},
	{"exec", []step{{name: "exec", brief: 1, alone: true}}},
	{"dense", []step{{name: "dense", do: (*Session).crowd, brief: 1}}},
}

// Blocks returns the names of the blocks of a round, for an agent or for the arms without one.
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

// Check returns an error if the plan names work or kinds of probes that do not exist, or work without the work that it continues.
func (p *Plan) Check() error {
	known := map[string]string{} // what each step needs, by its name
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

// wants reports whether a round has a step. The step that deletes the pods of many is always wanted.
func (p *Plan) wants(s step, round int) bool {
	if p.Brief && s.brief > 0 && round >= s.brief || s.name == "dense" && p.Dense == 0 {
		return false
	}
	return len(p.Work) == 0 || p.Work[s.name] || s.name == "delete" && p.Work["many"]
}

// Run runs a block of the plan with an agent and removes everything afterwards. It continues after a failed step, and returns all
// errors.
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
	if block == blocks[0].name { // once per round
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
			failed[step.needs] = true // because its pods are deleted now
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

// RunLimit does the same as Run with a Limit in place of an agent, for the steps that a Limit can do.
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

// start starts the agent and waits until it has reported its node as Ready.
func (s *Session) start(ctx context.Context, socket string) (time.Duration, error) {
	if err := s.Agent.Start(socket); err != nil {
		return 0, err
	}
	return within(ctx, time.Minute, func(ctx context.Context) (time.Duration, error) { return s.Agent.AwaitReady(ctx, s.watch) })
}

// stop stops the agent. It returns in a later second than that of the agent's last report, so that the agent may be started again
// at once: see Watch.NodeReady.
func (s *Session) stop(ctx context.Context) error {
	s.Agent.Stop()
	s.endCount()
	return sleep(ctx, 1100*time.Millisecond)
}

func (s *Session) endCount() {
	if s.count != nil {
		s.count.Close()
		s.count = nil
	}
}

// anew restores a clean state, after a failed step or after work that leaves pods behind: no pods, and an agent that has just started.
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

// pod returns a pod with busybox that sleeps and ignores SIGTERM.
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

// deleteNow deletes a pod with a grace period of 0.
func (s *Session) deleteNow(ctx context.Context, name string) error {
	if err := s.Rig.Client.CoreV1().Pods(rig.Namespace).Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}); err != nil {
		return fmt.Errorf("delete pod %s by force: %w", name, err)
	}
	return nil
}

// clear removes every pod from the API and from the runtime. The agent must not run.
func (s *Session) clear(ctx context.Context) error {
	pods := s.Rig.Client.CoreV1().Pods(rig.Namespace)
	if err := pods.DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}, metav1.ListOptions{}); err != nil {
		return fmt.Errorf("delete all pods: %w", err)
	}
	_, err := within(ctx, 3*time.Minute, func(ctx context.Context) (struct{}, error) { return struct{}{}, s.CRI.Clear(ctx) })
	return err
}

// profile fetches a profile during the work; wait waits for it. Errors are only logged.
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
