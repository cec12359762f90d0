package agenttest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/wherry-node/wherry/internal/pod"
)

// outageSettles is how long after the API or the agent came back the agent may not know of a deletion yet: it asks again
// after a back-off.
const outageSettles = 60 * time.Second

// Rule is an invariant that the Witness holds.
type Rule string

// The rules, in the order of the design.
const (
	RuleOneInstance  Rule = "a container never has two live instances"
	RuleEnding       Rule = "nothing starts while a pod ends"
	RuleInits        Rule = "main containers start after the init containers"
	RuleAttempts     Rule = "attempts and restart counts only grow"
	RuleNames        Rule = "two pods of one name never overlap"
	RuleTerminal     Rule = "a terminal phase is never left"
	RuleGrace        Rule = "grace periods are honoured"
	RuleTerm         Rule = "TERM comes before KILL"
	RuleStopped      Rule = "a pod leaves the API when nothing of it runs"
	RuleConverges    Rule = "the API comes to say what the runtime does"
	RuleNothingStays Rule = "nothing of a deleted pod stays"
	RuleReadiness    Rule = "readiness does not flap"
	RuleEvents       Rule = "an event tells of what has happened, once"
)

// Violation is a rule that broke.
type Violation struct {
	Rule Rule
	At   time.Time
	What string
}

// String is the violation on one line.
func (v Violation) String() string {
	return fmt.Sprintf("%s %s: %s", v.At.Format("15:04:05.000"), v.Rule, v.What)
}

// Instance is a container of the runtime as the Witness saw it.
type Instance struct {
	ID, Name, Namespace, Pod, Sandbox string
	UID                               types.UID
	Attempt                           uint32
	Running                           bool
	ExitCode                          int32
}

// Witness watches the runtime and the API from outside and writes down every invariant that breaks. It sees every
// change at the moment of the change.
type Witness struct {
	// KnownWithin is how long after a deletion something may still start in the pod: the watch has to tell of it, and
	// an action that was under way has to ask for the image first. To be set before anything happens.
	KnownWithin time.Duration
	// KnowsAgainWithin is the same after an outage of the API, or the start of an agent.
	KnowsAgainWithin time.Duration
	// onBroken is called at the first violation.
	onBroken func()

	mu         sync.Mutex
	violations []Violation
	containers map[string]*Instance
	sandboxes  map[string]*sandboxSeen
	highest    map[string]uint32 // attempt by uid/container
	initDone   map[string]bool   // sandbox/container
	pods       map[types.UID]*podSeen
	down       bool              // no API
	noAgent    bool              // no agent
	agents     int               // how many have begun
	askedBy    map[types.UID]int // which of them asked for the pod's newest sandbox
	backAt     time.Time         // when the API or the agent last came back
	starts     int
	startsOf   map[string][]time.Time // by uid/container, at most maxStarts
	exits      map[string]int32       // the last exit code by uid/container
	startsAll  map[string]int         // by uid
	termed     map[string]bool        // container IDs that were asked to end with time to do so
	told       map[types.UID]int32    // events of starts: the count of each
	toldOf     map[string]int         // and their sum, by the pod's uid
}

const maxStarts = 64

type sandboxSeen struct {
	uid   types.UID
	name  string
	ready bool
}

// podSeen is a pod as the API had it, also after it is gone.
type podSeen struct {
	pod       *v1.Pod
	deletedAt time.Time // first asked for
	mayKillAt time.Time // the earliest end of its grace period
	forced    bool
	readyAt   time.Time // when the API came to say so
	trouble   time.Time // when last a container or the sandbox of it ended
}

func newWitness() *Witness {
	return &Witness{KnownWithin: 5 * time.Second, KnowsAgainWithin: outageSettles, containers: map[string]*Instance{}, sandboxes: map[string]*sandboxSeen{}, highest: map[string]uint32{},
		initDone: map[string]bool{}, pods: map[types.UID]*podSeen{}, startsOf: map[string][]time.Time{}, exits: map[string]int32{},
		startsAll: map[string]int{}, termed: map[string]bool{}, askedBy: map[types.UID]int{}, told: map[types.UID]int32{}, toldOf: map[string]int{}}
}

// broken is called with the lock held.
func (w *Witness) broken(rule Rule, format string, args ...any) {
	if len(w.violations) == 0 && w.onBroken != nil {
		w.onBroken()
	}
	if len(w.violations) < 20 {
		w.violations = append(w.violations, Violation{rule, time.Now(), fmt.Sprintf(format, args...)})
	}
}

// note writes down what was found by other means.
func (w *Witness) note(rule Rule, format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.broken(rule, format, args...)
}

// Violations are the invariants that broke.
func (w *Witness) Violations() []Violation {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.violations)
}

// Starts is how many containers were ever started.
func (w *Witness) Starts() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.starts
}

// StartsOf is when a container was started, the first 64 times.
func (w *Witness) StartsOf(uid types.UID, container string) []time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.startsOf[string(uid)+"/"+container])
}

// LastExit is the exit code with which a container last ended; false before it did.
func (w *Witness) LastExit(uid types.UID, container string) (int32, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	code, ok := w.exits[string(uid)+"/"+container]
	return code, ok
}

func (w *Witness) outage(on bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.down = on
	w.backAt = time.Now()
}

func (w *Witness) agent(on bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.noAgent = !on
	if on {
		w.agents++
	}
	w.backAt = time.Now()
}

// deleting notes a deletion that the World asks for.
func (w *Witness) deleting(p *v1.Pod, grace *int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.pods[p.UID]
	if s == nil {
		return
	}
	seconds := *p.Spec.TerminationGracePeriodSeconds
	if grace != nil {
		seconds = *grace
	}
	first := s.deletedAt.IsZero()
	if first {
		s.deletedAt = time.Now()
	}
	// A shorter period counts from the first deletion too: so does the deletion timestamp.
	if at := s.deletedAt.Add(time.Duration(seconds) * time.Second); first || at.Before(s.mayKillAt) {
		s.mayKillAt = at
	}
	s.forced = s.forced || seconds == 0
}

// force says that a pod may leave the API whatever runs of it: somebody makes it do so.
func (w *Witness) force(uid types.UID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if s := w.pods[uid]; s != nil {
		s.forced = true
	}
}

// apiChanged sees every change in the API.
func (w *Witness) apiChanged(typ watch.EventType, old, obj runtime.Object) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if e, ok := obj.(*v1.Event); ok && typ != watch.Deleted {
		w.event(e)
	}
	p, ok := obj.(*v1.Pod)
	if !ok {
		return
	}
	s := w.pods[p.UID]
	if s == nil {
		s = &podSeen{}
		w.pods[p.UID] = s
	}
	s.pod = p
	if typ == watch.Deleted {
		for _, c := range w.containers {
			if c.UID == p.UID && c.Running && !s.forced {
				w.broken(RuleStopped, "pod %s was removed from the API while its container %s runs", p.Name, c.Name)
			}
		}
		return
	}
	if old == nil {
		return
	}
	w.judgeStatus(old.(*v1.Pod), p)
	w.judgeReadiness(s, old.(*v1.Pod), p)
}

// judgeReadiness: where no probe is asked, only the end of a container, or of the pod, takes readiness away. What ended
// up to a minute before the API said ready may be told of late.
func (w *Witness) judgeReadiness(s *podSeen, was, is *v1.Pod) {
	switch {
	case Ready(was) == Ready(is):
	case Ready(is):
		s.readyAt = time.Now()
	case is.DeletionTimestamp != nil || is.Spec.ActiveDeadlineSeconds != nil || probed(&is.Spec) || len(is.Spec.ReadinessGates) > 0:
	case s.trouble.Before(s.readyAt.Add(-time.Minute)):
		w.broken(RuleReadiness, "pod %s is not ready any more, though nothing of it has ended since %s", is.Name, s.trouble.Format(time.TimeOnly))
	}
}

func probed(s *v1.PodSpec) bool {
	for _, list := range [][]v1.Container{s.InitContainers, s.Containers} {
		if slices.ContainsFunc(list, func(c v1.Container) bool {
			return c.LivenessProbe != nil || c.StartupProbe != nil || c.ReadinessProbe != nil
		}) {
			return true
		}
	}
	return false
}

// event: no more starts are told of than there were.
func (w *Witness) event(e *v1.Event) {
	uid := string(e.InvolvedObject.UID)
	if e.Reason != "Started" || e.InvolvedObject.Kind != "Pod" {
		return
	}
	n := max(e.Count, 1)
	w.toldOf[uid] += int(n - w.told[e.UID])
	w.told[e.UID] = n
	if w.toldOf[uid] > w.startsAll[uid] {
		w.broken(RuleEvents, "pod %s: events tell of %d started containers, there were %d", e.InvolvedObject.Name, w.toldOf[uid], w.startsAll[uid])
	}
}

// asked sees what the agent asks of the runtime, before it is done.
func (w *Witness) asked(in any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch r := in.(type) {
	case *runtimeapi.RunPodSandboxRequest:
		uid := types.UID(r.GetConfig().GetMetadata().GetUid())
		w.askedBy[uid] = w.agents
		w.mayStart(uid, "a sandbox")
	case *runtimeapi.CreateContainerRequest:
		w.mayStart(types.UID(r.GetSandboxConfig().GetMetadata().GetUid()), "container "+r.GetConfig().GetMetadata().GetName())
	case *runtimeapi.StopContainerRequest:
		if r.Timeout > 0 {
			w.termed[r.ContainerId] = true
			return
		}
		w.mustBeDead(r.ContainerId, "is killed")
	case *runtimeapi.RemoveContainerRequest:
		w.mustBeDead(r.ContainerId, "is removed")
	case *runtimeapi.StopPodSandboxRequest:
		w.sandboxMustBeDead(r.PodSandboxId)
	case *runtimeapi.RemovePodSandboxRequest:
		w.sandboxMustBeDead(r.PodSandboxId)
	}
}

func (w *Witness) mustBeDead(id, what string) {
	if c := w.containers[id]; c != nil && c.Running && !w.termed[id] {
		w.broken(RuleTerm, "pod %s: container %s %s without being asked to end", c.Pod, c.Name, what)
	}
}

func (w *Witness) sandboxMustBeDead(id string) {
	for _, c := range w.containers {
		if c.Sandbox == id {
			w.mustBeDead(c.ID, "loses its sandbox")
		}
	}
}

func (w *Witness) judgeStatus(was, is *v1.Pod) {
	if (was.Status.Phase == v1.PodFailed || was.Status.Phase == v1.PodSucceeded) && is.Status.Phase != was.Status.Phase {
		w.broken(RuleTerminal, "pod %s left the terminal phase %s for %s", is.Name, was.Status.Phase, is.Status.Phase)
	}
	for i := range was.Status.ContainerStatuses {
		a := &was.Status.ContainerStatuses[i]
		for j := range is.Status.ContainerStatuses {
			if b := &is.Status.ContainerStatuses[j]; b.Name == a.Name && b.RestartCount < a.RestartCount {
				w.broken(RuleAttempts, "pod %s: the restart count of %s fell from %d to %d", is.Name, a.Name, a.RestartCount, b.RestartCount)
			}
		}
	}
}

// runtimeChanged sees every change in the runtime.
func (w *Witness) runtimeChanged(e *runtimeapi.ContainerEventResponse) {
	w.mu.Lock()
	defer w.mu.Unlock()
	st := e.PodSandboxStatus
	uid := types.UID(st.GetMetadata().GetUid())
	if e.ContainerId == st.Id && e.ContainerEventType == runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT {
		delete(w.sandboxes, st.Id)
	} else {
		w.sandbox(st, uid)
	}
	there := map[string]bool{}
	for _, c := range e.ContainersStatuses {
		there[c.Id] = true
		w.container(c, st, uid)
	}
	for id, c := range w.containers {
		if c.Sandbox == st.Id && !there[id] {
			delete(w.containers, id)
		}
	}
}

func (w *Witness) sandbox(st *runtimeapi.PodSandboxStatus, uid types.UID) {
	s := w.sandboxes[st.Id]
	if s == nil {
		s = &sandboxSeen{uid: uid, name: st.Metadata.Namespace + "/" + st.Metadata.Name}
		w.sandboxes[st.Id] = s
	}
	was := s.ready
	s.ready = st.State == runtimeapi.PodSandboxState_SANDBOX_READY
	if !s.ready {
		if was {
			w.troubled(uid)
		}
		return
	}
	for id, o := range w.sandboxes {
		if id == st.Id || !o.ready {
			continue
		}
		switch {
		case o.uid == uid:
			w.broken(RuleOneInstance, "pod %s has two ready sandboxes", s.name)
		case o.name == s.name && w.askedBy[uid] == w.agents: // what a killed agent asked for comes when the runtime likes
			w.broken(RuleNames, "two pods named %s are alive at once", s.name)
		}
	}
}

func (w *Witness) container(c *runtimeapi.ContainerStatus, st *runtimeapi.PodSandboxStatus, uid types.UID) {
	in := w.containers[c.Id]
	name := c.Labels[pod.LabelContainerName]
	if in == nil {
		in = &Instance{ID: c.Id, Name: name, UID: uid, Namespace: st.Metadata.Namespace, Pod: st.Metadata.Name, Sandbox: st.Id, Attempt: c.Metadata.Attempt}
		w.containers[c.Id] = in
		key := string(uid) + "/" + name
		if most, ok := w.highest[key]; ok && in.Attempt <= most {
			w.broken(RuleAttempts, "pod %s: container %s was created with attempt %d after %d", in.Pod, name, in.Attempt, most)
		}
		w.highest[key] = in.Attempt
	}
	was := in.Running
	in.Running, in.ExitCode = c.State == runtimeapi.ContainerState_CONTAINER_RUNNING, c.ExitCode
	switch {
	case in.Running && !was:
		w.started(in)
	case was && !in.Running:
		w.ended(in)
	}
}

func (w *Witness) started(in *Instance) {
	w.starts++
	if key := string(in.UID) + "/" + in.Name; len(w.startsOf[key]) < maxStarts {
		w.startsOf[key] = append(w.startsOf[key], time.Now())
	}
	for _, o := range w.containers {
		if o != in && o.Running && o.UID == in.UID && o.Name == in.Name {
			w.broken(RuleOneInstance, "pod %s: container %s has two live instances, attempts %d and %d", in.Pod, in.Name, o.Attempt, in.Attempt)
		}
	}
	w.startsAll[string(in.UID)]++
	s := w.pods[in.UID]
	if s == nil || !slices.ContainsFunc(s.pod.Spec.Containers, func(c v1.Container) bool { return c.Name == in.Name }) {
		return
	}
	for i := range s.pod.Spec.InitContainers {
		init := &s.pod.Spec.InitContainers[i]
		if init.RestartPolicy == nil && !w.initDone[in.Sandbox+"/"+init.Name] {
			w.broken(RuleInits, "pod %s: container %s started before its init container %s was done: %v", in.Pod, in.Name, init.Name, w.newest(in.UID, init.Name))
		}
	}
}

func (w *Witness) troubled(uid types.UID) {
	if s := w.pods[uid]; s != nil {
		s.trouble = time.Now()
	}
}

func (w *Witness) ended(in *Instance) {
	w.troubled(in.UID)
	w.exits[string(in.UID)+"/"+in.Name] = in.ExitCode
	if in.ExitCode == 0 {
		w.initDone[in.Sandbox+"/"+in.Name] = true
	}
	s := w.pods[in.UID]
	if in.ExitCode != 137 || s == nil || s.deletedAt.IsZero() || s.forced || endsItself(&s.pod.Spec) {
		return
	}
	if early := s.mayKillAt.Sub(time.Now()); early > 1500*time.Millisecond {
		w.broken(RuleGrace, "pod %s: container %s was killed %s before its grace period was over", in.Pod, in.Name, early)
	}
}

// endsItself: the pod may have been on its way out, or its container, for reasons of its own before it was deleted.
func endsItself(s *v1.PodSpec) bool {
	return s.ActiveDeadlineSeconds != nil || s.RestartPolicy != v1.RestartPolicyAlways || slices.ContainsFunc(s.Containers, func(c v1.Container) bool {
		return c.LivenessProbe != nil || c.StartupProbe != nil || (c.Lifecycle != nil && c.Lifecycle.PostStart != nil)
	})
}

// mayStart holds that the agent asks for nothing in a pod that it must know to be on its way out.
func (w *Witness) mayStart(uid types.UID, what string) {
	s := w.pods[uid]
	if s == nil {
		if strings.Contains(string(uid), "-") { // a static pod's UID, which the node makes, has none
			w.broken(RuleEnding, "%s is asked for in a pod that the API never had: %s", what, uid)
		}
		return
	}
	now := time.Now()
	if s.deletedAt.IsZero() || w.down || now.Sub(w.backAt) < w.KnowsAgainWithin {
		return
	}
	if late := now.Sub(s.deletedAt); late > w.KnownWithin {
		w.broken(RuleEnding, "pod %s: %s is asked for %s after the deletion", s.pod.Name, what, late)
	}
}

// Running returns the ID of the running instance of a container, or "".
func (w *Witness) Running(namespace, podName, container string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.containers {
		if c.Running && c.Namespace == namespace && c.Pod == podName && c.Name == container {
			return c.ID
		}
	}
	return ""
}

// Newest returns the newest instance of a container, or nil.
func (w *Witness) Newest(uid types.UID, name string) *Instance {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.newest(uid, name)
}

// newest is called with the lock held.
func (w *Witness) newest(uid types.UID, name string) *Instance {
	var found *Instance
	for _, c := range w.containers {
		if c.UID == uid && c.Name == name && (found == nil || c.Attempt > found.Attempt) {
			found = c
		}
	}
	if found == nil {
		return nil
	}
	in := *found
	return &in
}

// Containers are all that the runtime holds, by pod, name and attempt.
func (w *Witness) Containers() []Instance {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := make([]Instance, 0, len(w.containers))
	for _, c := range w.containers {
		out = append(out, *c)
	}
	slices.SortFunc(out, func(a, b Instance) int {
		return strings.Compare(fmt.Sprint(a.Pod, a.UID, a.Name, a.Attempt), fmt.Sprint(b.Pod, b.UID, b.Name, b.Attempt))
	})
	return out
}

// Sandboxes are the IDs of all sandboxes, sorted.
func (w *Witness) Sandboxes() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Sorted(maps.Keys(w.sandboxes))
}

// Present reports whether the runtime holds anything of a pod's name.
func (w *Witness) Present(namespace, name string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.sandboxes {
		if s.name == namespace+"/"+name {
			return true
		}
	}
	return false
}

// String lists what the runtime holds.
func (w *Witness) String() string {
	var b strings.Builder
	for _, c := range w.Containers() {
		fmt.Fprintf(&b, "CRI: pod %s %s %s attempt %d running=%v exit=%d %.12s\n", c.Pod, c.UID, c.Name, c.Attempt, c.Running, c.ExitCode, c.ID)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for id, s := range w.sandboxes {
		fmt.Fprintf(&b, "CRI: sandbox %s %s ready=%v %.12s\n", s.name, s.uid, s.ready, id)
	}
	return b.String()
}
