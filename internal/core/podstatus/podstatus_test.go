package podstatus_test

import (
	"cmp"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/wherry-node/wherry/internal/core/decide"
	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/core/podstatus"
)

var update = flag.Bool("update", false, "rewrite testdata")

var epoch = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

// fixture builds the input of Derive. Each of its methods adds one fact about the pod.
type fixture struct{ podstatus.Input }

func newFixture(policy v1.RestartPolicy, containers ...v1.Container) *fixture {
	f := &fixture{podstatus.Input{
		Pod: &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop", UID: "u1", Generation: 7},
			Spec:       v1.PodSpec{RestartPolicy: policy, Containers: containers},
		},
		Observed: &pod.Observed{}, Memory: &decide.Memory{Grant: decide.Grant{StartTime: epoch}}, Plan: &decide.Plan{},
		RuntimeName: "containerd", HostIPs: []string{"192.0.2.10"}, Now: at(60),
	}}
	return f
}

func at(seconds int) time.Time {
	return epoch.Add(time.Duration(seconds)*time.Second + 250*time.Millisecond)
}

func container(name string) v1.Container { return v1.Container{Name: name, Image: "img/" + name} }

func sidecar(name string) v1.Container {
	c, always := container(name), v1.ContainerRestartPolicyAlways
	c.RestartPolicy = &always
	return c
}

func (f *fixture) static() *fixture {
	f.Pod.Annotations = map[string]string{pod.AnnotationSource: "file"}
	return f
}

func (f *fixture) init(cs ...v1.Container) *fixture {
	f.Pod.Spec.InitContainers = append(f.Pod.Spec.InitContainers, cs...)
	return f
}

func (f *fixture) sandbox(ips ...string) *fixture {
	f.Observed.Sandboxes = []pod.Sandbox{{ID: "sb", Ready: true, IPs: ips, HostNetwork: f.Pod.Spec.HostNetwork}}
	return f
}

func (f *fixture) add(c pod.Container) *fixture {
	c.ID = fmt.Sprintf("%s%d", c.Name, c.Attempt)
	c.SandboxID, c.Image, c.ImageRef = "sb", "docker.io/img/"+c.Name+":latest", "docker.io/img/"+c.Name+"@sha256:1"
	f.Observed.Containers = append(f.Observed.Containers, c)
	return f
}

func (f *fixture) running(name string, attempt uint32) *fixture {
	return f.add(pod.Container{Name: name, Attempt: attempt, State: pod.StateRunning, StartedAt: at(10)})
}

func (f *fixture) exited(name string, attempt uint32, code int32) *fixture {
	return f.add(pod.Container{
		Name: name, Attempt: attempt, State: pod.StateExited, ExitCode: code, StartedAt: at(10), FinishedAt: at(20),
	})
}

// probed sets the probe results of the container app: it is started, and it is ready if ready is true.
func (f *fixture) probed(ready bool) *fixture {
	f.Probed.Set(decide.Probed{Name: "app", ID: "app0", Started: true, Ready: ready})
	return f
}

func (f *fixture) memory(name string, set func(*decide.ContainerMemory)) *fixture {
	set(f.Memory.Ensure(name))
	return f
}

func (f *fixture) plan(p decide.Plan) *fixture { f.Plan = &p; return f }

// then derives a status, makes it the old status of the pod, moves the clock 30 s forward, and applies change.
func (f *fixture) then(change func(*fixture)) *fixture {
	st := podstatus.Derive(f.Input)
	f.Old, f.Pod.Status = &st, st
	f.Observed = &pod.Observed{Sandboxes: f.Observed.Sandboxes, Containers: f.Observed.Containers}
	f.Now = f.Now.Add(30 * time.Second)
	change(f)
	return f
}

// cases returns one input of Derive for each situation of a pod, by the name of the situation. The expected statuses are in testdata.
func cases() map[string]*fixture {
	app := container("app")
	probed := container("app")
	probed.ReadinessProbe, probed.StartupProbe = &v1.Probe{}, &v1.Probe{}
	hooked := container("app")
	hooked.Lifecycle = &v1.Lifecycle{PostStart: &v1.LifecycleHandler{}}
	sized := container("app")
	sized.Resources.Requests = v1.ResourceList{v1.ResourceCPU: resource.MustParse("100m")}
	sized.VolumeMounts = []v1.VolumeMount{{Name: "data", MountPath: "/data"}, {Name: "conf", MountPath: "/conf", ReadOnly: true}}
	always, onFailure, never := v1.RestartPolicyAlways, v1.RestartPolicyOnFailure, v1.RestartPolicyNever
	crash := func(cm *decide.ContainerMemory) {
		cm.CrashedID, cm.CrashUntil, cm.CrashDelay = "app1", at(20).Add(80*time.Second), 160*time.Second
	}
	replaced := func(cause pod.Cause) func(*decide.ContainerMemory) {
		return func(cm *decide.ContainerMemory) {
			cm.ReplacedID, cm.ReplacedFor = cmp.Or(cm.CrashedID, "app0"), cause
		}
	}
	pull := func(cm *decide.ContainerMemory) {
		cm.WaitingReason, cm.WaitingMessage = "ErrImagePull", "not found"
		cm.PulledImage, cm.PullDelay, cm.PullUntil = "img/app", 10*time.Second, at(69)
	}
	ended := decide.Plan{Ending: true, Ended: true, Phase: decide.PhaseStopped}
	deleted := func(f *fixture) {
		now := metav1.NewTime(f.Now)
		f.Pod.DeletionTimestamp = &now
	}
	m := map[string]*fixture{
		"a pod that the node has just taken":             newFixture(always, app),
		"a running pod is ready":                         newFixture(always, app).sandbox("10.0.0.5").running("app", 0),
		"one of two runs":                                newFixture(always, app, container("log")).sandbox("10.0.0.5").running("app", 0),
		"resources and mounts":                           newFixture(always, sized).sandbox("10.0.0.5").running("app", 0),
		"a container with probes is not started":         newFixture(always, probed).sandbox("10.0.0.5").running("app", 0),
		"a crash loop waits":                             newFixture(always, app).sandbox("10.0.0.5").exited("app", 1, 1).memory("app", crash),
		"an image that cannot be pulled":                 newFixture(always, app).sandbox("10.0.0.5").memory("app", func(cm *decide.ContainerMemory) { pull(cm); cm.PullUntil = at(70) }),
		"an image that cannot be pulled, a second later": newFixture(always, app).sandbox("10.0.0.5").memory("app", pull),
		"a container that cannot be created": newFixture(always, app).sandbox("10.0.0.5").memory("app", func(cm *decide.ContainerMemory) {
			cm.WaitingReason, cm.WaitingMessage = "CreateContainerConfigError", `configmap "c" not found`
		}),
		"a postStart hook in progress":                    newFixture(always, hooked).sandbox("10.0.0.5").running("app", 0),
		"a postStart hook in progress while the pod ends": newFixture(always, hooked).sandbox("10.0.0.5").running("app", 0).then(deleted).plan(decide.Plan{Ending: true}),
		"a postStart hook is done":                        newFixture(always, hooked).sandbox("10.0.0.5").running("app", 0).then(func(f *fixture) { f.Memory.Ensure("app").PostStartedID = "app0" }),
		"a postStart hook in progress after a crash loop": newFixture(always, hooked).sandbox("10.0.0.5").exited("app", 1, 1).memory("app", crash).then(func(f *fixture) {
			f.Observed.Containers = nil
			f.running("app", 2).exited("app", 1, 1)
		}),
		"a postStart hook in progress of a static pod of an earlier agent": newFixture(always, hooked).static().sandbox("10.0.0.5").running("app", 3).exited("app", 2, 1).then(func(f *fixture) {
			f.Old = &v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{{Name: "app", ContainerID: "containerd://app2"}}}
		}),
		"a postStart hook in progress of an unseen restart": newFixture(always, hooked).sandbox("10.0.0.5").running("app", 0).memory("app", func(cm *decide.ContainerMemory) { cm.PostStartedID = "app0" }).then(func(f *fixture) {
			f.Observed.Containers = nil
			f.running("app", 1).exited("app", 0, 3)
		}),
		"an init container runs":                          newFixture(always, app).init(container("one"), container("two")).sandbox("10.0.0.5").running("one", 0),
		"an init container is done":                       newFixture(always, app).init(container("one")).sandbox("10.0.0.5").exited("one", 0, 0),
		"an init container failed for good, on the way":   newFixture(never, app).init(container("one")).sandbox("10.0.0.5").exited("one", 0, 3),
		"an init container failed for good":               newFixture(never, app).init(container("one")).sandbox("10.0.0.5").exited("one", 0, 3).plan(ended),
		"an init container is retried":                    newFixture(always, app).init(container("one")).sandbox("10.0.0.5").exited("one", 1, 3),
		"a removed init container has completed":          newFixture(always, app).init(container("one")).sandbox("10.0.0.5").running("app", 0),
		"a sidecar that is not started":                   newFixture(always, app).init(sidecar("side")).sandbox("10.0.0.5"),
		"a sidecar and its main container":                newFixture(always, app).init(sidecar("side")).sandbox("10.0.0.5").running("side", 0).running("app", 0),
		"a sidecar that restarts makes the pod not ready": newFixture(always, app).init(sidecar("side")).sandbox("10.0.0.5").exited("side", 0, 1).running("app", 0),
		"a job that succeeded, while its sandbox stops":   newFixture(never, app).sandbox("10.0.0.5").exited("app", 0, 0).plan(decide.Plan{Ending: true}),
		"a job that succeeded":                            newFixture(never, app).sandbox("10.0.0.5").exited("app", 0, 0).plan(ended),
		"a job that failed":                               newFixture(never, app).sandbox("10.0.0.5").exited("app", 0, 2).plan(ended),
		"on failure: one done, one runs":                  newFixture(onFailure, app, container("log")).sandbox("10.0.0.5").exited("app", 0, 0).running("log", 0),
		"on failure: failed and will run again":           newFixture(onFailure, app).sandbox("10.0.0.5").exited("app", 0, 1),
		"out of memory":                                   newFixture(never, app).sandbox("10.0.0.5").add(pod.Container{Name: "app", State: pod.StateExited, ExitCode: 137, Said: &pod.Said{Reason: "OOMKilled"}, StartedAt: at(1), FinishedAt: at(2)}).plan(ended),
		"the attempt before is the last state":            newFixture(always, app).sandbox("10.0.0.5").running("app", 2).exited("app", 1, 9),
		"addresses of two families":                       newFixture(always, app).sandbox("fd00::5", "10.0.0.5").running("app", 0),
		"evicted":                                         newFixture(always, app).sandbox("10.0.0.5").exited("app", 0, 143).plan(ended),
		"evicted for its own limit":                       newFixture(always, app).sandbox("10.0.0.5").exited("app", 0, 143).plan(ended),
		"preempted: told to stop and did so with success": newFixture(never, app).sandbox("10.0.0.5").exited("app", 0, 0).plan(ended),
		"rejected":                                      newFixture(always, app).plan(decide.Plan{Ending: true, Ended: true, Phase: decide.PhaseStopped}),
		"deleted and being stopped":                     newFixture(always, app).sandbox("10.0.0.5").running("app", 0).then(deleted).plan(decide.Plan{Ending: true}),
		"deleted before it began":                       newFixture(always, app).then(deleted).plan(ended),
		"deleted: told to stop and did so with success": newFixture(always, app).sandbox("10.0.0.5").running("app", 0).then(deleted).then(func(f *fixture) { f.Observed.Containers = nil; f.exited("app", 0, 0) }).plan(ended),
		"deleted and lost":                              newFixture(always, app).sandbox("10.0.0.5").running("app", 0).then(deleted).then(func(f *fixture) { f.Observed.Containers = nil }).plan(ended),
		"the runtime lost a container that ran":         newFixture(always, app).sandbox("10.0.0.5").running("app", 3).then(func(f *fixture) { f.Observed.Containers = nil }),
		"a static pod that never ran begins anew": newFixture(always, app).static().sandbox("10.0.0.5").memory("app", pull).plan(ended).then(func(f *fixture) {
			f.plan(decide.Plan{})
		}),
		"a condition keeps its time":                 newFixture(always, app).sandbox("10.0.0.5").running("app", 0).then(func(*fixture) {}),
		"the sandbox is gone: the address stays":     newFixture(never, app).sandbox("10.0.0.5").running("app", 0).then(func(f *fixture) { f.Observed = &pod.Observed{}; f.exited("app", 0, 0) }).plan(ended),
		"a terminal phase is never left":             newFixture(never, app).sandbox("10.0.0.5").exited("app", 0, 2).plan(ended).then(func(f *fixture) { f.Observed = &pod.Observed{}; f.Memory = &decide.Memory{} }),
		"a new agent keeps what its probes had said": newFixture(always, probed).sandbox("10.0.0.5").running("app", 0).probed(true).then(func(f *fixture) { f.Memory, f.Probed = &decide.Memory{Grant: decide.Grant{StartTime: epoch}}, nil }),
		"a probe that fails makes it not ready":      newFixture(always, probed).sandbox("10.0.0.5").running("app", 0).probed(true).then(func(f *fixture) { f.probed(false) }),
		"an unknown state that was stopped":          newFixture(never, app).sandbox("10.0.0.5").add(pod.Container{Name: "app", State: pod.StateUnknown}).memory("app", func(cm *decide.ContainerMemory) { cm.StopID, cm.Stopped = "app0", true }).plan(ended),
		"all containers are restarted in place": newFixture(never, app).sandbox("10.0.0.5").running("app", 0).then(func(f *fixture) {
			f.Observed.Containers = nil
			f.Memory.RestartedAll, f.Memory.RestartingAll = true, true
		}),
		"a crash loop restarted in place counts on": newFixture(always, app).sandbox("10.0.0.5").exited("app", 1, 1).memory("app", crash).then(func(f *fixture) {
			f.Observed.Containers = nil
			f.Memory.RestartedAll, f.Memory.RestartingAll = true, true
		}),
		"an init container is removed after a restart in place": newFixture(never, app).init(container("one")).sandbox("10.0.0.5").exited("one", 1, 0).running("app", 1).then(func(f *fixture) {
			f.Memory.RestartedAll = true
			f.Observed.Containers = nil
			f.running("app", 1)
		}),
		"an init container after a restart in place works": newFixture(never, app).init(container("one")).sandbox("10.0.0.5").exited("one", 0, 0).running("app", 0).then(func(f *fixture) { f.Observed.Containers = nil; f.Memory.RestartedAll = true; f.running("one", 1) }),
	}
	for name, f := range map[string]*fixture{
		"a new definition of what ended with 0 waits to start":     newFixture(never, app).sandbox("10.0.0.5").exited("app", 0, 0).memory("app", replaced(pod.CauseChanged)),
		"an unhealthy container that ended with 0 backs off":       newFixture(onFailure, app).sandbox("10.0.0.5").exited("app", 1, 0).memory("app", crash).memory("app", replaced(pod.CauseLiveness)),
		"an unhealthy container that is deleted has terminated":    newFixture(onFailure, app).sandbox("10.0.0.5").exited("app", 0, 0).memory("app", replaced(pod.CauseLiveness)).then(deleted),
		"what ended with 0 before its definition changed stays so": newFixture(never, app, container("web")).sandbox("10.0.0.5").exited("app", 0, 0).running("web", 0).then(func(f *fixture) { f.Pod.Spec.Containers[0].Image = "img/other" }),
		"an init container that runs again in a new sandbox": newFixture(onFailure, app).init(container("one")).sandbox("10.0.0.5").exited("one", 0, 0).running("app", 0).then(func(f *fixture) {
			f.Observed.Containers = nil
			f.running("one", 1).exited("one", 0, 0).exited("app", 0, 137)
		}),
		"an init container that has run again in a new sandbox": newFixture(onFailure, app).init(container("one")).sandbox("10.0.0.5").exited("one", 0, 0).running("app", 0).then(func(f *fixture) {
			f.Observed.Containers = nil
			f.exited("one", 1, 0).exited("one", 0, 0).running("app", 1).exited("app", 0, 137)
		}),
	} {
		m[name] = f
	}
	m["evicted"].Memory.Stop = &decide.Stop{Reason: "Evicted", Message: "The node was low on resource: memory.", Disruption: "The node was low on resource: memory."}
	m["evicted for its own limit"].Memory.Stop = &decide.Stop{Reason: "Evicted", Message: "Usage of EmptyDir volume \"a\" exceeds the limit \"1Mi\". "}
	m["preempted: told to stop and did so with success"].Memory.Stop = &decide.Stop{Reason: "Preempting", Message: "Preempted in order to admit critical pod", Disruption: "Pod was preempted by Kubelet to accommodate a critical pod."}
	m["rejected"].Memory.Stop = &decide.Stop{Reason: "OutOfcpu", Message: "Node didn't have enough resource: cpu", Rejected: true}
	host := newFixture(always, app)
	host.Pod.Spec.HostNetwork = true
	m["host network"] = host.sandbox().running("app", 0)
	gated := newFixture(always, app).sandbox("10.0.0.5").running("app", 0)
	gated.Pod.Spec.ReadinessGates = []v1.PodReadinessGate{{ConditionType: "lb"}, {ConditionType: "dns"}}
	gated.Pod.Status.Conditions = []v1.PodCondition{{Type: "dns", Status: v1.ConditionFalse}}
	m["readiness gates"] = gated
	static := newFixture(always, app).sandbox("10.0.0.5").exited("app", 0, 143).plan(ended)
	static.Pod.Annotations = map[string]string{pod.AnnotationSource: "file"}
	m["a static pod that was stopped has no terminal phase"] = static
	debugged := newFixture(always, app).sandbox("10.0.0.5").running("app", 0).exited("debug", 0, 0)
	debugged.Pod.Spec.EphemeralContainers = []v1.EphemeralContainer{{
		EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "debug", Image: "img/debug"},
	}}
	m["an ephemeral container ended"] = debugged
	late := newFixture(never, app).sandbox("10.0.0.5").exited("app", 0, 0).plan(ended)
	late.Pod.Spec.EphemeralContainers = debugged.Pod.Spec.EphemeralContainers
	m["an ephemeral container that was added after the end has no status"] = late
	signalled := container("app")
	signalled.Lifecycle = &v1.Lifecycle{StopSignal: new(v1.Signal("SIGUSR1"))}
	m["a stop signal that was asked for"] = newFixture(always, signalled).sandbox("10.0.0.5").add(pod.Container{Name: "app", State: pod.StateRunning, StartedAt: at(10), StopSignal: "SIGUSR1"})
	m["the user of a container"] = newFixture(always, app).sandbox("10.0.0.5").add(pod.Container{Name: "app", State: pod.StateRunning, StartedAt: at(10), User: &pod.User{UID: 1000, GID: 3000, Groups: []int64{3000, 60000}}})
	resized := func(r decide.Resize) *fixture {
		c := container("app")
		list := v1.ResourceList{v1.ResourceCPU: resource.MustParse("200m"), v1.ResourceMemory: resource.MustParse("64Mi")}
		c.Resources = v1.ResourceRequirements{Requests: list, Limits: list}
		f := newFixture(always, c).sandbox("10.0.0.5").running("app", 0)
		f.Observed.Containers[0].Actual = pod.Size{CPURequest: 100, CPULimit: 100, MemoryLimit: 64 << 20}
		f.Memory.GroupSized, f.Memory.GroupSize = true, pod.Size{CPURequest: 200, CPULimit: 200, MemoryRequest: 64 << 20, MemoryLimit: 64 << 20}
		f.Memory.Resize = r
		return f
	}
	m["a resize in progress: the container has what it had"] = resized(decide.Resize{InProgress: true, Generation: 6, Since: at(50)})
	m["a resize that fails says why"] = resized(decide.Resize{InProgress: true, Generation: 6, Since: at(50), Error: "device or resource busy"})
	m["a resize that is deferred while the one before is made"] = resized(decide.Resize{InProgress: true, Generation: 6, Since: at(50),
		Pending: v1.PodReasonDeferred, PendingMessage: "Node didn't have enough resource: cpu", PendingGeneration: 7, PendingSince: at(55)})
	m["a resize that is infeasible"] = resized(decide.Resize{Pending: v1.PodReasonInfeasible, PendingMessage: "Node didn't have enough capacity: cpu", PendingGeneration: 7, PendingSince: at(55)})
	done := resized(decide.Resize{Generation: 7})
	done.Observed.Containers[0].Actual = pod.Size{CPURequest: 200, CPULimit: 200, MemoryLimit: 64 << 20}
	m["a resize that is done leaves no condition"] = done
	m["a pod that has ended is resized no more"] = resized(decide.Resize{InProgress: true, Generation: 6, Pending: v1.PodReasonDeferred}).then(func(f *fixture) {
		f.Observed.Containers = nil
		f.exited("app", 0, 0)
	}).plan(ended)
	group := resized(decide.Resize{InProgress: true, Generation: 6, Since: at(50)})
	group.Pod.Spec.Resources = &v1.ResourceRequirements{Limits: v1.ResourceList{v1.ResourceCPU: resource.MustParse("1")}, Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("500m")}}
	group.Memory.GroupSize.CPURequest = 300
	m["the pod's own resources are what its group has"] = group
	maps.Copy(m, unstarted(ended, deleted))
	return m
}

// unstarted returns pods that end while an init container has never run.
func unstarted(ended decide.Plan, deleted func(*fixture)) map[string]*fixture {
	app, always, onFailure, never := container("app"), v1.RestartPolicyAlways, v1.RestartPolicyOnFailure, v1.RestartPolicyNever
	pull := func(name string) func(*decide.ContainerMemory) {
		return func(cm *decide.ContainerMemory) {
			cm.WaitingReason, cm.WaitingMessage = "ErrImagePull", "not found"
			cm.PulledImage, cm.PullDelay, cm.PullUntil = "img/"+name, 10*time.Second, at(69)
		}
	}
	deadline := func(f *fixture) {
		f.Memory.Stop = &decide.Stop{Reason: decide.ReasonDeadlineExceeded, Message: decide.MessageDeadlineExceeded}
	}
	probed := sidecar("side")
	probed.StartupProbe = &v1.Probe{}
	ran := func(f *fixture) { f.Memory.StopBegan, f.Observed.Containers = at(15), nil }
	return map[string]*fixture{
		"deleted before its first init container began":     newFixture(onFailure, app).init(container("one"), container("two")).sandbox("10.0.0.5").memory("one", pull("one")).then(deleted).plan(ended),
		"deleted before its first sidecar began":            newFixture(never, app).init(sidecar("side"), container("one")).sandbox("10.0.0.5").memory("side", pull("side")).then(deleted).plan(ended),
		"deleted before its second init container began":    newFixture(always, app).init(container("one"), container("two")).sandbox("10.0.0.5").exited("one", 0, 0).memory("two", pull("two")).then(deleted).plan(ended),
		"out of time before its first init container began": newFixture(never, app).init(container("one")).sandbox("10.0.0.5").memory("one", pull("one")).then(deadline).plan(ended),
		"out of time before its second init container began": newFixture(always, app).init(container("one"), container("two")).sandbox("10.0.0.5").exited("one", 0, 0).memory("two", pull("two")).then(func(f *fixture) {
			deadline(f)
			f.exited("one", 0, 0)
		}).plan(ended),
		"out of time while it runs":              newFixture(always, app).sandbox("10.0.0.5").running("app", 0).then(deadline).plan(decide.Plan{Ending: true}),
		"out of time while its image is awaited": newFixture(always, app).sandbox("10.0.0.5").memory("app", pull("app")).then(deadline).plan(decide.Plan{Ending: true}),
		"deleted while a main container waits beside its sidecar": newFixture(always, app).init(sidecar("side")).sandbox("10.0.0.5").running("side", 0).memory("app", pull("app")).then(deleted).then(func(f *fixture) {
			ran(f)
			f.exited("side", 0, 143)
		}).plan(ended),
		"deleted while a sidecar has not started up": newFixture(always, app).init(probed).sandbox("10.0.0.5").running("side", 0).then(deleted).then(func(f *fixture) {
			ran(f)
			f.exited("side", 0, 143)
		}).plan(ended),
		"deleted while its last init container runs, which ends with 0": newFixture(always, app).init(sidecar("side"), container("one")).sandbox("10.0.0.5").running("side", 0).running("one", 0).then(func(f *fixture) {
			deleted(f)
			ran(f)
			f.running("side", 0).exited("one", 0, 0)
		}).then(func(f *fixture) {
			ran(f)
			f.exited("side", 0, 143).exited("one", 0, 0)
		}).plan(ended),
		"deleted after its last init container has ended with 0": newFixture(always, app).init(sidecar("side"), container("one")).sandbox("10.0.0.5").running("side", 0).exited("one", 0, 0).then(func(f *fixture) {
			deleted(f)
			ran(f)
			f.exited("side", 0, 143).exited("one", 0, 0)
			f.Memory.StopBegan = at(21)
		}).plan(ended),
		"deleted while its sidecar waits to be started again": newFixture(always, app).init(sidecar("side")).sandbox("10.0.0.5").running("side", 0).memory("app", pull("app")).then(func(f *fixture) {
			ran(f)
			f.exited("side", 0, 1)
			f.Memory.StopBegan = at(40)
		}).then(deleted).plan(ended),
		"a static pod that never ran an init container begins anew": newFixture(always, app).static().init(container("one")).sandbox("10.0.0.5").memory("one", pull("one")).plan(ended).then(func(f *fixture) {
			f.plan(decide.Plan{})
		}),
	}
}

func TestDerive(t *testing.T) {
	t.Parallel()
	for name, f := range cases() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			before := f.Pod.DeepCopy()
			got := show(podstatus.Derive(f.Input))
			if diff := gocmp.Diff(before, f.Pod); diff != "" {
				t.Errorf("Derive changed its input: %s", diff)
			}
			file := filepath.Join("testdata", strings.NewReplacer(" ", "-", ":", "", ",", "", "'", "").Replace(name)+".txt")
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := gocmp.Diff(string(want), got); diff != "" {
				t.Errorf("status differs (-testdata +now):\n%s", diff)
			}
		})
	}
}

// TestDeriveIsStable checks that Derive returns the same status again if it gets its last result as the old status, so that a pod at rest
// causes no requests.
func TestDeriveIsStable(t *testing.T) {
	t.Parallel()
	for name, f := range cases() {
		first := podstatus.Derive(f.Input)
		in := f.Input
		in.Old = &first
		in.Now = in.Now.Add(100 * time.Millisecond)
		second := podstatus.Derive(in)
		in.Old = &second
		third := podstatus.Derive(in)
		if diff := gocmp.Diff(second, third); diff != "" {
			t.Errorf("%s: not stable (-first +again):\n%s", name, diff)
		}
	}
}

// TestMessagesFit checks that the termination messages of all containers together are not longer than 12 KiB.
func TestMessagesFit(t *testing.T) {
	t.Parallel()
	f := newFixture(v1.RestartPolicyNever, container("a"), container("b"))
	for _, name := range []string{"a", "b"} {
		f.add(pod.Container{Name: name, State: pod.StateExited, Said: &pod.Said{Message: strings.Repeat("x", 10<<10)}})
	}
	n := 0
	for _, c := range podstatus.Derive(f.Input).ContainerStatuses {
		n += len(c.State.Terminated.Message)
	}
	if n == 0 || n > 12<<10 {
		t.Errorf("messages take %d bytes", n)
	}
}

// show prints a status for people, with times in seconds from the epoch of the tests.
func show(s v1.PodStatus) string {
	var b strings.Builder
	when := func(t metav1.Time) string {
		if t.IsZero() {
			return "-"
		}
		return fmt.Sprintf("+%s", t.Sub(epoch))
	}
	fmt.Fprintf(&b, "%s reason=%q message=%q generation=%d qos=%s started=%s\n", s.Phase, s.Reason, s.Message,
		s.ObservedGeneration, s.QOSClass, when(*s.StartTime))
	fmt.Fprintf(&b, "host=%s %v pod=%s %v\n", s.HostIP, s.HostIPs, s.PodIP, s.PodIPs)
	if s.Resources != nil {
		fmt.Fprintf(&b, "resources: requests cpu=%s allocated cpu=%s\n", s.Resources.Requests.Cpu(), s.AllocatedResources.Cpu())
	}
	for _, c := range s.Conditions {
		fmt.Fprintf(&b, "  %s=%s since %s generation=%d %s %q\n", c.Type, c.Status, when(c.LastTransitionTime), c.ObservedGeneration, c.Reason, c.Message)
	}
	state := func(st v1.ContainerState) string {
		switch {
		case st.Waiting != nil:
			return fmt.Sprintf("waiting %s %q", st.Waiting.Reason, st.Waiting.Message)
		case st.Running != nil:
			return "running since " + when(st.Running.StartedAt)
		case st.Terminated != nil:
			x := st.Terminated
			return fmt.Sprintf("terminated %d %s %q %s..%s %s", x.ExitCode, x.Reason, x.Message, when(x.StartedAt), when(x.FinishedAt), x.ContainerID)
		}
		return "none"
	}
	list := func(kind string, cs []v1.ContainerStatus) {
		for _, c := range cs {
			started := "-"
			if c.Started != nil {
				started = fmt.Sprint(*c.Started)
			}
			fmt.Fprintf(&b, "%s %s: %s\n    last: %s\n    ready=%v started=%s restarts=%d image=%s imageID=%s id=%s\n", kind, c.Name,
				state(c.State), state(c.LastTerminationState), c.Ready, started, c.RestartCount, c.Image, c.ImageID, c.ContainerID)
			if c.StopSignal != nil {
				fmt.Fprintf(&b, "    stopSignal=%s\n", *c.StopSignal)
			}
			if c.User != nil {
				fmt.Fprintf(&b, "    user=%+v\n", *c.User.Linux)
			}
			for _, m := range c.VolumeMounts {
				rro := ""
				if m.RecursiveReadOnly != nil {
					rro = string(*m.RecursiveReadOnly)
				}
				fmt.Fprintf(&b, "    mount %s %s readOnly=%v %s\n", m.Name, m.MountPath, m.ReadOnly, rro)
			}
			if c.Resources != nil && len(c.Resources.Requests) > 0 {
				fmt.Fprintf(&b, "    cpu=%s allocated=%s\n", c.Resources.Requests.Cpu(), c.AllocatedResources.Cpu())
			}
			if c.Resources != nil && len(c.Resources.Limits) > 0 {
				fmt.Fprintf(&b, "    limits cpu=%s memory=%s\n", c.Resources.Limits.Cpu(), c.Resources.Limits.Memory())
			}
		}
	}
	list("init", s.InitContainerStatuses)
	list("main", s.ContainerStatuses)
	list("ephemeral", s.EphemeralContainerStatuses)
	return b.String()
}

// TestGatesOmitParts checks that a feature gate that is off leaves out its part of the status and changes nothing else:
// PodReadyToStartContainersCondition the condition, InPlacePodLevelResourcesVerticalScaling the resources of the whole pod.
func TestGatesOmitParts(t *testing.T) {
	t.Parallel()
	const conditionGate, resourcesGate = "PodReadyToStartContainersCondition", "InPlacePodLevelResourcesVerticalScaling"
	app := container("app")
	app.Resources.Requests = v1.ResourceList{v1.ResourceCPU: resource.MustParse("100m")}
	f := newFixture(v1.RestartPolicyAlways, app).sandbox("10.0.0.5").running("app", 0)
	whole := podstatus.Derive(f.Input)
	if whole.Conditions[0].Type != v1.PodReadyToStartContainers || whole.Resources == nil || whole.AllocatedResources == nil {
		t.Fatalf("with all gates on, a part is missing: %+v", whole)
	}
	for gate, c := range map[string]struct {
		omit podstatus.Omit
		drop func(*v1.PodStatus)
	}{
		conditionGate: {podstatus.Omit{ReadyToStart: true}, func(s *v1.PodStatus) { s.Conditions = s.Conditions[1:] }},
		resourcesGate: {podstatus.Omit{PodResources: true}, func(s *v1.PodStatus) { s.Resources, s.AllocatedResources = nil, nil }},
	} {
		want := whole.DeepCopy()
		c.drop(want)
		f.Omit = c.omit
		if diff := gocmp.Diff(*want, podstatus.Derive(f.Input)); diff != "" {
			t.Errorf("%s off (-want +got):\n%s", gate, diff)
		}
	}
}
