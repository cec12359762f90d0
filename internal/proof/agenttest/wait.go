package agenttest

import (
	"fmt"
	"slices"
	"strings"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Await waits until ok returns true, and fails the test after the time d. It calls ok every 20 ms and, after two seconds, every 200 ms.
// The message of the failure contains what, a description of the condition.
func (w *World) Await(what string, d time.Duration, ok func() bool) {
	w.Helper()
	w.await(RuleConverges, what, d, ok)
}

// awaitNone waits until list returns no violations of the rule, and fails the test after the time d.
func (w *World) awaitNone(rule Rule, d time.Duration, list func() []string) {
	w.Helper()
	var left []string
	defer func() {
		if len(left) > 0 {
			w.Logf("%s, but: %s", rule, strings.Join(left, "; "))
		}
	}()
	w.await(rule, string(rule), d, func() bool {
		left = list()
		return len(left) == 0
	})
}

// await waits until ok returns true, and fails the test after the time d. In a World with a planted bug it does not fail the test: it
// records that the rule is broken, and ends the run.
func (w *World) await(rule Rule, what string, d time.Duration, ok func() bool) {
	w.Helper()
	began := time.Now()
	for end := began.Add(d); ; {
		synctest.Wait()
		if ok() {
			return
		}
		pause := 20 * time.Millisecond
		if time.Since(began) > 2*time.Second {
			pause *= 10
		}
		if time.Now().Before(end) {
			time.Sleep(pause)
			continue
		}
		if w.cfg.Plant != nil {
			w.Witness.note(rule, "after %s not yet: %s", d, what)
			panic(givenUp{})
		}
		w.Fatalf("after %s not yet: %s\n%s", d, what, w.Describe())
	}
}

// WaitPhase waits until the pod has this phase in the API.
func (w *World) WaitPhase(name string, phase v1.PodPhase) {
	w.Helper()
	w.Await(fmt.Sprintf("pod %s %s", name, phase), 2*time.Minute, func() bool {
		p := w.Kube.Pod(Namespace, name)
		return p != nil && p.Status.Phase == phase
	})
}

// WaitReady waits until the pods are Ready in the API.
func (w *World) WaitReady(names ...string) {
	w.Helper()
	w.Await(fmt.Sprintf("pods %s ready", names), 2*time.Minute, func() bool {
		return !slices.ContainsFunc(names, func(n string) bool { return !Ready(w.Kube.Pod(Namespace, n)) })
	})
}

// WaitGone waits until the pods are gone from the API and from the runtime.
func (w *World) WaitGone(names ...string) {
	w.Helper()
	w.Await(fmt.Sprintf("pods %s gone", names), 5*time.Minute, func() bool {
		return !slices.ContainsFunc(names, func(n string) bool {
			return w.Kube.Pod(Namespace, n) != nil || w.Witness.Present(Namespace, n)
		})
	})
}

// WaitConverged waits until each pod has agreed with the runtime at some instant. It does not require the same instant for all, because the
// status of a pod that keeps restarting may always be a little late.
func (w *World) WaitConverged(d time.Duration) {
	w.Helper()
	agreed := map[types.UID]bool{}
	w.awaitNone(RuleConverges, d, func() (out []string) {
		differ := w.differences()
		for uid := range w.Kube.Pods() {
			agreed[uid] = agreed[uid] || len(differ[uid]) == 0
		}
		for uid, of := range differ {
			if !agreed[uid] {
				out = append(out, of...)
			}
		}
		slices.Sort(out)
		return out
	})
	w.Witness.compared(len(agreed))
}

// Ready reports whether a pod's Ready condition is true.
func Ready(p *v1.Pod) bool { return Condition(p, v1.PodReady) == v1.ConditionTrue }

// Condition returns the status of a pod's condition; "": the pod does not have it.
func Condition(p *v1.Pod, typ v1.PodConditionType) v1.ConditionStatus {
	if p == nil {
		return ""
	}
	for i := range p.Status.Conditions {
		if p.Status.Conditions[i].Type == typ {
			return p.Status.Conditions[i].Status
		}
	}
	return ""
}

// NodeReady returns the Ready condition of the Node; an empty condition if there is none.
func (w *World) NodeReady() v1.NodeCondition {
	n := w.Kube.Node(NodeName)
	if n == nil {
		return v1.NodeCondition{}
	}
	for _, c := range n.Status.Conditions {
		if c.Type == v1.NodeReady {
			return c
		}
	}
	return v1.NodeCondition{}
}
