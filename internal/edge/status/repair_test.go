package status

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
)

func TestRepairsAFieldThatAnotherComponentChanged(t *testing.T) {
	p := aPod("a")
	inBubble(t, newAPI(p), 4, func(t *testing.T, r *rig) {
		r.Set(Desired{Pod: p, Status: running("True", "")})
		synctest.Wait()
		r.Observe(r.api.change("a", func(p *v1.Pod) { p.Status.Conditions[0].Status = "False" }))
		time.Sleep(2 * time.Second)
		r.expect(t, "PATCH a Running ready=True", "PATCH a Running ready=True")
		// The writer does not repair a condition of another owner.
		r.Observe(r.api.change("a", func(p *v1.Pod) {
			p.Status.Conditions = append(p.Status.Conditions, v1.PodCondition{Type: "example.com/gate", Status: "True"})
		}))
		time.Sleep(time.Minute)
		r.Set(Desired{Pod: p, Status: running("False", "")})
		r.expect(t, "PATCH a Running ready=True", "PATCH a Running ready=True", "PATCH a Running ready=False")
		for _, b := range r.api.bodies {
			if strings.Contains(b, "example.com/gate") {
				t.Errorf("another owner's condition was sent: %s", b)
			}
		}
		if condition(r.api.get("a").Status.Conditions, "example.com/gate") == nil {
			t.Error("another owner's condition is gone")
		}
	})
}

// Another component that changes the status back after each repair does not cause a request per second for ever, and the log says it once. When it stops,
// the status is right after some time, and the next change is repaired soon again.
func TestRepairsBackOffWhileAnotherComponentUndoesThem(t *testing.T) {
	p := aPod("a")
	a := newAPI(p)
	undo := func(p *v1.Pod) { p.Status.Conditions[0].Status = "False" }
	inBubble(t, a, 4, func(t *testing.T, r *rig) {
		r.Set(Desired{Pod: p, Status: running("True", "")})
		synctest.Wait()
		for range 7200 {
			if condition(a.get("a").Status.Conditions, v1.PodReady).Status == "True" {
				r.Observe(a.change("a", undo))
			}
			time.Sleep(500 * time.Millisecond)
		}
		if n := len(a.requests()); n < 10 || n > 30 {
			t.Errorf("%d requests in an hour, want some but few", n)
		}
		if n := strings.Count(r.log.String(), "\n"); n != 1 || !strings.Contains(r.log.String(), "ns/a(uid-a)") {
			t.Errorf("the log has %d lines, want one that names the pod:\n%s", n, r.log.String())
		}
		time.Sleep(10 * time.Minute)
		if c := condition(a.get("a").Status.Conditions, v1.PodReady); c.Status != "True" {
			t.Error("the last change was not repaired")
		}
		time.Sleep(time.Hour)
		r.Observe(a.change("a", undo))
		time.Sleep(2 * time.Second)
		if c := condition(a.get("a").Status.Conditions, v1.PodReady); c.Status != "True" {
			t.Error("a change after an hour of rest was not repaired soon")
		}
	})
}

// The control plane considers the node lost and changes a field that the next PATCH does not contain. The answer to that PATCH
// shows the change, which the writer must still repair.
func TestRepairsAFieldThatThePatchDidNotContain(t *testing.T) {
	p := aPod("a")
	a := newAPI(p)
	inBubble(t, a, 4, func(t *testing.T, r *rig) {
		r.Set(Desired{Pod: p, Status: running("True", "")})
		synctest.Wait()
		r.Observe(a.get("a"))
		a.mutate = func(p *v1.Pod) { p.Status.ObservedGeneration = 0 } // a server that drops a field must not cause endless requests
		unseen := a.change("a", func(p *v1.Pod) { p.Status.Conditions[0].Status = "False" })
		s := running("True", "restarted")
		s.ObservedGeneration = 7
		r.Set(Desired{Pod: p, Status: s})
		synctest.Wait()
		r.Observe(unseen) // this watch event comes late: its object is older than the answer to the PATCH
		time.Sleep(time.Hour)
		if c := condition(a.get("a").Status.Conditions, v1.PodReady); c.Status != "True" {
			t.Errorf("Ready is %s for ever", c.Status)
		}
		r.expect(t, "PATCH a Running ready=True", "PATCH a Running ready=False restarted", "PATCH a Running ready=True restarted")
	})
}

func TestServerThatDropsAFieldIsNotAskedForEver(t *testing.T) {
	p := aPod("a")
	a := newAPI(p)
	a.mutate = func(p *v1.Pod) { p.Status.ObservedGeneration = 0 }
	inBubble(t, a, 4, func(t *testing.T, r *rig) {
		s := running("True", "")
		s.ObservedGeneration = 7
		for range 5 {
			r.Set(Desired{Pod: p, Status: s})
			time.Sleep(time.Minute)
			r.Observe(a.get("a"))
		}
		r.expect(t, "PATCH a Running ready=True")
	})
}

func TestTerminalPhaseIsNeverLeft(t *testing.T) {
	p := aPod("a")
	p.Status.Phase, p.Status.Reason = v1.PodFailed, "Evicted"
	inBubble(t, newAPI(p), 4, func(t *testing.T, r *rig) {
		for _, s := range []v1.PodStatus{running("False", ""), {Phase: v1.PodSucceeded}} {
			r.Set(Desired{Pod: p, Status: s})
			time.Sleep(time.Minute)
			if got := r.api.get("a").Status; got.Phase != v1.PodFailed || got.Reason != "Evicted" {
				t.Errorf("after %s the API says %s %s", s.Phase, got.Phase, got.Reason)
			}
		}
	})
}

func TestStaleObjectIsNotTheBase(t *testing.T) {
	p := aPod("a")
	inBubble(t, newAPI(p), 4, func(t *testing.T, r *rig) {
		r.Set(Desired{Pod: p, Status: running("True", "")})
		synctest.Wait()
		r.Observe(p) // a slow watch shows the object from before the PATCH
		r.Set(Desired{Pod: p, Status: running("True", "")})
		time.Sleep(time.Minute)
		r.expect(t, "PATCH a Running ready=True")
	})
}
