package agenttest

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/core/pod"
)

// Differences lists where the API disagrees with the runtime: in the phase, conditions and IP address of each pod, and in the state, exit
// code, readiness and restart count of each container.
func (w *World) Differences() (out []string) {
	for _, of := range w.differences() {
		out = append(out, of...)
	}
	slices.Sort(out)
	return out
}

// differences returns the differences by the UID of the pod. A pod without differences is not among them.
func (w *World) differences() map[types.UID][]string {
	out := map[types.UID][]string{}
	pods := w.Kube.Pods()
	for uid, p := range pods { // the runtime has the UID of the static pod, which is in an annotation of the mirror
		if hash := types.UID(p.Annotations[pod.AnnotationHash]); pod.IsMirror(p) && pods[hash] == nil {
			delete(pods, uid)
			pods[hash] = p
		}
	}
	for _, c := range w.Witness.Containers() {
		if pods[c.UID] == nil {
			out[c.UID] = append(out[c.UID], fmt.Sprintf("the runtime has container %s of pod %s (%s), the API not the pod", c.Name, c.Pod, c.UID))
		}
	}
	for uid, p := range pods {
		if p.DeletionTimestamp != nil {
			out[uid] = append(out[uid], fmt.Sprintf("pod %s is still being deleted", p.Name))
			continue
		}
		t := w.Witness.truth(uid, p)
		if t.compare(); len(t.diff) > 0 {
			out[uid] = t.diff
		}
	}
	return out
}

// truth compares one pod in the API with its state in the runtime.
type truth struct {
	pod     *v1.Pod
	newest  map[string]*Instance // newest instance of each container; nil: it was never created
	sandbox *sandboxSeen         // ready sandbox; nil: there is none
	id      string               // ID of the ready sandbox
	over    bool                 // all containers have ended for good
	anew    bool                 // the static pod began a new life, so its mirror may still show the higher restart counts of the life before
	ended   bool                 // the pod was deleted
	diff    []string
}

func (w *Witness) truth(uid types.UID, p *v1.Pod) *truth {
	w.mu.Lock()
	defer w.mu.Unlock()
	t := &truth{pod: p, newest: map[string]*Instance{}, over: w.isOver(&p.Spec, uid), anew: pod.IsMirror(p) && w.beganAnew[uid]}
	if s := w.pods[uid]; s != nil {
		t.ended = s.gone || !s.deletedAt.IsZero()
	}
	for key, in := range w.newestOf {
		if name, its := strings.CutPrefix(key, string(uid)+"/"); its {
			c := *in
			t.newest[name] = &c
		}
	}
	for id, s := range w.sandboxes {
		if s.uid == uid && s.ready {
			t.id = id
			c := *s
			t.sandbox = &c
		}
	}
	return t
}

func (t *truth) differ(format string, args ...any) {
	t.diff = append(t.diff, fmt.Sprintf("pod %s: ", t.pod.Name)+fmt.Sprintf(format, args...))
}

func (t *truth) compare() {
	s := &t.pod.Status
	for i := range t.pod.Spec.InitContainers {
		c := &t.pod.Spec.InitContainers[i]
		t.container(c.Name, s.InitContainerStatuses)
	}
	for i := range t.pod.Spec.Containers {
		t.container(t.pod.Spec.Containers[i].Name, s.ContainerStatuses)
	}
	for i := range t.pod.Spec.EphemeralContainers {
		t.container(t.pod.Spec.EphemeralContainers[i].Name, s.EphemeralContainerStatuses)
	}
	if t.final() {
		t.finalPhase()
	} else {
		t.phase()
	}
	t.ready()
	if s := t.sandbox; s != nil && !t.final() {
		if s.ip != t.pod.Status.PodIP {
			t.differ("the API says that its address is %q, the runtime %q", t.pod.Status.PodIP, s.ip)
		}
		t.condition(v1.PodReadyToStartContainers, true)
	}
	t.condition(v1.PodScheduled, true)
}

func (t *truth) final() bool {
	return t.pod.Status.Phase == v1.PodFailed || t.pod.Status.Phase == v1.PodSucceeded
}

// container compares the status of one container with its newest instance.
func (t *truth) container(name string, statuses []v1.ContainerStatus) {
	i := slices.IndexFunc(statuses, func(s v1.ContainerStatus) bool { return s.Name == name })
	in := t.newest[name]
	if i < 0 {
		if in != nil || !t.final() {
			t.differ("the API has no status of container %s, the runtime %v", name, in)
		}
		return
	}
	s := &statuses[i]
	end := s.State.Terminated
	if end == nil {
		end = s.LastTerminationState.Terminated
	}
	attempt := int32(0)
	if in != nil {
		attempt = int32(in.Attempt) //nolint:gosec // a few
	}
	switch {
	case in == nil && (s.State.Running != nil || s.State.Terminated != nil && !t.final()):
		t.differ("container %s was never made, the API says %s", name, stateOf(s))
	case in != nil && in.Running && (s.State.Running == nil || !strings.HasSuffix(s.ContainerID, in.ID)):
		t.differ("container %s runs as %.12s, the API says %s as %.24s", name, in.ID, stateOf(s), s.ContainerID)
	case in != nil && in.Exited && (s.State.Running != nil || end == nil || end.ExitCode != in.ExitCode || !strings.HasSuffix(end.ContainerID, in.ID)):
		t.differ("container %s has ended with %d, attempt %d as %.12s; the API says %s, before %v", name, in.ExitCode, in.Attempt, in.ID, stateOf(s), s.LastTerminationState.Terminated)
	case s.RestartCount != attempt && (!t.anew || s.RestartCount < attempt):
		t.differ("container %s is attempt %d, the API says %d restarts", name, attempt, s.RestartCount)
	}
}

// finalPhase checks that the terminal phase agrees with how the containers ended.
func (t *truth) finalPhase() {
	s := &t.pod.Status
	// A pod also fails if it loses its sandbox before all its containers have run, and its restartPolicy allows no new sandbox.
	failed := slices.ContainsFunc(t.pod.Spec.Containers, func(c v1.Container) bool { return t.newest[c.Name] == nil || !t.newest[c.Name].Exited })
	for name, in := range t.newest {
		if in.Running {
			t.differ("its phase is %s, and container %s runs", s.Phase, name)
		}
		failed = failed || in.ExitCode != 0
	}
	switch {
	case s.Phase == v1.PodSucceeded && !t.over && !t.ended:
		t.differ("its phase is Succeeded, and it has not run to its end")
	case s.Phase == v1.PodSucceeded && slices.ContainsFunc(t.pod.Spec.Containers, func(c v1.Container) bool { return t.newest[c.Name] == nil || t.newest[c.Name].ExitCode != 0 }):
		t.differ("its phase is Succeeded, and a container failed")
	case s.Phase == v1.PodFailed && s.Reason == "" && !failed:
		t.differ("its phase is Failed, no reason is given, and no container failed")
	}
}

// phase checks that the phase of a pod without a terminal phase agrees with its running containers.
func (t *truth) phase() {
	if t.over {
		t.differ("all of it has ended for good, its phase is %s", t.pod.Status.Phase)
		return
	}
	if t.sandbox == nil {
		return
	}
	begun, waits := false, false
	for i := range t.pod.Spec.Containers {
		in := t.newest[t.pod.Spec.Containers[i].Name]
		begun = begun || in != nil && in.Sandbox == t.id
		waits = waits || in == nil || !in.Running && !in.Exited && in.Attempt == 0 // a container with an attempt above 0 has run before
	}
	want := v1.PodRunning
	if waits {
		want = v1.PodPending
	}
	if !begun && len(t.pod.Spec.InitContainers) > 0 {
		return // the init containers have not run yet in this sandbox
	}
	if t.pod.Status.Phase != want {
		t.differ("its phase is %s, by the runtime %s", t.pod.Status.Phase, want)
	}
	if begun {
		t.condition(v1.PodInitialized, true)
	}
}

// ready compares the readiness of the containers and of the pod in the API with the containers that run.
func (t *truth) ready() {
	if probesFail(t.pod) && !t.final() || len(t.pod.Spec.ReadinessGates) > 0 {
		return // probes and readiness gates may change the readiness at any time
	}
	all := !t.final()
	one := func(name string, statuses []v1.ContainerStatus) {
		in := t.newest[name]
		runs := in != nil && in.Running
		all = all && runs
		for i := range statuses {
			if s := &statuses[i]; s.Name == name && s.Ready != runs {
				t.differ("container %s: running is %v, ready by the API %v", name, runs, s.Ready)
			}
		}
	}
	for i := range t.pod.Spec.InitContainers {
		if c := &t.pod.Spec.InitContainers[i]; c.RestartPolicy != nil {
			one(c.Name, t.pod.Status.InitContainerStatuses)
		}
	}
	for i := range t.pod.Spec.Containers {
		one(t.pod.Spec.Containers[i].Name, t.pod.Status.ContainerStatuses)
	}
	t.condition(v1.ContainersReady, all)
	t.condition(v1.PodReady, all)
}

func (t *truth) condition(typ v1.PodConditionType, want bool) {
	if t.final() && len(t.newest) == 0 {
		return // the node refused the pod, and sets no other condition for such a pod
	}
	says := v1.ConditionFalse
	if want {
		says = v1.ConditionTrue
	}
	if is := Condition(t.pod, typ); is != says {
		t.differ("its condition %s is %q, by the runtime %q", typ, is, says)
	}
}
