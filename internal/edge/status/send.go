package status

import (
	"context"
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/core/pod"
)

// job holds the data that one request needs, copied from the pod's entry under the lock.
type job struct {
	ref     pod.Ref
	base    *v1.Pod
	want    *v1.PodStatus
	version uint32
	patch   bool
	remove  bool
}

// answer is the result of one request. At most one of pod, over and err is set.
type answer struct {
	pod     *v1.Pod // the object after the PATCH
	sent    []byte  // the PATCH
	over    bool    // the pod is deleted or missing, or another pod has its name: Set does nothing until Forget is called
	err     error
	fresh   *v1.Pod // the pod as read after the API rejected the request
	refused bool    // the API rejected the content or a precondition of the request
	invalid bool    // the API rejected the content of the request, and would reject the same content again
}

// turn sends one request for e and schedules the next one. During the request e is in no queue.
func (w *Writer) turn(e *entry) {
	w.mu.Lock()
	j := job{base: e.base, want: e.want, version: e.version}
	if !e.ended && e.want != nil {
		j.ref = pod.RefOf(e.base)
		j.patch, j.remove = e.needsPatch(), e.needsDelete()
	}
	w.mu.Unlock()

	ctx, cancel := context.WithTimeout(w.ctx, w.cfg.Timeout)
	var a answer
	switch {
	case j.patch:
		a = w.patch(ctx, j)
	case j.remove:
		a = w.delete(ctx, j.ref)
	}
	cancel()
	w.finish(e, j, a)
}

// patch sends the status of the job.
func (w *Writer) patch(ctx context.Context, j job) answer {
	body, err := buildPatch(j.ref.UID, &j.base.Status, j.want)
	if err != nil {
		return answer{err: err, refused: true}
	}
	if body == nil {
		return answer{pod: j.base}
	}
	p, err := w.cfg.Pods(j.ref.Namespace).Patch(ctx, j.ref.Name,
		types.StrategicMergePatchType, body, metav1.PatchOptions{}, "status")
	if err != nil {
		return w.classify(ctx, j.ref, err)
	}
	if p.UID != j.ref.UID {
		return answer{over: true}
	}
	return answer{pod: p, sent: body}
}

// delete removes the finished pod from the API at once.
func (w *Writer) delete(ctx context.Context, ref pod.Ref) answer {
	now := int64(0)
	err := w.cfg.Pods(ref.Namespace).Delete(ctx, ref.Name, metav1.DeleteOptions{
		GracePeriodSeconds: &now, Preconditions: metav1.NewUIDPreconditions(string(ref.UID)),
	})
	if err != nil {
		return w.classify(ctx, ref, err)
	}
	return answer{over: true}
}

// classify interprets an error of the API. If the error does not contain enough information, it reads the pod with one GET.
func (w *Writer) classify(ctx context.Context, ref pod.Ref, err error) answer {
	switch {
	case gone(err), uidConflict(err):
		return answer{over: true}
	case !apierrors.IsConflict(err) && !apierrors.IsInvalid(err) && !apierrors.IsBadRequest(err):
		return answer{err: err}
	}
	a := answer{err: err, refused: true, invalid: apierrors.IsInvalid(err)}
	p, getErr := w.cfg.Pods(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	switch {
	case gone(getErr):
		return answer{over: true}
	case getErr != nil:
		a.err = fmt.Errorf("%w (and reading the pod: %w)", err, getErr)
	case p.UID != ref.UID:
		return answer{over: true}
	default:
		a.fresh = p
	}
	return a
}

// gone reports whether the API server says that the pod does not exist. A 404 that is not in the API's own form comes from a proxy or load
// balancer that did not reach the API server, and says nothing about the pod.
func gone(err error) bool {
	return apierrors.IsNotFound(err) && !apierrors.IsUnexpectedServerError(err)
}

// uidConflict reports whether the name belongs to a pod with another UID. The API server says so only in the text of the error.
// If that text ever changes, the GET in classify detects it.
func uidConflict(err error) bool {
	return apierrors.IsConflict(err) && strings.Contains(err.Error(), "UID in precondition")
}

// finish records the answer of a request and schedules the pod's next request. It calls the callbacks of Config without the lock.
func (w *Writer) finish(e *entry, j job, a answer) {
	now := time.Now()
	var synced time.Duration = -1
	w.mu.Lock()
	w.inFlight--
	if now.Sub(e.wrote) > repairRest {
		e.repairs = 0
	}
	e.inFlight, e.wrote = false, now
	if e.ended { // Forget was called meanwhile
		w.mu.Unlock()
		return
	}
	switch {
	case a.over:
		w.end(e)
	case a.err != nil:
		w.failed(e, j, a, now)
	case a.pod != nil:
		w.countRepair(e, j, a.sent)
		synced = e.acknowledge(j, a.pod, a.sent, now)
		w.recovered(now)
		w.schedule(e, now)
	default:
		w.schedule(e, now)
	}
	w.tellFirst(j.ref.UID, e)
	refused := e.rejected == j.version && a.invalid && e.base != nil && pod.IsMirror(e.base)
	w.mu.Unlock()

	switch {
	case refused && w.cfg.Refused != nil:
		w.cfg.Refused(j.ref.UID)
	case a.over:
	case synced >= 0:
		w.cfg.Synced(synced)
	}
}

// maxShown is how many bytes of a repair the log shows.
const maxShown = 512

// countRepair counts a request that was acknowledged if it repairs what another component has changed, and logs once that this goes on.
func (w *Writer) countRepair(e *entry, j job, sent []byte) {
	if e.acked != j.version {
		e.repairs = 0
		return
	}
	if sent == nil || e.repairs >= mostFailures {
		return
	}
	if e.repairs++; e.repairs == manyRepairs {
		w.cfg.Log.Warn("another component keeps changing the status of a pod that this node writes; it is corrected less and less often: find out who writes it",
			"pod", j.ref.String(), "correction", strings.ToValidUTF8(string(sent[:min(len(sent), maxShown)]), ""))
	}
}

// acknowledge records that the API has stored the version of job j. It returns how long the acknowledgement took, counted
// from e.since.
func (e *entry) acknowledge(j job, p *v1.Pod, sent []byte, now time.Time) time.Duration {
	switch {
	case e.base == nil || newer(p.ResourceVersion, e.base.ResourceVersion):
		e.base = p
	case p.ResourceVersion == e.base.ResourceVersion:
		p = e.base // the watch has delivered the same version already: use the watch's object, which stays in memory anyway
	}
	e.failures, e.alone, e.rejected, e.refusal = 0, withOthers, 0, nil
	e.acked, e.echo = j.version, &p.Status
	// If the stored status lacks a field that the PATCH sent, the server drops that field: sending it again is useless. If the stored
	// status lacks a field that the PATCH did not send, another component changed this field. So echo is cleared, and the next PATCH
	// sends the field.
	if missing, err := buildPatch(j.ref.UID, &p.Status, j.want); err == nil && missing != nil && !within(missing, sent) {
		e.echo = nil
	}
	took := now.Sub(e.since)
	if e.version != j.version {
		e.since = now
	} else if !differs(&p.Status, e.want) {
		e.want = &p.Status // share the status, so that memory has one copy instead of two
	}
	return took
}

// alone says whether the requests of a pod fail although those of other pods succeed.
//
//	withOthers ──► triedAgain ──► byItself
//	     ▲ another pod's │ fails      │
//	     │ succeeds      │ again      │
//	     └───────────────┴────────────┘ acknowledged
type alone uint8

const (
	withOthers alone = iota // none fails, or no request of another pod has succeeded since this pod's failed
	triedAgain              // a request of another pod has succeeded, so this pod's was sent again at once
	byItself                // that failed too, so its cause is not an outage: an admission webhook for the pod's namespace, or an overload
)

// failed schedules a retry of a request that has failed.
func (w *Writer) failed(e *entry, j job, a answer, now time.Time) {
	if w.ctx.Err() != nil {
		return // the agent is stopping, and the next agent writes the status
	}
	if a.fresh != nil {
		e.observe(a.fresh)
	}
	if a.refused && e.version != j.version {
		w.schedule(e, now) // the API server may accept a newer status
		return
	}
	e.failures = min(e.failures+1, mostFailures)
	if !a.refused {
		delay := min(retryInitial<<(e.failures-1), retryMax)
		switch {
		case e.alone == triedAgain:
			e.alone = byItself
			w.cfg.Log.Warn("cannot write the status of a pod, although those of others are written; will retry", "pod", j.ref.String(), "retryIn", delay, "err", a.err)
		case e.alone == withOthers && !w.outage:
			w.outage = true
			w.cfg.Log.Warn("cannot write pod status, will retry", "pod", j.ref.String(), "retryIn", delay, "err", a.err)
		}
		w.wait(e, now.Add(delay))
		return
	}
	delay := min(retryInitial<<(e.failures-1), rejectMax)
	if a.invalid && a.fresh != nil {
		w.refuse(e, j, a, now.Add(delay))
		return
	}
	if e.rejected != j.version {
		e.rejected = j.version
		w.cfg.Log.Warn("the API server refused a pod status, will retry",
			"pod", j.ref.String(), "phase", j.want.Phase, "retryIn", delay, "err", a.err)
	}
	w.wait(e, now.Add(delay))
}

// refuse sets aside a status that the API server rejected as invalid, because the API server would reject the same status again. The
// Writer retries it when the status or the pod has changed. It does not delay the deletion of a pod that has ended.
func (w *Writer) refuse(e *entry, j job, a answer, until time.Time) {
	if e.rejected != j.version {
		w.cfg.Log.Error("the API server refuses a pod status; will retry when the status or the pod changes",
			"pod", j.ref.String(), "phase", j.want.Phase, "err", a.err)
	}
	e.rejected, e.refusal = j.version, &refusal{e.base.ResourceVersion, until}
	w.schedule(e, time.Now())
}

// recovered is called when the API server answers again. It ends the back-off of all pods that wait for it, but only once for each pod: a pod
// whose request then fails again keeps its back-off, because otherwise each success of another pod would cause one more request for it.
func (w *Writer) recovered(now time.Time) {
	if !w.outage {
		return
	}
	w.outage = false
	w.cfg.Log.Info("pod status is written again", "waiting", w.waiting.Len())
	w.waiting.Hasten(now, func(p *place) bool {
		hasten := p.e.failures > 0 && p.e.rejected == 0 && p.e.alone == withOthers
		if hasten {
			p.e.alone = triedAgain
		}
		return hasten
	})
	w.nudge()
}
