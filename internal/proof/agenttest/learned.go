package agenttest

import (
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/wherry-node/wherry/internal/core/pod"
)

// learned records the facts that one agent process knows from its calls, and its calls in flight. A new agent knows nothing.
//
// Virtual time stands still while any goroutine of the bubble runs. So once an agent has learned a fact, all work that it begins at a later
// instant takes the fact into account. Only work that was already in flight may continue without it.
type learned struct {
	known  map[types.UID]bool      // pods that the agent has received from the API
	ending map[types.UID]time.Time // when the agent learned that a pod is deleted or gone
	steps  map[types.UID]*steps
	images []span // ImageStatus calls that ended at this instant
	calls  map[callKey]*callSeen

	hasServices bool // the agent has received the Services of the cluster
}

// span is a time range, such as the duration of a call.
type span struct{ began, ended time.Time }

// steps counts the calls in flight for one pod. A call that begins at the instant when another one ends continues the same work, because
// between two calls of the same work no virtual time passes.
type steps struct {
	busy  int
	ended time.Time // when the last call ended
	left  int       // number of further calls that may belong to work which was in flight when the agent learned of the pod's end
}

// maxSteps is the largest number of calls of one piece of work: look up the image, create the container, start it.
const maxSteps = 3

func newLearned() *learned {
	return &learned{known: map[types.UID]bool{}, ending: map[types.UID]time.Time{}, steps: map[types.UID]*steps{}, calls: map[callKey]*callSeen{}}
}

// recalls records that a new agent knows the pods and the services that earlier agents have learned of, because all of them use the same
// record on disk (offline start). t is what the new agent knows.
func (w *Witness) recalls(t *learned) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if last := w.recorded; last != nil {
		maps.Copy(t.known, last.known)
		t.hasServices = last.hasServices
	}
	w.recorded = t
}

func (t *learned) of(uid types.UID) *steps {
	s := t.steps[uid]
	if s == nil {
		s = &steps{}
		t.steps[uid] = s
	}
	return s
}

// end records that the agent has learned that the pod ends.
func (t *learned) end(uid types.UID) {
	if !t.ending[uid].IsZero() {
		return
	}
	t.ending[uid] = time.Now()
	s := t.of(uid)
	s.left = maxSteps * (s.busy + 1)
}

// endOf returns when the agent learned that the pod is deleted or gone; zero: it has not, or there is no agent.
func (t *learned) endOf(uid types.UID) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.ending[uid]
}

// begin records the start of a call for a pod. known is the time when the agent learned that it may start nothing more in the pod; zero: it
// has not learned that. begin returns false if the call begins after known and does not continue earlier work.
func (t *learned) begin(uid types.UID, known time.Time) bool {
	s, now := t.of(uid), time.Now()
	ok := known.IsZero() || !now.After(known)
	if !ok && s.left > 0 && (s.ended.Equal(now) || t.imageSeen(known)) {
		s.left--
		ok = true
	}
	s.busy++
	return ok
}

// done records that a call for a pod has ended.
func (t *learned) done(uid types.UID) {
	s := t.of(uid)
	s.busy--
	s.ended = time.Now()
}

// imageSeen reports whether an ImageStatus call that began at the time began or earlier ended at this instant. Such a call names no pod, so
// it may belong to the work for any pod.
func (t *learned) imageSeen(began time.Time) bool {
	for _, i := range t.images {
		if i.ended.Equal(time.Now()) && !i.began.After(began) {
			return true
		}
	}
	return false
}

// sawImage records that an ImageStatus call has ended. began is the time of its start.
func (t *learned) sawImage(began time.Time) {
	now := time.Now()
	if len(t.images) > 0 && !t.images[0].ended.Equal(now) {
		t.images = t.images[:0]
	}
	t.images = append(t.images, span{began, now})
}

// ends records what the agents know about the end of a pod. A new agent learns this from the checkpoint and the API.
type ends struct {
	began time.Time     // earliest time at which, as far as agents know, the termination began
	grace time.Duration // shortest grace period of all deletions and stops
}

// note adds a termination with its grace period: the earliest time and the shortest grace period count.
func (e *ends) note(began time.Time, grace time.Duration) {
	first := e.began.IsZero()
	if first || began.Before(e.began) {
		e.began = began
	}
	if first || grace < e.grace {
		e.grace = grace
	}
}

// answered records what the agent learns from an answer of the runtime: which containers and sandboxes have ended, and which no longer
// exist. began is the time when the call began.
func (w *Witness) answered(t *learned, began time.Time, in, out any, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	of := w.subject(in)
	if err != nil { // from an error the agent learns nothing, not even that an object is gone
		if of != "" {
			w.inspection(of).failed = true
		}
		return
	}
	switch r := out.(type) {
	case *runtimeapi.ImageStatusResponse:
		t.sawImage(began)
	case *runtimeapi.ContainerStatusResponse:
		w.inspects(of)
		w.sawContainer(r.GetStatus().GetId(), r.GetStatus().GetState())
	case *runtimeapi.PodSandboxStatusResponse:
		w.inspects(of)
		w.sawSandbox(r.GetStatus().GetId(), r.GetStatus().GetState())
		for _, c := range r.GetContainersStatuses() {
			w.sawContainer(c.Id, c.State)
		}
	case *runtimeapi.ListContainersResponse:
		there := make(map[string]bool, len(r.GetContainers()))
		for _, c := range r.GetContainers() {
			there[c.Id] = true
			w.sawContainer(c.Id, c.State)
		}
		for id, uid := range w.knownAlive {
			if w.sandboxes[id] == nil && !there[id] && (uid == of || of == "") {
				w.learnsEnd(id)
			}
		}
	case *runtimeapi.ListPodSandboxResponse: // an inspection of one pod begins with this call
		if of != "" {
			w.inspection(of).begin(t)
		}
		for _, s := range r.GetItems() {
			w.sawSandbox(s.Id, s.State)
		}
	}
}

// subject returns the UID of the pod that a request is about; "" for a request about all pods.
func (w *Witness) subject(in any) types.UID {
	switch r := in.(type) {
	case *runtimeapi.ContainerStatusRequest:
		if c := w.containers[r.ContainerId]; c != nil {
			return c.UID
		}
	case *runtimeapi.PodSandboxStatusRequest:
		if s := w.sandboxes[r.PodSandboxId]; s != nil {
			return s.uid
		}
	case *runtimeapi.ListContainersRequest:
		return types.UID(r.GetFilter().GetLabelSelector()[pod.LabelPodUID])
	case *runtimeapi.ListPodSandboxRequest:
		return types.UID(r.GetFilter().GetLabelSelector()[pod.LabelPodUID])
	}
	return ""
}

// inspection follows the agent's inspections of one pod. An inspection consists of two lists (sandboxes and containers), and then the
// status of each new or changed object. The agent acts only on a complete inspection. So after a list has shown that an object has ended,
// the agent may learn of the end only when the next successful inspection is complete. If another object ends meanwhile, the wait begins
// again. An agent that stops does not complete its inspection.
//
//	quiet ──an object ends──► ended ──an inspection begins──► anew ──the next inspection begins──► quiet
//
// The last step happens only if the inspection before was successful and was made by the same agent process; otherwise the state stays
// anew. An end in the state anew leads back to ended.
type inspection struct {
	ended, anew, failed bool
	by                  *learned // the agent process that makes the inspection
}

func (i *inspection) begin(by *learned) {
	if i.anew && !i.failed && i.by == by {
		i.ended = false
	}
	i.anew, i.failed, i.by = i.ended, false, by
}

// note records that a container or a sandbox of the pod has ended. The inspection in progress does not count for this end; a later one
// has to succeed.
func (i *inspection) note() { i.ended, i.anew = true, false }

func (w *Witness) inspection(uid types.UID) *inspection {
	i := w.inspections[uid]
	if i == nil {
		i = &inspection{}
		w.inspections[uid] = i
	}
	return i
}

// inspects records that the agent has received the status of an object of the pod. If the end of an object was seen before, the agent may
// have learned of that end only now.
func (w *Witness) inspects(uid types.UID) {
	if w.inspection(uid).ended {
		w.troubleAt[uid] = time.Now()
	}
}

func (w *Witness) sawContainer(id string, state runtimeapi.ContainerState) {
	switch state {
	case runtimeapi.ContainerState_CONTAINER_RUNNING:
		if in := w.containers[id]; in != nil {
			w.knownAlive[id] = in.UID
		}
	case runtimeapi.ContainerState_CONTAINER_EXITED:
		w.learnsEnd(id)
	}
}

func (w *Witness) sawSandbox(id string, state runtimeapi.PodSandboxState) {
	if state == runtimeapi.PodSandboxState_SANDBOX_READY {
		if s := w.sandboxes[id]; s != nil {
			w.knownAlive[id] = s.uid
		}
		return
	}
	w.learnsEnd(id)
}

// learnsEnd records that the agent learns of the end of a container or sandbox.
func (w *Witness) learnsEnd(id string) {
	if uid, was := w.knownAlive[id]; was {
		delete(w.knownAlive, id)
		w.troubleAt[uid] = time.Now()
		w.inspection(uid).note()
	}
}
