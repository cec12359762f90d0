package agenttest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/wherry-node/wherry/internal/pod"
	"github.com/wherry-node/wherry/internal/simcri"
)

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
	if typ == watch.Added && s.gone && w.noAgent { // it was restored; an agent that looks on has begun to end it
		s.gone, s.forced, s.deletedAt, s.mayKillAt = false, false, time.Time{}, time.Time{}
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
	w.judgeStatus(old.(*v1.Pod), p)
	w.judgeReadiness(s, old.(*v1.Pod), p)
}

// toldWithin is how late an end may be told of: one call that a runtime never answers keeps the agent from seeing it for
// two minutes, "runtimeRequestTimeout", and for one more, to the next relist.
const toldWithin = 3 * time.Minute

// judgeReadiness: only the end of a container, or of the pod, takes readiness away, and a probe that fails as the pod's
// annotations say that it will. What ended up to toldWithin before the API said ready may be told of late.
func (w *Witness) judgeReadiness(s *podSeen, was, is *v1.Pod) {
	trouble := s.trouble
	if st := w.statics[types.UID(is.Annotations[pod.AnnotationHash])]; pod.IsMirror(is) && st != nil {
		trouble = st.trouble
	}
	switch {
	case Ready(was) == Ready(is):
	case Ready(is):
		s.readyAt = time.Now()
	case probed(&is.Spec) && time.Since(w.dialFailedAt) < time.Minute: // by an injected fault
	case is.DeletionTimestamp != nil || is.Spec.ActiveDeadlineSeconds != nil || probesFail(is) || len(is.Spec.ReadinessGates) > 0:
	case trouble.Before(s.readyAt.Add(-toldWithin)):
		w.broken(RuleReadiness, "pod %s is not ready any more, though nothing of it has ended since %s", is.Name, trouble.Format(time.TimeOnly))
	}
}

// probesFail reports whether a pod has a probe, and annotations after which probes fail.
func probesFail(p *v1.Pod) bool {
	fails := false
	for a := range p.Annotations {
		fails = fails || strings.HasPrefix(a, simcri.AnnotationFailAfter)
	}
	return fails && probed(&p.Spec)
}

func probed(s *v1.PodSpec) bool {
	return slices.ContainsFunc(allContainers(s), func(c v1.Container) bool {
		return c.LivenessProbe != nil || c.StartupProbe != nil || c.ReadinessProbe != nil
	})
}

// dialFailed notes that a probe did not reach a pod.
func (w *Witness) dialFailed() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dialFailedAt = time.Now()
}

func allContainers(s *v1.PodSpec) []v1.Container {
	return slices.Concat(s.InitContainers, s.Containers)
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

// tellsAnew reports whether a mirror that outlived its static pod, as the API was away meanwhile, may stand for one that began
// anew: it is told once.
func (w *Witness) tellsAnew(p *v1.Pod) bool {
	st := w.statics[types.UID(p.Annotations[pod.AnnotationHash])]
	if !pod.IsMirror(p) || st == nil || !st.anew {
		return false
	}
	st.anew = false
	return true
}

func (w *Witness) judgeStatus(was, is *v1.Pod) {
	if (was.Status.Phase == v1.PodFailed || was.Status.Phase == v1.PodSucceeded) && is.Status.Phase != was.Status.Phase {
		w.broken(RuleTerminal, "pod %s left the terminal phase %s for %s", is.Name, was.Status.Phase, is.Status.Phase)
	}
	var fell []string
	for i := range was.Status.ContainerStatuses {
		a := &was.Status.ContainerStatuses[i]
		for j := range is.Status.ContainerStatuses {
			if b := &is.Status.ContainerStatuses[j]; b.Name == a.Name && b.RestartCount < a.RestartCount {
				fell = append(fell, fmt.Sprintf("%s fell from %d to %d", a.Name, a.RestartCount, b.RestartCount))
			}
		}
	}
	if len(fell) > 0 && !w.tellsAnew(is) {
		w.broken(RuleAttempts, "pod %s: the restart count of %s", is.Name, strings.Join(fell, ", of "))
	}
}
