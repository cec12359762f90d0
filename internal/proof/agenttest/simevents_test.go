package agenttest

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/wherry-node/wherry/internal/sim/simcri"
	"github.com/wherry-node/wherry/internal/sim/simkube"
)

// deleteOne deletes a random pod with one of these grace periods, in seconds; negative: the pod's own.
func (s *sim) deleteOne(graces ...int64) {
	if name := s.pick(); name != "" {
		s.tally.count("user: deletion")
		grace := one(s, graces...)
		s.logf("delete %s with %d", name, grace)
		s.Delete(name, grace)
	}
}

// remake deletes a random pod by force and creates another one with the same name.
func (s *sim) remake() {
	name := s.pick()
	if name == "" {
		return
	}
	s.tally.count("user: deleted and made again")
	s.logf("remake %s", name)
	s.Delete(name, 0)
	if s.Kube.Pod(Namespace, name) == nil {
		s.Create(s.pod(name))
		s.tally.pods++
	}
}

// debug adds an ephemeral container to a random pod, as kubectl debug does.
func (s *sim) debug() {
	name := s.pick()
	if name == "" {
		return
	}
	p := s.Kube.Pod(Namespace, name)
	if p.DeletionTimestamp != nil || len(p.Spec.EphemeralContainers) > 2 {
		return
	}
	p = p.DeepCopy()
	p.Spec.EphemeralContainers = append(p.Spec.EphemeralContainers, v1.EphemeralContainer{EphemeralContainerCommon: v1.EphemeralContainerCommon{
		Name: fmt.Sprintf("debug%d", len(p.Spec.EphemeralContainers)), Image: "i:1", Command: []string{"sh", "-c", one(s, "sleep 5", "exit 1", "sleep 1000")},
	}})
	if _, err := s.Admin.CoreV1().Pods(Namespace).UpdateEphemeralContainers(context.Background(), name, p, metav1.UpdateOptions{}); err == nil {
		s.tally.count("user: ephemeral container")
	}
}

// exit ends a random running container, as after a crash.
func (s *sim) exit() {
	var running []Instance
	for _, in := range s.Witness.Containers() {
		if in.Running {
			running = append(running, in)
		}
	}
	if len(running) > 0 {
		s.tally.count("container: exit")
		s.Runtime.Exit(running[s.rng.IntN(len(running))].ID, int32(s.rng.IntN(2)), one(s, "", "OOMKilled"), "")
	}
}

func (s *sim) loseSandbox() {
	if ids := s.Witness.Sandboxes(); len(ids) > 0 {
		s.tally.count("sandbox: lost")
		s.Runtime.KillSandbox(ids[s.rng.IntN(len(ids))])
	}
}

// create creates a pod, sometimes with the name of an earlier pod.
func (s *sim) create() {
	if len(s.alive()) >= simPods {
		return
	}
	name := fmt.Sprintf("p%d", s.next)
	s.next++
	if s.rng.IntN(3) == 0 {
		name = fmt.Sprintf("same%d", s.rng.IntN(3))
	}
	if s.Kube.Pod(Namespace, name) != nil {
		return
	}
	s.Create(s.pod(name))
	s.names = append(s.names, name)
	s.tally.pods++
}

// pod returns a pod with a random selection of features.
func (s *sim) pod(name string) *v1.Pod {
	p := Pod(name)
	spec := &p.Spec
	spec.TerminationGracePeriodSeconds = new(int64(one(s, 0, 1, 3, 10, 25)))
	always := v1.ContainerRestartPolicyAlways
	if s.chance(30) {
		spec.InitContainers = append(spec.InitContainers, v1.Container{Name: "init", Image: "i:1", Command: []string{"sh", "-c", one(s, "sleep 2", "true", "exit 1")}})
	}
	if s.chance(25) {
		side := v1.Container{Name: "side", Image: "i:1", RestartPolicy: &always}
		if s.chance(30) {
			side.StartupProbe = httpProbe(1, 20)
		}
		spec.InitContainers = append(spec.InitContainers, side)
		if s.chance(30) {
			spec.InitContainers = append(spec.InitContainers, v1.Container{Name: "side2", Image: "i:1", RestartPolicy: &always},
				v1.Container{Name: "last", Image: "i:1", Command: []string{"sh", "-c", "sleep 1"}})
		}
	}
	if s.chance(20) {
		spec.Containers = append(spec.Containers, v1.Container{Name: "second", Image: "i:2"})
	}
	if s.chance(25) {
		main := &spec.Containers[0]
		main.Resources.Requests = v1.ResourceList{v1.ResourceCPU: resource.MustParse(one(s, "1", "2", "10", "40"))}
		if s.chance(30) {
			main.ResizePolicy = []v1.ContainerResizePolicy{{ResourceName: v1.ResourceCPU, RestartPolicy: v1.RestartContainer}}
		}
	}
	spec.RestartPolicy = one(s, v1.RestartPolicyAlways, v1.RestartPolicyAlways, v1.RestartPolicyOnFailure, v1.RestartPolicyNever)
	switch s.rng.IntN(6) {
	case 0:
		p.Annotations[simcri.AnnotationStopAfter] = "never"
	case 1:
		p.Annotations[simcri.AnnotationStopAfter] = s.between(0, 15*time.Second).String()
	}
	s.shape(p)
	if main := &spec.Containers[0]; main.ReadinessProbe == nil && s.chance(25) {
		main.ReadinessProbe = httpProbe(3, 1)
	}
	if s.disks != nil {
		s.useDisks(p)
	}
	return p
}

// shape gives the main container of a pod a random behaviour in simcri.
func (s *sim) shape(p *v1.Pod) {
	main := &p.Spec.Containers[0]
	switch s.rng.IntN(9) {
	case 0:
		p.Annotations[simcri.AnnotationRunFor+".main"] = s.between(0, time.Minute).String()
		p.Annotations[simcri.AnnotationExitCode+".main"] = fmt.Sprint(s.rng.IntN(2))
	case 1:
		main.LivenessProbe, main.ReadinessProbe = httpProbe(5, 2), httpProbe(3, 1)
		if s.chance(50) {
			p.Annotations[simcri.AnnotationFailAfter+".main"] = s.between(10*time.Second, 90*time.Second).String()
		}
		if s.chance(30) {
			main.LivenessProbe.TerminationGracePeriodSeconds = new(int64(2))
		}
	case 2:
		main.Lifecycle = &v1.Lifecycle{PreStop: &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{"sh", "-c", one(s, "sleep 3", "sleep 60", "exit 1")}}}}
		if s.chance(50) {
			main.Lifecycle.PostStart = &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{"sh", "-c", one(s, "sleep 1", "exit 1")}}}
		}
	case 3:
		p.Spec.ActiveDeadlineSeconds = new(int64(s.rng.IntN(90) + 1))
	case 4:
		main.Image = "registry.invalid/x:1"
	case 5:
		p.Annotations[simcri.AnnotationExitCode+".main"] = "3"
		p.Annotations[simcri.AnnotationFailAttempts+".main"] = fmt.Sprint(s.rng.IntN(4))
	case 6:
		p.Annotations[simcri.AnnotationStartError+".main"] = "exec format error"
		p.Annotations[simcri.AnnotationFailAttempts+".main"] = "1"
	case 7:
		main.Lifecycle = &v1.Lifecycle{PreStop: &v1.LifecycleHandler{Sleep: &v1.SleepAction{Seconds: int64(s.rng.IntN(5))}}}
	}
}

// runtimeFault makes calls to the runtime fail at random, a few times.
func (s *sim) runtimeFault() {
	f := simcri.Fault{Times: 1 + s.rng.IntN(6), Chance: 0.2 + s.rng.Float64()*0.8}
	f.Method = one(s, "RunPodSandbox", "CreateContainer", "StartContainer", "StopContainer", "StopPodSandbox", "RemoveContainer",
		"RemovePodSandbox", "PodSandboxStatus", "ContainerStatus", "ListContainers", "ListPodSandbox", "PullImage", simcri.MethodEvent, "ExecSync", "")
	kind := ""
	switch s.rng.IntN(6) {
	case 0:
		kind = "answer lost"
		f.Effect, f.Err = simcri.Lost, status.Error(codes.DeadlineExceeded, "lost")
		f.Delay = s.between(0, slowest)
	case 1:
		kind = "hang"
		f.Effect, f.Times = simcri.Hang, 1
	case 2:
		kind = "slow"
		f.Effect, f.Delay = simcri.Slow, s.between(time.Second, slowest)
	case 3:
		kind = "error"
		f.Effect, f.Err = simcri.Refuse, status.Error(one(s, codes.Unavailable, codes.Unknown), "connection refused")
	case 4:
		kind = "name kept"
		f.Effect, f.Delay = simcri.KeepName, s.between(0, 20*time.Second)
		if f.Method != "RunPodSandbox" && f.Method != "CreateContainer" {
			kind, f.Effect = "error", simcri.Refuse
		}
	case 5:
		s.tally.count("runtime: event stream broken")
		s.Runtime.Disconnect()
		return
	}
	if f.Method == simcri.MethodEvent {
		kind = "event lost"
	}
	s.tally.count("runtime: " + kind)
	s.faults = append(s.faults, s.Runtime.Inject(f))
}

// apiFault makes requests of the agent to the API server fail at random, a few times.
func (s *sim) apiFault() {
	pods := schema.GroupResource{Resource: "pods"}
	f := simkube.Fault{Times: 1 + s.rng.IntN(4), Agent: agentName}
	f.Verb, f.Resource = "patch", "pods/status"
	switch s.rng.IntN(6) {
	case 0:
		f.Verb, f.Resource = "update", "leases"
	case 1:
		f.Verb, f.Resource = "patch", "nodes/status"
	case 2:
		f.Verb, f.Resource = "create", "events"
	case 3:
		f.Verb, f.Resource = "delete", "pods"
	}
	kind := ""
	switch s.rng.IntN(6) {
	case 0:
		kind, f.Effect = "connection broken", simkube.Break
	case 1:
		kind, f.Effect = "slow", simkube.Slow
	case 2:
		kind, f.Effect = "answer lost", simkube.Lost
	case 3:
		kind, f.Effect, f.Times = "hang", simkube.Hang, 1
	case 4:
		kind, f.Err = "conflict", apierrors.NewConflict(pods, "x", fmt.Errorf("the object has been modified"))
	case 5:
		kind, f.Err = "timeout", apierrors.NewServerTimeout(pods, "patch", 1)
	}
	f.Delay = s.between(0, 10*time.Second)
	s.tally.count("API: " + kind)
	s.faults = append(s.faults, s.Kube.Inject(f))
}
