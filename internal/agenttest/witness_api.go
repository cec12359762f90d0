package agenttest

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
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
