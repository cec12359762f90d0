package agenttest

import (
	"net/http"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// callKind is the kind of an agent's call to the runtime.
type callKind uint8

// These are the kinds of calls.
const (
	callOther callKind = iota
	callList           // lists all pods of the runtime
	callInspect
	callRunSandbox
	callStopSandbox
	callImage
	callPull
	callCreate
	callStart
	callStop
	callExec
)

// callKey identifies calls that do the same: the kind, the pod and, for calls about a container, the name of the container or of its image.
// A part that does not apply is "".
type callKey struct {
	kind callKind
	uid  types.UID
	name string
}

// callSeen records the calls of one agent process that have the same callKey.
type callSeen struct {
	flights []time.Time // start times of the calls that are in flight
	ended   bool        // a call has succeeded
	failed  time.Time   // start time of the last call that has ended, if it failed; zero: it succeeded
}

// keyOf returns the key of a request. A request that is about no pod has the kind callOther. The caller holds w.mu.
func (w *Witness) keyOf(in any) callKey {
	inSandbox := func(kind callKind, id string) callKey {
		if s := w.sandboxes[id]; s != nil {
			return callKey{kind, s.uid, ""}
		}
		return callKey{}
	}
	inContainer := func(kind callKind, id string) callKey {
		if c := w.containers[id]; c != nil {
			return callKey{kind, c.UID, c.Name}
		}
		return callKey{}
	}
	switch r := in.(type) {
	case *runtimeapi.RunPodSandboxRequest:
		return callKey{callRunSandbox, types.UID(r.GetConfig().GetMetadata().GetUid()), ""}
	case *runtimeapi.CreateContainerRequest:
		return callKey{callCreate, types.UID(r.GetSandboxConfig().GetMetadata().GetUid()), r.GetConfig().GetMetadata().GetName()}
	case *runtimeapi.PullImageRequest:
		return callKey{callPull, "", r.GetImage().GetImage()} // no UID, because all pods that need an image wait for one pull
	case *runtimeapi.ImageStatusRequest:
		return callKey{callImage, "", r.GetImage().GetImage()}
	case *runtimeapi.StartContainerRequest:
		return inContainer(callStart, r.ContainerId)
	case *runtimeapi.StopContainerRequest:
		return inContainer(callStop, r.ContainerId)
	case *runtimeapi.ExecSyncRequest:
		return inContainer(callExec, r.ContainerId)
	case *runtimeapi.StopPodSandboxRequest:
		return inSandbox(callStopSandbox, r.PodSandboxId)
	}
	if uid := w.subject(in); uid != "" {
		return callKey{callInspect, uid, ""}
	}
	switch in.(type) {
	case *runtimeapi.ListContainersRequest:
		return callKey{callList, "", "containers"}
	case *runtimeapi.ListPodSandboxRequest:
		return callKey{callList, "", "sandboxes"}
	}
	return callKey{}
}

// calls records that an agent begins a call. The function done is called with the error of the call when it has ended.
func (w *Witness) calls(t *learned, in any) (done func(error)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	key := w.keyOf(in)
	if key.kind == callOther {
		return func(error) {}
	}
	seen := t.calls[key]
	if seen == nil {
		seen = &callSeen{}
		t.calls[key] = seen
	}
	seen.flights = append(seen.flights, time.Now())
	began := time.Now()
	return func(err error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		for i, at := range seen.flights {
			if at.Equal(began) {
				seen.flights = append(seen.flights[:i], seen.flights[i+1:]...)
				break
			}
		}
		if status.Code(err) != codes.Canceled { // a call that the agent itself canceled proves nothing
			seen.failed, seen.ended = time.Time{}, seen.ended || err == nil
			if err != nil {
				seen.failed = began
			}
		}
	}
}

// services records that an agent has received the Services of the cluster, without which it cannot make the environment variables of
// containers.
func (w *Witness) services(t *learned, r *http.Request, resp *http.Response) {
	if strings.HasSuffix(r.URL.Path, "/services") && resp.StatusCode == http.StatusOK {
		w.mu.Lock()
		defer w.mu.Unlock()
		t.hasServices = true
	}
}

// inFlight reports whether a call with this key has been in flight for at least d.
func (t *learned) inFlight(kind callKind, uid types.UID, name string, d time.Duration) bool {
	s := t.calls[callKey{kind, uid, name}]
	return s != nil && len(s.flights) > 0 && time.Since(s.flights[0]) >= d
}

// succeeded reports whether any call with this key has succeeded.
func (t *learned) succeeded(kind callKind, uid types.UID, name string) bool {
	s := t.calls[callKey{kind, uid, name}]
	return s != nil && s.ended
}

// failedAfter looks at the last call with this key (kind, uid, name) that has ended and was not canceled. It reports whether this call failed
// and began later than the time after.
func (t *learned) failedAfter(kind callKind, uid types.UID, name string, after time.Time) bool {
	s := t.calls[callKey{kind, uid, name}]
	return s != nil && s.failed.After(after)
}

// failed looks at the last call with this key (kind, uid, name) that has ended and was not canceled. It reports whether this call failed.
func (t *learned) failed(kind callKind, uid types.UID, name string) bool {
	s := t.calls[callKey{kind, uid, name}]
	return s != nil && !s.failed.IsZero()
}
