package work

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"syscall"
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
	Work     map[string]bool
}

// Samples are measured values by name; durations are in seconds, sizes in bytes.
type Samples map[string][]float64

func (s Samples) add(name string, v float64) { s[name] = append(s[name], v) }

func (s Samples) took(name string, d time.Duration) { s.add(name, d.Seconds()) }

// Session is one agent's turn.
type Session struct {
	Rig     *rig.Rig
	Agent   *rig.Agent
	Plan    Plan
	Samples Samples
	// Calls and Requests are per minute of rest, Starts requests per start of a pod, by name.
	Calls, Requests, Starts map[string]float64

	watch *rig.Watch
	count *rig.Counter
	CRI   *CRI
	round int
}

// Run does all of the plan's work on an agent and leaves nothing of it.
func (s *Session) Run(ctx context.Context, round int) (err error) {
	s.round = round
	if s.watch, err = s.Rig.Watch(ctx); err != nil {
		return err
	}
	defer s.watch.Close()
	if err := s.Agent.Start(s.Rig.Socket); err != nil {
		return err
	}
	defer func() {
		s.Agent.Stop()
		if s.count != nil {
			s.count.Close()
		}
	}()
	took, err := within(ctx, time.Minute, func(ctx context.Context) (time.Duration, error) { return s.Agent.AwaitReady(ctx, s.watch) })
	if err != nil {
		return err
	}
	if round == 0 {
		s.Samples.took("first start to Ready", took)
	}
	for _, step := range []struct {
		name string
		do   func(context.Context) error
	}{
		{"idle", s.idle}, {"one", s.one}, {"many", s.many}, {"death", s.deaths}, {"restart", s.restart}, {"delete", s.deleteMany},
	} {
		if len(s.Plan.Work) > 0 && !s.Plan.Work[step.name] && (step.name != "delete" || !s.Plan.Work["many"]) {
			continue
		}
		if err := step.do(ctx); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
	}
	return nil
}

func within[T any](ctx context.Context, d time.Duration, f func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	return f(ctx)
}

// sleep waits while the agent is left alone.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

func (s *Session) memory(when string) error {
	m, err := rig.MemoryOf(s.Agent.PID())
	if err != nil {
		return err
	}
	s.Samples.add("RSS, "+when, float64(m.RSS))
	s.Samples.add("RSS anonymous, "+when, float64(m.Anon))
	s.Samples.add("RSS file, "+when, float64(m.File))
	return nil
}

func (s *Session) idle(ctx context.Context) error {
	if err := sleep(ctx, 10*time.Second); err != nil {
		return err
	}
	return s.memory("idle")
}

// one starts and deletes pods one after another.
func (s *Session) one(ctx context.Context) error {
	for i := range s.Plan.Sequence {
		name := fmt.Sprintf("one-%d-%d", s.round, i)
		began := time.Now()
		if err := s.create(ctx, name); err != nil {
			return err
		}
		ready, err := within(ctx, time.Minute, func(ctx context.Context) (map[string]time.Time, error) { return s.watch.Ready(ctx, []string{name}) })
		if err != nil {
			return err
		}
		s.Samples.took("one pod, create to Ready", ready[name].Sub(began))
		// The next is no better off for what this one still does.
		if err := sleep(ctx, 300*time.Millisecond); err != nil {
			return err
		}
		began = time.Now()
		if err := s.delete(ctx, name); err != nil {
			return err
		}
		gone, err := within(ctx, time.Minute, func(ctx context.Context) (map[string]time.Time, error) { return s.watch.Gone(ctx, []string{name}) })
		if err != nil {
			return err
		}
		s.Samples.took("one pod, delete to gone", gone[name].Sub(began))
	}
	return nil
}

func (s *Session) names() []string {
	out := make([]string, s.Plan.Pods)
	for i := range out {
		out[i] = fmt.Sprintf("many-%d-%d", s.round, i)
	}
	return out
}

// each does f for all names, eight at a time, and returns when each was begun.
func each(names []string, f func(string) error) (map[string]time.Time, error) {
	began := make(map[string]time.Time, len(names))
	type done struct {
		name string
		at   time.Time
		err  error
	}
	results, places := make(chan done), make(chan struct{}, 8)
	for _, n := range names {
		go func() {
			places <- struct{}{}
			at := time.Now()
			err := f(n)
			<-places
			results <- done{n, at, err}
		}()
	}
	var first error
	for range names {
		d := <-results
		began[d.name] = d.at
		if first == nil {
			first = d.err
		}
	}
	return began, first
}

// many binds all pods at once.
func (s *Session) many(ctx context.Context) error {
	names, offset := s.names(), s.Rig.AuditSize()
	start := time.Now()
	began, err := each(names, func(n string) error { return s.create(ctx, n) })
	if err != nil {
		return err
	}
	ready, err := within(ctx, 5*time.Minute, func(ctx context.Context) (map[string]time.Time, error) { return s.watch.Ready(ctx, names) })
	if err != nil {
		return err
	}
	s.spread("pods at once, create to Ready", start, began, ready)
	if err := sleep(ctx, 10*time.Second); err != nil {
		return err
	}
	if s.Starts, err = s.requestsPerPod(offset); err != nil {
		return err
	}
	return s.memory("all pods")
}

// requestsPerPod is what the agent asked of the API server since an offset of the audit log.
func (s *Session) requestsPerPod(offset int64) (map[string]float64, error) {
	requests, err := s.Rig.Requests(s.Agent.Node, offset)
	if err != nil {
		return nil, err
	}
	out, sum := map[string]float64{}, 0.0
	for k, n := range requests {
		out[k] = float64(n) / float64(s.Plan.Pods)
		sum += out[k]
	}
	s.Samples.add("API requests per pod start", sum)
	return out, nil
}

// spread adds the total and, pod by pod, the times between two moments.
func (s *Session) spread(name string, start time.Time, began, ended map[string]time.Time) {
	last := start
	for n, at := range ended {
		s.Samples.took(name+", each", at.Sub(began[n]))
		if at.After(last) {
			last = at
		}
	}
	s.Samples.took(name+", total", last.Sub(start))
}

func (s *Session) deleteMany(ctx context.Context) error {
	names := s.names()
	start := time.Now()
	began, err := each(names, func(n string) error { return s.delete(ctx, n) })
	if err != nil {
		return err
	}
	gone, err := within(ctx, 5*time.Minute, func(ctx context.Context) (map[string]time.Time, error) { return s.watch.Gone(ctx, names) })
	if err != nil {
		return err
	}
	s.spread("pods deleted, delete to gone", start, began, gone)
	return nil
}

// deaths kills containers behind everybody's back.
func (s *Session) deaths(ctx context.Context) error {
	for i := range min(s.Plan.Deaths, s.Plan.Pods) {
		name := s.names()[i]
		id := s.watch.ContainerID(name)
		pid, err := s.CRI.PID(ctx, strings.TrimPrefix(id, "containerd://"))
		if err != nil {
			return err
		}
		// Not in step with anybody's ticker.
		if err := sleep(ctx, time.Duration(200+37*i)*time.Millisecond); err != nil {
			return err
		}
		began := time.Now()
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			return fmt.Errorf("kill container of %s: %w", name, err)
		}
		at, err := within(ctx, 30*time.Second, func(ctx context.Context) (time.Time, error) { return s.watch.ContainerEnded(ctx, name, id) })
		if err != nil {
			return fmt.Errorf("wait for the end of %s in pod %s: %w", id, name, err)
		}
		s.Samples.took("container death to API", at.Sub(began))
	}
	return sleep(ctx, 5*time.Second) // all are up again
}

// restart ends the agent, starts it again, this time over a counting proxy, and leaves it alone for a while.
func (s *Session) restart(ctx context.Context) error {
	s.Agent.Stop()
	count, err := s.Rig.Count()
	if err != nil {
		return err
	}
	s.count = count // the agent needs it as long as it runs
	// See Watch.NodeReady; and the second must not be one in which the old agent said something.
	if err := sleep(ctx, 1100*time.Millisecond); err != nil {
		return err
	}
	events := s.watch.PodEvents()
	if err := s.Agent.Start(count.Socket); err != nil {
		return err
	}
	took, err := within(ctx, time.Minute, func(ctx context.Context) (time.Duration, error) { return s.Agent.AwaitReady(ctx, s.watch) })
	if err != nil {
		return err
	}
	s.Samples.took("restart with all pods, to Ready", took)
	if err := sleep(ctx, 15*time.Second); err != nil {
		return err
	}
	if err := s.Agent.Alive(); err != nil {
		return err
	}
	s.Samples.add("restart, changes of pods in the API", float64(s.watch.PodEvents()-events))
	return s.rest(ctx, count)
}

// rest measures the agent while nothing happens.
func (s *Session) rest(ctx context.Context, count *rig.Counter) error {
	count.Calls()
	offset := s.Rig.AuditSize()
	before, err := rig.CPUOf(s.Agent.PID())
	if err != nil {
		return err
	}
	began := time.Now()
	if err := sleep(ctx, s.Plan.Rest); err != nil {
		return err
	}
	after, err := rig.CPUOf(s.Agent.PID())
	if err != nil {
		return err
	}
	took := time.Since(began)
	s.Samples.add("CPU at rest, % of a core", 100*(after-before).Seconds()/took.Seconds())
	perMinute := func(m map[string]int) (map[string]float64, float64) {
		out, sum := map[string]float64{}, 0.0
		for k, n := range m {
			out[k] = float64(n) / took.Minutes()
			sum += out[k]
		}
		return out, sum
	}
	var sum float64
	s.Calls, sum = perMinute(count.Calls())
	s.Samples.add("CRI calls per minute at rest", sum)
	requests, err := s.Rig.Requests(s.Agent.Node, offset)
	if err != nil {
		return err
	}
	s.Requests, sum = perMinute(requests)
	s.Samples.add("API requests per minute at rest", sum)
	if err := s.memory("all pods, after a restart"); err != nil {
		return err
	}
	for _, m := range []string{"go_goroutines", "go_memstats_heap_inuse_bytes"} {
		v, err := s.Agent.Metric(ctx, m)
		if err != nil {
			return err
		}
		s.Samples.add(m, v)
	}
	return nil
}

// pod is a busybox that sleeps and does not end when asked to.
func (s *Session) pod(name string) *v1.Pod {
	grace, no := int64(1), false
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: rig.Namespace},
		Spec: v1.PodSpec{
			NodeName: s.Agent.Node, TerminationGracePeriodSeconds: &grace, EnableServiceLinks: &no,
			Containers: []v1.Container{{
				Name: "sleep", Image: image, ImagePullPolicy: v1.PullIfNotPresent, Command: command,
			}},
		},
	}
}

func (s *Session) create(ctx context.Context, name string) error {
	if _, err := s.Rig.Client.CoreV1().Pods(rig.Namespace).Create(ctx, s.pod(name), metav1.CreateOptions{}); err != nil {
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

// Lines prints a count per minute, most first.
func Lines(m map[string]float64) []string {
	keys := slices.SortedFunc(maps.Keys(m), func(a, b string) int {
		if m[a] != m[b] {
			return int(m[b]*10) - int(m[a]*10)
		}
		return strings.Compare(a, b)
	})
	for i, k := range keys {
		keys[i] = strconv.FormatFloat(m[k], 'f', 1, 64) + " " + k
	}
	return keys
}
