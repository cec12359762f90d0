package agenttest

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/core/podstatus"
	"github.com/wherry-node/wherry/internal/sim/simcri"
)

// apiChanged is called for every change in the API and checks the rules about it.
func (w *Witness) apiChanged(typ watch.EventType, old, obj runtime.Object) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if e, ok := obj.(*v1.Event); ok && typ != watch.Deleted {
		w.event(e)
	}
	if typ != watch.Deleted {
		w.volumeObject(obj)
	}
	p, ok := obj.(*v1.Pod)
	if !ok {
		return
	}
	s := w.pods[p.UID]
	if s == nil {
		s = &podSeen{added: time.Now()}
		w.pods[p.UID] = s
	}
	s.pod = p
	if final := p.Status.Phase == v1.PodFailed || p.Status.Phase == v1.PodSucceeded; final && s.finalAt.IsZero() {
		s.finalAt = time.Now()
	}
	if typ == watch.Added && s.gone && w.noAgent { // the pod came back while no agent ran; a running agent would have begun to end it
		s.gone, s.forced, s.deletedAt, s.readyAt = false, false, time.Time{}, time.Time{}
		delete(w.ends, p.UID)
	}
	if typ == watch.Deleted {
		s.gone = true
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
	was := old.(*v1.Pod)
	if !slices.EqualFunc(was.Spec.Containers, p.Spec.Containers, func(a, b v1.Container) bool {
		return a.Resources.Requests.Cpu().Equal(*b.Resources.Requests.Cpu())
	}) {
		s.resizes = append(s.resizes, time.Now())
	}
	w.checkStatus(was, p)
	w.checkReadiness(s, was, p)
}

// sends records the status of a pod that an agent sends, and the time, because from then on the agent knows what the status says. If the
// agent sends the same status again, the recorded time does not change.
func (w *Witness) sends(r *http.Request) {
	name, is := strings.CutSuffix(strings.TrimPrefix(r.URL.Path, "/api/v1/namespaces/"), "/status")
	namespace, name, of := strings.Cut(name, "/pods/")
	if !is || !of || r.Method != http.MethodPatch || r.Body == nil {
		return
	}
	body, err := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(body))
	if err != nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if key := namespace + "/" + name; w.sentStatus[key].body != string(body) {
		w.sentStatus[key] = sent{time.Now(), string(body)}
	}
}

// checkReadiness checks that a pod becomes unready only for a cause that the agent learned after it had reported the pod as ready: a
// container or sandbox ended, a probe failed, or the pod ends. If the node itself ends a pod (an eviction, a deadline), it reports the pod
// as not ready at once. After that the pod must not become ready again, and must not succeed.
func (w *Witness) checkReadiness(s *podSeen, was, is *v1.Pod) {
	if s.fails && (Ready(is) || is.Status.Phase == v1.PodSucceeded) {
		if is.Spec.ActiveDeadlineSeconds != nil && w.moved {
			// Without the checkpoint an agent computes the deadline anew. After a change of the clock the deadline may lie in the future
			// again, so that the pod may become ready.
			s.fails = false
			w.count(RuleReadiness, "it has a deadline and the clock was moved")
			return
		}
		w.broken(RuleReadiness, "pod %s was reported to fail and is ready, or has succeeded", is.Name)
	}
	if s.finalAt.IsZero() && !pod.IsMirror(is) && slices.ContainsFunc(is.Status.Conditions, func(c v1.PodCondition) bool {
		return c.Type == v1.PodReady && c.Status == v1.ConditionFalse && c.Reason == podstatus.ReasonPodFailed
	}) {
		s.fails = true
		w.count(RuleReadiness, "")
		return
	}
	if Ready(is) {
		if !equality.Semantic.DeepEqual(was.Status, is.Status) {
			s.readyAt = w.sentStatus[is.Namespace+"/"+is.Name].at
		}
		return
	}
	if !Ready(was) {
		return
	}
	uid := is.UID
	if pod.IsMirror(is) {
		uid = types.UID(is.Annotations[pod.AnnotationHash])
	}
	switch {
	case is.DeletionTimestamp != nil:
		return // a pod that is being deleted becomes unready
	case len(is.Spec.ReadinessGates) > 0:
		w.count(RuleReadiness, "the pod has readiness gates")
		return
	case w.statics[uid] == nil && w.pods[uid] == nil:
		w.count(RuleReadiness, "a pod that the test does not register")
		return
	}
	since := w.troubleAt[uid]
	for _, at := range []time.Time{w.unreadyAt[uid], s.finalAt, w.over[uid]} {
		if at.After(since) {
			since = at
		}
	}
	if st := w.statics[uid]; st != nil && st.overAt.After(since) {
		since = st.overAt
	}
	if d := is.Spec.ActiveDeadlineSeconds; d != nil && (w.moved || !time.Now().Before(s.startTime().Add(time.Duration(*d)*time.Second-rounding))) {
		w.count(RuleReadiness, "")
		return
	}
	if since.Before(s.readyAt) && w.heldUp(uid, since) {
		w.count(RuleReadiness, "the disk delayed the turn that reported ready")
		return
	}
	w.count(RuleReadiness, "")
	if since.Before(s.readyAt) {
		w.broken(RuleReadiness, "pod %s stopped being ready; the agent reported it ready at %s and learned of no reason since; the last reason was at %s",
			is.Name, s.readyAt.Format("15:04:05.000"), since.Format("15:04:05.000"))
	}
}

// probesFail reports whether a pod has a probe, and an annotation that makes probes fail in simcri.
func probesFail(p *v1.Pod) bool {
	fails := false
	for a := range p.Annotations {
		fails = fails || strings.HasPrefix(a, simcri.AnnotationFailAfter)
	}
	return fails && slices.ContainsFunc(allContainers(&p.Spec), func(c v1.Container) bool {
		return c.LivenessProbe != nil || c.StartupProbe != nil || c.ReadinessProbe != nil
	})
}

func allContainers(s *v1.PodSpec) []v1.Container {
	return slices.Concat(s.InitContainers, s.Containers)
}

// event checks that Started events do not count more starts than the runtime has seen.
func (w *Witness) event(e *v1.Event) {
	uid := string(e.InvolvedObject.UID)
	if e.Reason != "Started" || e.InvolvedObject.Kind != "Pod" {
		return
	}
	n := max(e.Count, 1)
	w.eventsOf[uid] += int(n - w.eventCount[e.UID])
	w.eventCount[e.UID] = n
	if w.eventsOf[uid] > w.startsAll[uid] {
		w.broken(RuleEvents, "pod %s: events count %d started containers, but there were %d", e.InvolvedObject.Name, w.eventsOf[uid], w.startsAll[uid])
	}
}

// startsAnew reports whether the restart counts in a mirror may fall: the static pod began a new life while the API server was unreachable,
// and the mirror still showed the life before. It returns true once for each new life.
func (w *Witness) startsAnew(p *v1.Pod) bool {
	st := w.statics[types.UID(p.Annotations[pod.AnnotationHash])]
	if !pod.IsMirror(p) || st == nil || !st.anew {
		return false
	}
	st.anew = false
	return true
}

// wasAttempt reports whether a container has been restarted as often as its status s says. If not, the status is forged.
func (w *Witness) wasAttempt(p *v1.Pod, s *v1.ContainerStatus) bool {
	uid := p.UID
	if pod.IsMirror(p) {
		uid = types.UID(p.Annotations[pod.AnnotationMirror]) // a forged mirror may lack the other annotations
	}
	in := w.newestOf[string(uid)+"/"+s.Name]
	return in == nil || int64(s.RestartCount) <= int64(in.Attempt)+1
}

func (w *Witness) checkStatus(was, is *v1.Pod) {
	if (was.Status.Phase == v1.PodFailed || was.Status.Phase == v1.PodSucceeded) && is.Status.Phase != was.Status.Phase {
		w.broken(RuleTerminal, "pod %s left the terminal phase %s for %s", is.Name, was.Status.Phase, is.Status.Phase)
	}
	var fell []string
	for i := range was.Status.ContainerStatuses {
		a := &was.Status.ContainerStatuses[i]
		for j := range is.Status.ContainerStatuses {
			if b := &is.Status.ContainerStatuses[j]; b.Name == a.Name && b.RestartCount < a.RestartCount && w.wasAttempt(is, a) {
				fell = append(fell, fmt.Sprintf("%s fell from %d to %d", a.Name, a.RestartCount, b.RestartCount))
			}
		}
	}
	if len(fell) > 0 && !w.startsAnew(is) {
		w.broken(RuleAttempts, "pod %s: the restart count of %s", is.Name, strings.Join(fell, ", of "))
	}
}
