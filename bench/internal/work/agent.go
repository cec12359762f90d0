package work

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/wherry-node/wherry/bench/internal/rig"
)

// Plan says how much to do.
type Plan struct {
	Sequence int           // pods one after another
	Pods     int           // pods at once
	Deaths   int           // containers to kill
	Rest     time.Duration // how long the pods are left alone
	Parallel int           // workers of the bare arm
	Volumes  int           // pods with 20 ConfigMap volumes, one after another
	Probes   []string      // kinds of probe that all pods have each second: exec, http, grpc
	Dense    int           // pods on a crowded node, in two halves; 0: not done
	Brief    bool          // skip blocks in some rounds whose results are steady or that take long
	Work     map[string]bool
	// Profiles is the directory for profiles of the agents while they work, or empty. It costs what profiling costs.
	Profiles string
}

// Samples are measured values by name; durations are in seconds, sizes in bytes.
type Samples map[string][]float64

func (s Samples) add(name string, v float64) { s[name] = append(s[name], v) }

func (s Samples) took(name string, d time.Duration) { s.add(name, d.Seconds()) }

// Session is one agent's turn at a block.
type Session struct {
	Rig     *rig.Rig
	Agent   *rig.Agent // nil: the limit's turn
	Node    string
	Plan    Plan
	Samples Samples
	// Calls and Requests are per minute of rest, Starts requests per start of a pod, Stops calls per deletion, by name.
	Calls, Requests, Starts, Stops map[string]float64

	watch *rig.Watch
	count *rig.Counter
	limit *Limit // instead of Agent
	CRI   *CRI
	round int
}

// block is a part of a round. All arms have their turn at one before the next begins: between what is compared lie seconds,
// not minutes in which the machine may have become another.
type block struct {
	name  string
	steps []step
}

// step is one kind of work. If it fails, that costs its own rows and those of the steps that go on with its pods.
type step struct {
	name  string
	needs string // another step, whose pods it goes on with
	do    func(*Session, context.Context) error
	brief int  // number of rounds with this block if Plan.Brief is set; 0: all
	limit bool // the arm "limit" does it, too
	alone bool // only the arm "bare CRI" does it: it has no agent in it
}

// blocks is the table of all there is to do; it is never changed.
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
	{"busy", []step{{name: "busy", do: (*Session).busy, brief: 3}}},
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

// Blocks returns the names of what a round consists of, for an agent or for the arms that do without one.
func (p *Plan) Blocks(round int, agent bool) (names []string) {
	for _, b := range blocks {
		if slices.ContainsFunc(b.steps, func(s step) bool { return p.wants(s, round) && (agent && !s.alone || !agent && (s.limit || s.alone)) }) {
			names = append(names, b.name)
		}
	}
	return names
}

func steps(name string) []step {
	for _, b := range blocks {
		if b.name == name {
			return b.steps
		}
	}
	return nil
}

// wants reports whether a step is to be done in a round. What many pods leave is always deleted.
func (p *Plan) wants(s step, round int) bool {
	if p.Brief && s.brief > 0 && round >= s.brief || s.name == "dense" && p.Dense == 0 {
		return false
	}
	return len(p.Work) == 0 || p.Work[s.name] || s.name == "delete" && p.Work["many"]
}

// Run does a block of the plan's work on an agent and leaves nothing of it. It goes on after a step that failed, and
// returns all that went wrong.
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
	what := "start to Ready, no pods"
	if block == blocks[0].name { // once in a round
		what = "first start to Ready"
		if err := s.Agent.Forget(); err != nil {
			return err
		}
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
			failed[step.needs] = true // its pods go now
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

// RunLimit does with a Limit what Run does with an agent, as far as it can.
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

// start starts the agent and waits until it has said that its node is Ready.
func (s *Session) start(ctx context.Context, socket string) (time.Duration, error) {
	if err := s.Agent.Start(socket); err != nil {
		return 0, err
	}
	return within(ctx, time.Minute, func(ctx context.Context) (time.Duration, error) { return s.Agent.AwaitReady(ctx, s.watch) })
}

// stop stops the agent. It may be started again after that: see Watch.NodeReady; the second must not be one in which the
// old agent said something.
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

// anew begins with nothing after a step that failed: no pod, an agent that has just started.
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

// pod returns a busybox that sleeps and does not end when asked to.
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

// clear removes every pod from the API and from the runtime. The agent must not run.
func (s *Session) clear(ctx context.Context) error {
	pods := s.Rig.Client.CoreV1().Pods(rig.Namespace)
	if err := pods.DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}, metav1.ListOptions{}); err != nil {
		return fmt.Errorf("delete all pods: %w", err)
	}
	_, err := within(ctx, 3*time.Minute, func(ctx context.Context) (struct{}, error) { return struct{}{}, s.CRI.Clear(ctx) })
	return err
}

// profile fetches a profile beside the work; the function that it returns waits for it. What goes wrong is said and no more.
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
