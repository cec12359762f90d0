package work

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/bench/internal/rig"
)

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
	if err := rig.Sleep(ctx, 10*time.Second); err != nil {
		return err
	}
	return s.memory("idle")
}

// one starts and deletes pods one after another.
func (s *Session) one(ctx context.Context) error {
	return s.sequence(ctx, "one", s.Plan.Sequence, "one pod, create to Ready", "one pod, delete to gone", nil)
}

// volumes starts and deletes pods one after another. Each has many ConfigMap volumes.
func (s *Session) volumes(ctx context.Context) error {
	return s.sequence(ctx, "volumes", s.Plan.Volumes, "20 ConfigMap volumes, create to Ready", "20 ConfigMap volumes, delete to gone", func(p *v1.Pod) {
		for i := range rig.ConfigMaps {
			name := rig.ConfigMap(i)
			p.Spec.Volumes = append(p.Spec.Volumes, v1.Volume{Name: name, VolumeSource: v1.VolumeSource{
				ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: v1.LocalObjectReference{Name: name}}}})
			p.Spec.Containers[0].VolumeMounts = append(p.Spec.Containers[0].VolumeMounts, v1.VolumeMount{Name: name, MountPath: "/config/" + name})
		}
	})
}

// sequence starts and deletes n pods one after another. start and end are the names of the samples; change changes the spec of each pod.
func (s *Session) sequence(ctx context.Context, prefix string, n int, start, end string, change func(*v1.Pod)) error {
	for i := range n {
		name := fmt.Sprintf("%s-%d-%d", prefix, s.round, i)
		began := time.Now()
		if err := s.create(ctx, name, change); err != nil {
			return err
		}
		ready, err := rig.Within(ctx, time.Minute, func(ctx context.Context) (map[string]time.Time, error) { return s.watch.Ready(ctx, []string{name}) })
		if err != nil {
			return err
		}
		s.Samples.took(start, ready[name].Sub(began))
		// During the pause the agent finishes its work for this pod, so that the work does not slow the next pod.
		if err := rig.Sleep(ctx, 300*time.Millisecond); err != nil {
			return err
		}
		began = time.Now()
		if err := s.delete(ctx, name); err != nil {
			return err
		}
		gone, err := rig.Within(ctx, time.Minute, func(ctx context.Context) (map[string]time.Time, error) { return s.watch.Gone(ctx, []string{name}) })
		if err != nil {
			return err
		}
		if end != "" {
			s.Samples.took(end, gone[name].Sub(began))
		}
	}
	return nil
}

func (s *Session) names() []string { return s.named("many", s.Plan.Pods) }

func (s *Session) named(prefix string, n int) []string {
	return names(fmt.Sprintf("%s-%d-", prefix, s.round), n)
}

// each calls f for all names, at most eight at a time. It returns when each call began, and the first error.
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

// atOnce creates pods, eight at a time, and waits until all are Ready.
func (s *Session) atOnce(ctx context.Context, names []string, what string, change func(*v1.Pod)) error {
	start := time.Now()
	began, err := each(names, func(n string) error { return s.create(ctx, n, change) })
	if err != nil {
		return err
	}
	ready, err := rig.Within(ctx, 5*time.Minute, func(ctx context.Context) (map[string]time.Time, error) { return s.watch.Ready(ctx, names) })
	if err == nil && what != "" {
		s.spread(what, start, began, ready)
	}
	return err
}

// allGone deletes pods, eight at a time, and waits until the API has none of them.
func (s *Session) allGone(ctx context.Context, names []string, what string) error {
	start := time.Now()
	began, err := each(names, func(n string) error { return s.delete(ctx, n) })
	if err != nil {
		return err
	}
	gone, err := rig.Within(ctx, 5*time.Minute, func(ctx context.Context) (map[string]time.Time, error) { return s.watch.Gone(ctx, names) })
	if err == nil {
		s.spread(what, start, began, gone)
	}
	return err
}

// many creates all pods of the plan at once, and measures times, requests and processor time.
func (s *Session) many(ctx context.Context) error {
	offset := s.Rig.AuditSize()
	used, err := meter(s.Rig, s.pid())
	if err != nil {
		return err
	}
	profiled := s.profile(ctx, "many", "profile?seconds=10")
	err = s.atOnce(ctx, s.names(), "pods at once, create to Ready", nil)
	profiled()
	if err != nil {
		return err
	}
	if err := rig.Sleep(ctx, time.Second); err != nil { // the agent may still send events and statuses that belong to the pod starts
		return err
	}
	if err := used(s.Samples, "CPU per pod start", s.Plan.Pods); err != nil || s.Agent == nil {
		return err
	}
	if err := rig.Sleep(ctx, 6*time.Second); err != nil {
		return err
	}
	if s.Starts, err = s.requestsPerPod(offset); err != nil {
		return err
	}
	s.profile(ctx, "many", "heap")()
	return s.memory("all pods")
}

// deleteMany deletes the pods that the step "many" created. It does not measure what an agent removes from the runtime later.
func (s *Session) deleteMany(ctx context.Context) error {
	if s.count != nil {
		s.count.Calls()
	}
	used, err := meter(s.Rig, s.pid())
	if err != nil {
		return err
	}
	if err := s.allGone(ctx, s.names(), "pods deleted, delete to gone"); err != nil {
		return err
	}
	if s.count != nil {
		s.Stops = map[string]float64{}
		sum := 0.0
		for k, n := range s.count.Calls() {
			s.Stops[k] = float64(n) / float64(s.Plan.Pods)
			sum += s.Stops[k]
		}
		s.Samples.add("CRI calls per pod deletion", sum)
	}
	return used(s.Samples, "CPU per pod deletion", s.Plan.Pods)
}

// pid returns the process ID of the agent; 0: there is none.
func (s *Session) pid() int {
	if s.Agent == nil {
		return 0
	}
	return s.Agent.PID()
}

// requestsPerPod returns how many requests per pod the agent has sent to the API server since an offset of the audit log.
func (s *Session) requestsPerPod(offset int64) (map[string]float64, error) {
	requests, err := s.Rig.Requests(s.Node, offset)
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

// spread adds samples of the time from began to ended of each pod, and of the time from start until the last pod ended.
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

// deaths kills containers' processes with SIGKILL, without the agent's knowledge. Before each kill it waits until the previously killed
// container runs again, and then for at least half a second.
func (s *Session) deaths(ctx context.Context) error {
	for i := range min(s.Plan.Deaths, s.Plan.Pods) {
		name := s.names()[i]
		id := s.watch.ContainerID(name)
		pid, err := s.CRI.PID(ctx, strings.TrimPrefix(id, "containerd://"))
		if err != nil {
			return err
		}
		// The pause varies, so that the kills do not coincide with a periodic loop of an agent.
		if err := rig.Sleep(ctx, time.Duration(500+37*i)*time.Millisecond); err != nil {
			return err
		}
		began := time.Now()
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			return fmt.Errorf("kill container of %s: %w", name, err)
		}
		at, err := rig.Within(ctx, 30*time.Second, func(ctx context.Context) (time.Time, error) { return s.watch.ContainerEnded(ctx, name, id) })
		if err != nil {
			return fmt.Errorf("wait for the end of %s in pod %s: %w", id, name, err)
		}
		if _, err := rig.Within(ctx, 30*time.Second, func(ctx context.Context) (struct{}, error) {
			return struct{}{}, s.watch.ContainerReplaced(ctx, name, id)
		}); err != nil {
			return fmt.Errorf("wait for what follows %s in pod %s: %w", id, name, err)
		}
		s.Samples.took("container death to API", at.Sub(began))
		if s.limit != nil {
			s.Samples.took("container death to the runtime's event", s.limit.Died(strings.TrimPrefix(id, "containerd://")).Sub(began))
		}
	}
	return rig.Sleep(ctx, time.Second)
}

// restart restarts the agent with a proxy that counts its CRI calls, and then measures the agent while it has no work.
func (s *Session) restart(ctx context.Context) error {
	if err := s.stop(ctx); err != nil {
		return err
	}
	count, err := s.Rig.Count()
	if err != nil {
		return err
	}
	s.count = count // the agent needs the proxy for as long as it runs
	events := s.watch.PodEvents()
	took, err := s.start(ctx, count.Socket)
	if err != nil {
		return err
	}
	s.Samples.took("restart with all pods, to Ready", took)
	if err := rig.Sleep(ctx, 10*time.Second); err != nil {
		return err
	}
	if err := s.Agent.Alive(); err != nil {
		return err
	}
	s.Samples.add("restart, changes of pods in the API", float64(s.watch.PodEvents()-events))
	return s.rest(ctx, count)
}

// cpu adds to the samples how much of a core the agent uses during the time d, in percent. It returns the real length of the measurement.
func (s *Session) cpu(ctx context.Context, name string, d time.Duration) (time.Duration, error) {
	before, err := rig.CPUOf(s.Agent.PID())
	if err != nil {
		return 0, err
	}
	began := time.Now()
	if err := rig.Sleep(ctx, d); err != nil {
		return 0, err
	}
	after, err := rig.CPUOf(s.Agent.PID())
	if err != nil {
		return 0, err
	}
	took := time.Since(began)
	s.Samples.add(name, 100*(after-before).Seconds()/took.Seconds())
	return took, nil
}

// rest measures the calls, requests and processor time of the agent while nothing happens.
func (s *Session) rest(ctx context.Context, count *rig.Counter) error {
	count.Calls()
	offset := s.Rig.AuditSize()
	profiled := s.profile(ctx, "rest", fmt.Sprintf("profile?seconds=%.0f", s.Plan.Rest.Seconds()))
	took, err := s.cpu(ctx, "CPU at rest, % of a core", s.Plan.Rest)
	profiled()
	if err != nil {
		return err
	}
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
	requests, err := s.Rig.Requests(s.Node, offset)
	if err != nil {
		return err
	}
	s.Requests, sum = perMinute(requests)
	s.Samples.add("API requests per minute at rest", sum)
	s.profile(ctx, "rest", "heap")()
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

// Lines formats counts as text, one line per name. The largest count is first.
func Lines(m map[string]float64) []string {
	keys := slices.SortedFunc(maps.Keys(m), func(a, b string) int { return cmp.Or(cmp.Compare(m[b], m[a]), strings.Compare(a, b)) })
	for i, k := range keys {
		keys[i] = strconv.FormatFloat(m[k], 'f', 1, 64) + " " + k
	}
	return keys
}
