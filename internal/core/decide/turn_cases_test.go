package decide_test

import (
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/wherry-node/wherry/internal/core/decide"
	"github.com/wherry-node/wherry/internal/core/pod"
)

// endTurns returns the cases of pods that end, or will end.
func endTurns() []turnCase {
	app := container("app")
	deadline := func(name string, start time.Time, reported *metav1.Time, ads int64) turnCase {
		return turnCase{"deadline: " + name, []v1.Container{app}, func(m *moment) {
			m.Memory.StartTime, m.Pod.Status.StartTime, m.Pod.Spec.ActiveDeadlineSeconds = start, reported, &ads
		}}
	}
	at := func(d time.Duration) *metav1.Time { return new(metav1.NewTime(now.Add(d))) }
	static := func(name string, start time.Time, reported *metav1.Time) turnCase {
		c := deadline("of a static pod: "+name, start, reported, 90)
		change := c.change
		c.change = func(m *moment) {
			change(m)
			m.Pod.Annotations = map[string]string{pod.AnnotationSource: pod.SourceFile.String()}
		}
		return c
	}
	excess := func(name string, stopped bool, phase v1.PodPhase, id string) turnCase {
		return turnCase{"excess: the newest attempt " + name, []v1.Container{app, container("job")}, func(m *moment) {
			m.exited("app", 1)
			m.c("app").FinishedAt = epoch
			m.Pod.Status.Phase, m.Node.Excess = phase, []string{id}
			if stopped {
				m.without("job")
				m.Pod.DeletionTimestamp, m.Memory.TornDown = at(0), true
				m.Observed.Sandboxes[0].Ready, m.Memory.StoppedSandboxes = false, []string{"sb0"}
			}
		}}
	}
	byNode := func(name string, change func(*moment)) turnCase {
		c := excess("of a pod that the node has ended, and the API does not know it"+name, true, v1.PodRunning, "app-0")
		ended := c.change
		c.change = func(m *moment) {
			ended(m)
			m.Pod.DeletionTimestamp, m.Memory.Stop = nil, &decide.Stop{Reason: "Evicted"}
			change(m)
		}
		return c
	}
	reject := func(m *moment) {
		m.Memory.SetUp, m.Memory.Stop = false, &decide.Stop{Reason: "OutOfcpu", Rejected: true}
		m.Observed.Sandboxes, m.Observed.Containers = nil, nil
	}
	return []turnCase{
		deadline("from its start", now.Add(-time.Minute), nil, 90),
		deadline("nobody knows when it began", time.Time{}, nil, 90),
		deadline("only the API knows when it began", time.Time{}, at(-time.Minute), 90),
		deadline("the API knows better when it began", now.Add(-time.Second), at(-time.Minute), 90),
		deadline("the API does not know better when it began", now.Add(-time.Minute), at(-time.Second), 90),
		deadline("it is over", now.Add(-time.Minute), nil, 60),
		static("from its start, not from its mirror's", now.Add(-time.Minute), at(-time.Hour)),
		static("it is over, whatever its mirror says", now.Add(-time.Hour), at(-time.Minute)),
		static("only its mirror knows when it began", time.Time{}, at(-time.Minute)),
		{"an end whose reason is gone goes on", []v1.Container{app}, func(m *moment) {
			m.Memory.StopBegan, m.Memory.StopGrace = now.Add(-time.Second), 10*time.Second
		}},
		{"an end goes on with an old inspection", []v1.Container{app}, func(m *moment) {
			m.Pod, m.Stale, m.Memory.StopBegan, m.Memory.StopGrace = nil, true, now.Add(-time.Second), 10*time.Second
		}},
		{"nothing is left to end", []v1.Container{app}, func(m *moment) {
			m.exited("app", 0)
			m.Pod.DeletionTimestamp, m.Memory.TornDown = at(0), true
			m.Observed.Sandboxes[0].Ready, m.Memory.StoppedSandboxes = false, []string{"sb0"}
		}},
		{"a pod that no source has gets the default where its containers say nothing", []v1.Container{app}, func(m *moment) { m.Pod = nil }},
		{"a pod that no source has gets the longest that its containers say", []v1.Container{app, container("job")}, func(m *moment) {
			m.Pod, m.c("app").Grace, m.c("job").Grace = nil, time.Second, 5*time.Second
		}},
		{"a pod that no source has gets what its source said last", []v1.Container{app}, func(m *moment) { m.Pod, m.LastGrace = nil, new(int64(7)) }},
		{"a stopped pod keeps no older attempts than it may", []v1.Container{app}, func(m *moment) {
			m.instances("app", pod.StateExited, pod.StateExited, pod.StateExited)
			m.Pod.DeletionTimestamp, m.Memory.TornDown = at(0), true
			m.Observed.Sandboxes[0].Ready, m.Memory.StoppedSandboxes = false, []string{"sb0"}
		}},
		excess("of a pod that has ended, as the API knows", true, v1.PodFailed, "app-0"),
		excess("of a pod that has ended, and the API does not know it", true, v1.PodRunning, "app-0"),
		byNode("", func(*moment) {}),
		byNode("; it is static", func(m *moment) { m.Pod.Annotations = map[string]string{pod.AnnotationSource: pod.SourceFile.String()} }),
		byNode("; it is not torn down", func(m *moment) { m.Memory.TornDown = false }),
		excess("of a pod that has ended, and the node has room for it", true, v1.PodFailed, "other"),
		excess("of a pod that goes on", false, v1.PodRunning, "app-0"),
		{"a sidecar of a pod that has an object waits by its spec", []v1.Container{sidecar("side"), app}, func(m *moment) {
			m.Pod.DeletionTimestamp = at(0)
			m.cm("side").Kind, m.cm("side").Place = pod.KindMain, 0
		}},
		{"a pod that no source has, and no time", []v1.Container{app}, func(m *moment) { m.Pod, m.c("app").Grace = nil, 0 }},
		{"a rejected pod of which there is nothing", []v1.Container{app}, reject},
		{"a rejected pod that has a sandbox", []v1.Container{app}, func(m *moment) {
			reject(m)
			m.Observed.Sandboxes, m.Memory.StoppedSandboxes = []pod.Sandbox{{ID: "sb0"}}, []string{"sb0"}
		}},
		{"an evicted pod of which there is nothing", []v1.Container{app}, func(m *moment) {
			reject(m)
			m.Memory.Stop.Rejected = false
		}},
	}
}

// resizeTurns returns the cases in which the resources of a container, or of the pod's cgroup, differ from those that it should have.
func resizeTurns() []turnCase {
	app, job := container("app", sizes("2")), container("job", sizes("2"))
	size := func(n int64) pod.Size {
		return pod.Size{CPURequest: n * 1000, CPULimit: n * 1000, MemoryRequest: n << 30, MemoryLimit: n << 30}
	}
	has := func(m *moment, name string, n int64) { // has sets the size of a container to n, in the memory and in the runtime
		m.cm(name).Size, m.c(name).Actual = size(n), size(n)
	}
	group := func(m *moment, n int64) { m.Memory.GroupSize = size(n) }
	row := func(name string, containers []v1.Container, change func(*moment)) turnCase {
		return turnCase{"resize: " + name, containers, func(m *moment) {
			m.Memory.Resize.InProgress = true
			change(m)
		}}
	}
	one, both := []v1.Container{app}, []v1.Container{app, job}
	plain := []v1.Container{container("app")}
	policy := func(name v1.ResourceName, p v1.ResourceResizeRestartPolicy) func(*v1.Container) {
		return func(c *v1.Container) {
			c.ResizePolicy = append(c.ResizePolicy, v1.ContainerResizePolicy{ResourceName: name, RestartPolicy: p})
		}
	}
	restarts := func(name string, c v1.Container, change func(*pod.Size)) turnCase {
		return row("restarts: "+name, []v1.Container{c}, func(m *moment) {
			group(m, 7)
			change(&m.cm("app").Size)
		})
	}
	cpu := with(app, policy(v1.ResourceMemory, v1.NotRequired), policy(v1.ResourceCPU, v1.RestartContainer))
	memory := with(app, policy(v1.ResourceCPU, v1.NotRequired), policy(v1.ResourceMemory, v1.RestartContainer))
	neither := with(app, policy(v1.ResourceCPU, v1.NotRequired), policy(v1.ResourceMemory, v1.NotRequired))
	return []turnCase{
		{"resize: nothing was asked for, whatever the runtime says", plain, func(m *moment) { m.c("app").Actual = size(1); m.cm("app").SizedID = "" }},
		{"resize: nobody asked, and it has another size", one, func(m *moment) { has(m, "app", 3); m.Memory.GroupSize = pod.Size{} }},
		{"resize: all is done, and nothing was in progress", one, nil},
		row("all is done", one, func(*moment) {}),
		row("nothing is asked for any more", plain, func(*moment) {}),
		row("nothing is asked for any more, and the group has something", plain, func(m *moment) { m.Memory.Resize.InProgress = false; group(m, 1) }),
		row("nothing is known of the group, which is set up", one, func(m *moment) { m.Memory.GroupSized, m.Memory.GroupSize = false, pod.Size{} }),
		row("nothing is known of the group, which is to be set up", one, func(m *moment) {
			m.Memory.GroupSized, m.Memory.GroupSize, m.Memory.SetUp = false, pod.Size{}, false
		}),
		row("the group is known, and is to be set up", one, func(m *moment) {
			m.Memory.SetUp = false
			m.inFlight(pod.Action{Op: pod.OpSetUp, Size: size(2)})
		}),
		row("all is done, as an old inspection shows", one, func(m *moment) { m.Stale = true }),
		row("the group is being resized", one, func(m *moment) { m.inFlight(pod.Action{Op: pod.OpResize, Size: size(2)}) }),
		row("the group was set up, volumes were not", one, func(m *moment) { m.Memory.SetUp = false }),
		row("a set-up does not shrink what containers live in", one, func(m *moment) { m.Memory.SetUp = false; group(m, 5) }),
		row("a set-up shrinks what containers lived in", one, func(m *moment) { m.Memory.SetUp = false; group(m, 5); m.exited("app", 1) }),
		row("a set-up of which nothing is known", one, func(m *moment) { m.Memory.SetUp, m.Memory.GroupSized = false, false; group(m, 5) }),
		row("a set-up in flight", one, func(m *moment) {
			m.Memory.SetUp = false
			group(m, 5)
			m.inFlight(pod.Action{Op: pod.OpSetUp, Size: size(2)})
		}),
		row("no set-up beside a resize", one, func(m *moment) { m.Memory.SetUp = false; m.inFlight(pod.Action{Op: pod.OpResize, Size: size(2)}) }),
		row("the group grows", one, func(m *moment) { m.Memory.GroupSize = m.size(""); m.Memory.GroupSize.MemoryLimit-- }),
		row("the group grows, a set-up is in flight", one, func(m *moment) { m.Memory.GroupSize.MemoryLimit--; m.inFlight(pod.Action{Op: pod.OpSetUp}) }),
		row("the group grows, another resize is in flight", one, func(m *moment) {
			m.Memory.GroupSize.MemoryLimit--
			m.inFlight(pod.Action{Op: pod.OpResize, Size: size(9)})
		}),
		row("the group grows, after a wait", one, func(m *moment) {
			m.Memory.GroupSize.MemoryLimit--
			m.Memory.Retry = []decide.Retry{{Op: pod.OpResize, Until: now.Add(time.Second)}}
		}),
		row("a start waits for the group to grow", one, func(m *moment) { m.exited("app", 1); m.Memory.GroupSize.MemoryLimit-- }),
		row("the group shrinks", one, func(m *moment) { group(m, 5) }),
		row("the group shrinks, after a start", one, func(m *moment) { group(m, 5); m.exited("app", 1) }),
		row("the group shrinks, a start is in flight", both, func(m *moment) {
			group(m, 9)
			m.without("job")
			m.inFlight(pod.Action{Op: pod.OpStartContainer, Container: "job", Size: size(2)})
		}),
		row("the group shrinks, after one that was replaced has started", one, func(m *moment) {
			group(m, 5)
			m.exited("app", 143)
			m.cm("app").ReplacedID, m.cm("app").StartUntil = "app-0", now.Add(time.Second)
		}),
		row("the group shrinks, after one that failed its probe has started", one, func(m *moment) {
			group(m, 5)
			m.exited("app", 143)
			m.cm("app").ReplacedID, m.cm("app").ReplacedFor, m.cm("app").StartUntil = "app-0", pod.CauseLiveness, now.Add(time.Second)
		}),
		row("the group shrinks, though one that was created waits", one, func(m *moment) {
			group(m, 5)
			has(m, "app", 3)
			m.c("app").State, m.cm("app").StartUntil = pod.StateCreated, now.Add(time.Second)
		}),
		row("the group shrinks, one that could not be started does not hold it", one, func(m *moment) {
			group(m, 5)
			has(m, "app", 3)
			m.c("app").State, m.cm("app").StartUntil, m.cm("app").StartFailedID = pod.StateCreated, now.Add(time.Second), "app-0"
		}),
		row("the group shrinks, one is on its way and one could not be started", both, func(m *moment) {
			group(m, 9)
			has(m, "job", 1)
			m.sick("app")
			has(m, "app", 1)
			m.inFlight(pod.Action{Op: pod.OpStopContainer, Container: "app", ID: "app-0", Grace: 30 * time.Second})
			m.c("job").State, m.cm("job").StartUntil, m.cm("job").StartFailedID = pod.StateCreated, now.Add(time.Second), "job-0"
		}),
		row("the group was set up, volumes could not be", one, func(m *moment) {
			m.Memory.SetUp = false
			m.Memory.Retry = []decide.Retry{{Op: pod.OpSetUp, Until: now.Add(time.Second)}}
		}),
		row("nothing is known of the group, and volumes could not be set up", one, func(m *moment) {
			m.Memory.SetUp, m.Memory.GroupSized, m.Memory.GroupSize = false, false, pod.Size{}
			m.Memory.Retry = []decide.Retry{{Op: pod.OpSetUp, Until: now.Add(time.Second)}}
		}),
		row("of two that grow the first goes", both, func(m *moment) { has(m, "app", 1); has(m, "job", 1) }),
		row("of two that shrink the first goes", both, func(m *moment) { group(m, 9); has(m, "app", 3); has(m, "job", 3) }),
		row("one that shrinks goes first", both, func(m *moment) { group(m, 9); has(m, "app", 1); has(m, "job", 3) }),
		row("one that shrinks is first", both, func(m *moment) { group(m, 9); has(m, "app", 3); has(m, "job", 1) }),
		row("one at a time", both, func(m *moment) {
			has(m, "job", 1)
			m.inFlight(pod.Action{Op: pod.OpResize, Container: "app", ID: "app-0", Size: size(2)})
		}),
		row("after a wait", one, func(m *moment) {
			has(m, "app", 1)
			m.Memory.Retry = []decide.Retry{{Op: pod.OpResize, ID: "app-0", Until: now.Add(time.Second)}}
		}),
		row("not one whose start is in flight", both, func(m *moment) {
			has(m, "app", 1)
			m.inFlight(pod.Action{Op: pod.OpStartContainer, Container: "app"})
		}),
		row("not one that is being stopped", both, func(m *moment) {
			has(m, "app", 1)
			m.sick("app")
			m.inFlight(pod.Action{Op: pod.OpStopContainer, Container: "app", ID: "app-0", Grace: 30 * time.Second})
		}),
		row("one whose stop failed, meanwhile", both, func(m *moment) {
			has(m, "app", 1)
			m.cm("app").ReplacedID, m.cm("app").StopID, m.cm("app").StopUntil = "app-0", "app-0", now.Add(time.Second)
		}),
		row("not one of another sandbox", one, func(m *moment) { has(m, "app", 1); m.c("app").SandboxID = "sb-old" }),
		row("what it was given counts, whatever the runtime says", one, func(m *moment) { m.c("app").Actual = size(3) }),
		row("what an earlier agent noted counts where the runtime agrees", one, func(m *moment) { m.cm("app").SizeGiven = false }),
		row("what an earlier agent noted counts where the runtime says nothing", one, func(m *moment) {
			m.cm("app").SizeGiven, m.cm("app").Size, m.c("app").Actual = false, size(3), pod.Size{}
		}),
		row("what an earlier agent noted is not the last that it gave", one, func(m *moment) { m.cm("app").SizeGiven, m.c("app").Actual = false, size(3) }),
		row("what the runtime says counts where nobody gave it anything", one, func(m *moment) { m.cm("app").SizedID = "app-9"; m.c("app").Actual = size(3) }),
		row("what the runtime says agrees", one, func(m *moment) { m.cm("app").SizedID = "app-9" }),
		row("an init container while it runs", []v1.Container{container("init", sizes("2")), app}, func(m *moment) { has(m, "init", 1); m.without("app") }),
		row("a sidecar while it runs", []v1.Container{sidecar("side", sizes("2")), app}, func(m *moment) { has(m, "side", 1) }),
		restarts("a CPU request", cpu, func(s *pod.Size) { s.CPURequest++ }),
		restarts("a CPU limit", cpu, func(s *pod.Size) { s.CPULimit++ }),
		restarts("memory, and not for that", cpu, func(s *pod.Size) { s.MemoryLimit++ }),
		restarts("a memory request", memory, func(s *pod.Size) { s.MemoryRequest++ }),
		restarts("a memory limit", memory, func(s *pod.Size) { s.MemoryLimit++ }),
		restarts("CPU, and not for that", memory, func(s *pod.Size) { s.CPULimit++ }),
		restarts("for neither", neither, func(s *pod.Size) { s.CPULimit++; s.MemoryLimit++ }),
		restarts("nothing has changed", memory, func(*pod.Size) {}),
	}
}
