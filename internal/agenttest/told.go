package agenttest

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/wherry-node/wherry/internal/pod"
)

// told is what one agent process has been told and what it has under way. A new agent has been told nothing.
//
// Virtual time stands still while anything in a bubble computes. So whatever an agent does at a later instant than it
// was told something, it does with that knowledge, unless it continues a step that was under way then.
type told struct {
	known  map[types.UID]bool      // pods that the API told of
	ending map[types.UID]time.Time // when it was told that a pod is deleted, or is not there
	steps  map[types.UID]*steps
	images []span // looks at images that ended at this instant
}

// span is a call from its beginning to its end.
type span struct{ began, ended time.Time }

// steps are the calls of one pod that are under way. A call that begins at the instant at which another ends continues
// the same piece of work: an agent does nothing between them that takes time.
type steps struct {
	busy  int
	ended time.Time // of the last
	left  int       // how many calls may still continue what was under way when the pod's end was told
}

// maxSteps bounds the calls of one piece of work: look at the image, create, start.
const maxSteps = 3

func newTold() *told {
	return &told{known: map[types.UID]bool{}, ending: map[types.UID]time.Time{}, steps: map[types.UID]*steps{}}
}

func (t *told) of(uid types.UID) *steps {
	s := t.steps[uid]
	if s == nil {
		s = &steps{}
		t.steps[uid] = s
	}
	return s
}

// end notes that the agent is told that the pod ends.
func (t *told) end(uid types.UID) {
	if !t.ending[uid].IsZero() {
		return
	}
	t.ending[uid] = time.Now()
	s := t.of(uid)
	s.left = maxSteps * (s.busy + 1)
}

// begin notes a call for a pod. It reports false for a call that starts something later than the agent knew, at
// known (zero: it does not know), that it must not.
func (t *told) begin(uid types.UID, known time.Time) bool {
	s, now := t.of(uid), time.Now()
	ok := known.IsZero() || !now.After(known)
	if !ok && s.left > 0 && (s.ended.Equal(now) || t.imageSeen(known)) {
		s.left--
		ok = true
	}
	s.busy++
	return ok
}

// done notes the end of a call for a pod.
func (t *told) done(uid types.UID) {
	s := t.of(uid)
	s.busy--
	s.ended = time.Now()
}

// imageSeen reports whether a look at an image ended at this instant that began no later than an instant. Such a look does
// not say for which pod it is.
func (t *told) imageSeen(began time.Time) bool {
	for _, i := range t.images {
		if i.ended.Equal(time.Now()) && !i.began.After(began) {
			return true
		}
	}
	return false
}

// sawImage notes the end of a look at an image.
func (t *told) sawImage(began time.Time) {
	now := time.Now()
	if len(t.images) > 0 && !t.images[0].ended.Equal(now) {
		t.images = t.images[:0]
	}
	t.images = append(t.images, span{began, now})
}

// ends is what agents know of the end of a pod: it outlives them in checkpoints and in the API.
type ends struct {
	began time.Time     // the earliest that an agent can take for its beginning
	grace time.Duration // the shortest that was given
}

// tell notes another beginning and grace; the earliest and the shortest count.
func (e *ends) tell(began time.Time, grace time.Duration) {
	first := e.began.IsZero()
	if first || began.Before(e.began) {
		e.began = began
	}
	if first || grace < e.grace {
		e.grace = grace
	}
}

// answered notes what an answer of the runtime to a call that began then tells: the first time that it shows an end, and what
// has vanished.
func (w *Witness) answered(t *told, began time.Time, in, out any, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	of := w.subject(in)
	if err != nil { // it tells of nothing, also not that what it would list has vanished
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
		for id, uid := range w.aliveTold {
			if w.sandboxes[id] == nil && !there[id] && (uid == of || of == "") {
				w.endTold(id)
			}
		}
	case *runtimeapi.ListPodSandboxResponse: // an inspection of one pod begins with it
		if of != "" {
			w.inspection(of).begin(t)
		}
		for _, s := range r.GetItems() {
			w.sawSandbox(s.Id, s.State)
		}
	}
}

// subject is the pod that a question is about; "" for all pods.
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

// inspection is a look at all of one pod: two lists, then the status of each object that is new or has changed. An agent goes
// by it when it is complete. So an end that a list told of is told once more by each answer, until an inspection that began
// after has gone well. Another end begins this anew. An agent that ends leaves its inspection unfinished.
//
//	quiet ──► told of an end ──► inspected anew ──► quiet, with the next inspection, unless this one failed
type inspection struct {
	told, anew, failed bool
	by                 *told // the agent process whose inspection it is
}

func (i *inspection) begin(by *told) {
	if i.anew && !i.failed && i.by == by {
		i.told = false
	}
	i.anew, i.failed, i.by = i.told, false, by
}

// tell notes the end of an object of the pod. What an earlier end has begun does not count for it.
func (i *inspection) tell() { i.told, i.anew = true, false }

func (w *Witness) inspection(uid types.UID) *inspection {
	i := w.inspections[uid]
	if i == nil {
		i = &inspection{}
		w.inspections[uid] = i
	}
	return i
}

// inspects notes an answer for one object of a pod.
func (w *Witness) inspects(uid types.UID) {
	if w.inspection(uid).told {
		w.troubleTold[uid] = time.Now()
	}
}

func (w *Witness) sawContainer(id string, state runtimeapi.ContainerState) {
	switch state {
	case runtimeapi.ContainerState_CONTAINER_RUNNING:
		if in := w.containers[id]; in != nil {
			w.aliveTold[id] = in.UID
		}
	case runtimeapi.ContainerState_CONTAINER_EXITED:
		w.endTold(id)
	}
}

func (w *Witness) sawSandbox(id string, state runtimeapi.PodSandboxState) {
	if state == runtimeapi.PodSandboxState_SANDBOX_READY {
		if s := w.sandboxes[id]; s != nil {
			w.aliveTold[id] = s.uid
		}
		return
	}
	w.endTold(id)
}

// endTold notes that the agent is told of the end of a container or of a sandbox.
func (w *Witness) endTold(id string) {
	if uid, was := w.aliveTold[id]; was {
		delete(w.aliveTold, id)
		w.troubleTold[uid] = time.Now()
		w.inspection(uid).tell()
	}
}
