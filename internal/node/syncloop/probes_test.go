package syncloop

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/wherry-node/wherry/internal/core/decide"
	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/edge/probe"
)

// A container without probes counts as started only once its postStart hook is done, because otherwise the hook would never run.
// If the memory was lost, the started state in the API counts, if it belongs to the same container instance.
func TestPostStartComesBeforeStarted(t *testing.T) {
	t.Parallel()
	const id = "abc"
	hook := &v1.Lifecycle{PostStart: &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{"true"}}}}
	reported := func(id string) []v1.ContainerStatus {
		return []v1.ContainerStatus{{Name: "main", ContainerID: "containerd://" + id, Started: new(true)}}
	}
	for name, c := range map[string]struct {
		lifecycle *v1.Lifecycle
		status    []v1.ContainerStatus
		memory    decide.ContainerLearned
		said      decide.ProbeResults
		want      bool
	}{
		"no hook":                               {want: true},
		"hook to run":                           {lifecycle: hook, said: decide.ProbeResults{{Name: "main", ID: id}}},
		"hook to run, nothing remembered":       {lifecycle: hook},
		"hook done":                             {lifecycle: hook, memory: decide.ContainerLearned{PostStartedID: id}, want: true},
		"hook failed":                           {lifecycle: hook, memory: decide.ContainerLearned{PostStartedID: id, PostStartFailed: true}},
		"hook of the instance before done":      {lifecycle: hook, memory: decide.ContainerLearned{PostStartedID: "before"}},
		"memory lost, reported as started":      {lifecycle: hook, status: reported(id), want: true},
		"memory lost, another instance started": {lifecycle: hook, status: reported("before")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u"}, Status: v1.PodStatus{ContainerStatuses: c.status},
				Spec: v1.PodSpec{Containers: []v1.Container{{Name: "main", Lifecycle: c.lifecycle}}}}
			obs := &pod.Observed{Containers: []pod.Container{{Name: "main", ID: id, State: pod.StateRunning, StartedAt: time.Now()}}}
			var m decide.Memory
			m.Ensure("main").ContainerLearned = c.memory
			(&Probes{Probes: probe.New(probe.Config{}), HostIPs: func() []string { return nil }}).Sync(p, obs, &m, &c.said)
			if got := c.said.Of(&obs.Containers[0]).Started; got != c.want {
				t.Errorf("started = %v, want %v", got, c.want)
			}
		})
	}
}

// A probe goes to the address that the API shows as the pod's, although the runtime reports that of the other family first.
func TestProbesGoToThePodIP(t *testing.T) {
	t.Parallel()
	s := &Probes{HostIPs: func() []string { return []string{"2001:db8::1", "192.0.2.1"} }}
	obs := &pod.Observed{Sandboxes: []pod.Sandbox{{ID: "s", Ready: true, IPs: []string{"10.0.0.1", "fd00::1"}}}}
	for want, p := range map[string]*v1.Pod{"fd00::1": {}, "2001:db8::1": {Spec: v1.PodSpec{HostNetwork: true}}} {
		if got := s.host(p, obs); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	if got := s.host(&v1.Pod{}, &pod.Observed{}); got != "" {
		t.Errorf("%s for a pod without a sandbox", got)
	}
}

// While the node has no address, because its network is not up yet or nobody has measured the node, a pod in the node's network is probed at loopback. No
// turn of the pod follows when the address becomes known, so a probe that waits for it would wait for long.
func TestProbesOfAHostPodNeedNoAddressOfTheNode(t *testing.T) {
	t.Parallel()
	s := &Probes{HostIPs: func() []string { return nil }}
	obs := &pod.Observed{Sandboxes: []pod.Sandbox{{ID: "s", Ready: true}}}
	for want, p := range map[string]*v1.Pod{"": {}, "127.0.0.1": {Spec: v1.PodSpec{HostNetwork: true}}} {
		if got := s.host(p, obs); got != want {
			t.Errorf("host network %t: %q, want %q", p.Spec.HostNetwork, got, want)
		}
	}
}

// succeeds runs every command with success, and counts them.
type succeeds struct{ ran atomic.Int32 }

func (s *succeeds) ExecSync(context.Context, string, []string, time.Duration) (stdout, stderr []byte, code int32, err error) {
	s.ran.Add(1)
	return nil, nil, 0, nil
}

// An agent that is restarted while it stops a container for a failed probe continues the stop. It does not ask the startup and liveness
// probes again. If the startup probe succeeded meanwhile, a container that has had its SIGTERM would be shown as started and ready. A
// container that is stopped for another cause is still asked.
func TestNoProbeOfAContainerThatFailedOne(t *testing.T) {
	t.Parallel()
	asks := &v1.Probe{PeriodSeconds: 1, ProbeHandler: v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"true"}}}}
	for _, c := range []struct {
		cause pod.Cause
		spec  v1.Container
		asked bool
	}{
		{pod.CauseStartup, v1.Container{Name: "main", StartupProbe: asks}, false},
		{pod.CauseLiveness, v1.Container{Name: "main", LivenessProbe: asks}, false},
		{pod.CauseChanged, v1.Container{Name: "main", StartupProbe: asks}, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, stop := context.WithCancel(t.Context())
			var exec succeeds
			probes := probe.New(probe.Config{Exec: &exec})
			join := probes.Begin(ctx)
			defer join()
			defer stop()
			p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u"}, Spec: v1.PodSpec{Containers: []v1.Container{c.spec}}}
			obs := &pod.Observed{Containers: []pod.Container{{Name: "main", ID: "abc", State: pod.StateRunning, StartedAt: time.Now()}}}
			m := decide.Memory{Ends: decide.Ends{{Name: "main", ID: "abc", Cause: c.cause, Began: time.Now(), Grace: time.Minute}}}
			s, results := &Probes{Probes: probes, HostIPs: func() []string { return nil }}, decide.ProbeResults{}
			s.Sync(p, obs, &m, &results)
			time.Sleep(5 * time.Second)
			s.Sync(p, obs, &m, &results)
			got, started := results.Of(&obs.Containers[0]), c.asked || c.spec.StartupProbe == nil
			if asked := exec.ran.Load() > 0; asked != c.asked || got.Started != started || got.Ready != started {
				t.Errorf("stopped for %s: asked %t, %+v; want asked %t, started and ready %t", c.cause, asked, got, c.asked, started)
			}
		})
	}
}
