package agent

import (
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/internal/core/inorder"
	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/core/timeline"
	"github.com/wherry-node/wherry/internal/edge/cgroup"
	"github.com/wherry-node/wherry/internal/edge/heartbeat"
	"github.com/wherry-node/wherry/internal/edge/stats"
)

// tally counts the pods of the node for the metrics.
func (a *Agent) tally() stats.Tally {
	t := stats.Tally{Desired: map[bool]int{}, Active: map[bool]int{}, Working: map[stats.Working]int{}, Pending: map[string]int{}}
	if !a.built.Load() {
		return t
	}
	desired := map[string]bool{}
	pods := a.pods.List()
	for _, p := range pods {
		desired[string(p.UID)] = true
		t.Desired[pod.IsStatic(p)]++
		t.Ephemeral += len(p.Spec.EphemeralContainers)
	}
	ended := map[string]bool{}
	for _, w := range a.loop.Census() {
		uid := string(w.UID)
		ended[uid] = w.Ended
		state := stats.Working{Lifecycle: "sync", Config: "desired"}
		switch {
		case w.Ended:
			state.Lifecycle = "terminated"
		case w.Ends:
			state.Lifecycle = "terminating"
		}
		if w.Static {
			state.Static = "true"
		}
		switch {
		case desired[uid]:
		case w.Sourced || w.Static:
			state.Config = "orphan"
		default:
			state.Config, state.Static = "runtime_only", "unknown"
		}
		t.Working[state]++
		if w.Pending != "" {
			t.Pending[strings.ToLower(w.Pending)]++
		}
		if w.Resizing {
			t.InProgress++
		}
	}
	for _, p := range pods {
		if over := p.Status.Phase == v1.PodSucceeded || p.Status.Phase == v1.PodFailed; !over && !ended[string(p.UID)] {
			t.Active[pod.IsStatic(p)]++
		}
	}
	t.Mirrors = a.pods.Mirrors()
	return t
}

// podStarted adds the start of a pod to the metrics. took is the time since the agent first saw the pod. For pods from the API, other
// metrics also count the time since the creation of the pod.
func (a *Agent) podStarted(p *v1.Pod, status *v1.PodStatus, took time.Duration) {
	a.metrics.PodStarted(took)
	a.tracer.Load().Started(p.UID)
	if p.CreationTimestamp.IsZero() {
		return
	}
	records, _, _ := a.timelineOf(p.UID)
	waits := pullTime(records)
	for i := range status.InitContainerStatuses {
		if end := status.InitContainerStatuses[i].State.Terminated; end != nil {
			waits += end.FinishedAt.Sub(end.StartedAt.Time)
		}
	}
	a.metrics.PodReady(time.Since(p.CreationTimestamp.Time), waits, stateful(p), !p.Spec.HostNetwork)
}

// pullTime returns for how long at least one image of the pod was being pulled. The time of pulls that overlap is counted once.
func pullTime(records []timeline.Record) time.Duration {
	type span struct{ from, to time.Time }
	var pulls []span
	for i := range records {
		if r := &records[i]; r.Kind == timeline.KindEnded && strings.HasPrefix(r.What, pod.OpPullImage.String()) {
			pulls = append(pulls, span{r.At.Add(-r.Took), r.At})
		}
	}
	inorder.Sort(pulls, func(a, b span) int { return a.from.Compare(b.from) })
	var sum time.Duration
	var counted time.Time // sum contains the time of all pulls before this time
	for _, p := range pulls {
		if p.from.Before(counted) {
			p.from = counted
		}
		if p.to.After(p.from) {
			sum += p.to.Sub(p.from)
			counted = p.to
		}
	}
	return sum
}

// stateful reports whether a pod has a volume that outlives the pod. The goal of Kubernetes for the start time of pods (its SLO) excludes
// such pods.
func stateful(p *v1.Pod) bool {
	for i := range p.Spec.Volumes {
		if v := &p.Spec.Volumes[i]; v.Secret == nil && v.ConfigMap == nil && v.DownwardAPI == nil && v.EmptyDir == nil && v.Projected == nil {
			return true
		}
	}
	return false
}

// startup keeps the times of the node's start. It is safe for concurrent use.
type startup struct {
	mu    sync.Mutex
	times stats.Startup
}

// reached records when the Node first reached a stage.
func (s *startup) reached(stage heartbeat.Stage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := &s.times.Attempt
	switch stage {
	case heartbeat.StageAttempt:
	case heartbeat.StageRegistered:
		at = &s.times.Registered
	case heartbeat.StageReady:
		at = &s.times.Ready
	}
	if at.IsZero() {
		*at = time.Now()
	}
}

// startupTimes returns a function with the times of the node's start.
func (a *Agent) startupTimes() func() stats.Startup {
	machine := a.statsMachine()
	return func() stats.Startup {
		a.startup.mu.Lock()
		t := a.startup.times
		a.startup.mu.Unlock()
		t.Began = a.born
		if a.deps.Machine.real { // a simulated machine does not boot before its agent
			t.Boot = machine().BootTime
		}
		return t
	}
}

// memoryKept returns how many bytes the kernel keeps for guaranteed and for burstable pods; 0 on cgroup v1.
func (a *Agent) memoryKept() (guaranteed, burstable int64) {
	if !a.built.Load() {
		return 0, 0
	}
	if groups, ok := a.platform.cgroups.(*cgroup.Cgroups); ok {
		return groups.MemoryKept()
	}
	return 0, 0
}

// cgroupVersion returns the version of the machine's control groups; 0: not known.
func (a *Agent) cgroupVersion() int {
	if !a.built.Load() {
		return 0
	}
	groups, ok := a.platform.cgroups.(*cgroup.Cgroups)
	if !ok {
		return 0
	}
	switch v2, err := groups.V2(); {
	case err != nil:
		return 0
	case v2:
		return 2
	}
	return 1
}
