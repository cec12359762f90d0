package status

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestOtherUIDEndsTheWriter(t *testing.T) {
	old := aPod("a")
	successor := aPod("a")
	successor.UID = "other"
	inBubble(t, newAPI(successor), 4, func(t *testing.T, r *rig) {
		r.Set(Desired{Pod: old, Status: running("True", "")})
		time.Sleep(time.Hour)
		r.expect(t, "PATCH a other uid")
		if !r.hasEnded("uid-a") {
			t.Error("the writer does not consider the pod as ended")
		}
		if r.api.get("a").Status.Phase != v1.PodPending {
			t.Error("the successor's status was written")
		}
	})
}

func TestNotFoundEndsTheWriter(t *testing.T) {
	p := aPod("a")
	inBubble(t, newAPI(), 4, func(t *testing.T, r *rig) {
		r.Set(Desired{Pod: p, Status: running("True", "")})
		synctest.Wait()
		r.Set(Desired{Pod: p, Status: running("False", "")})
		time.Sleep(time.Hour)
		r.expect(t, "PATCH a not found")
		if !r.hasEnded("uid-a") {
			t.Error("the writer does not consider the pod as ended")
		}
	})
}

// A load balancer that does not reach the API server may answer with 404. The pod still exists, so the writer goes on.
func TestNotFoundOfAProxyDoesNotEndTheWriter(t *testing.T) {
	p := aPod("a")
	a := newAPI(p)
	failing := true
	a.fail = func(string, string) error {
		if failing {
			return proxyError(http.StatusNotFound)
		}
		return nil
	}
	inBubble(t, a, 4, func(t *testing.T, r *rig) {
		r.Set(Desired{Pod: p, Status: running("True", "")})
		time.Sleep(time.Minute)
		if r.hasEnded("uid-a") {
			t.Error("the writer considers the pod as ended")
		}
		a.mu.Lock()
		failing = false
		a.mu.Unlock()
		time.Sleep(time.Minute)
		if got := describe(&a.get("a").Status); got != "Running ready=True" {
			t.Errorf("status is %s", got)
		}
	})
}

func TestOutageLosesNothing(t *testing.T) {
	a := newAPI()
	var mu sync.Mutex
	down := true
	a.fail = func(string, string) error {
		mu.Lock()
		defer mu.Unlock()
		if down {
			return errors.New("connection refused")
		}
		return nil
	}
	var pods []*v1.Pod
	for i := range 20 {
		p := aPod(fmt.Sprint("p", i))
		a.pods[p.Name] = p
		pods = append(pods, p)
	}
	inBubble(t, a, 4, func(t *testing.T, r *rig) {
		for _, p := range pods {
			r.Set(Desired{Pod: p, Status: running("False", "")})
		}
		time.Sleep(10 * time.Minute)
		for _, p := range pods {
			r.Set(Desired{Pod: p, Status: running("True", "")})
		}
		tries := len(a.requests())
		if tries < 20*60 || tries > 20*80 {
			t.Errorf("%d tries in ten minutes for 20 pods, want about one per 10 s and pod", tries)
		}
		mu.Lock()
		down = false
		mu.Unlock()
		time.Sleep(10 * time.Second)
		for _, p := range pods {
			if got := describe(&a.get(p.Name).Status); got != "Running ready=True" {
				t.Errorf("%s says %s", p.Name, got)
			}
		}
		if n := strings.Count(r.log.String(), "cannot write pod status"); n != 1 {
			t.Errorf("the outage was logged %d times:\n%s", n, r.log.String())
		}
	})
}

// While the status of one pod cannot be written, and those of others can, each success of another pod must not cause a request for that pod, nor
// count as the end of an outage. The pod is named, and its status is written soon after the cause is gone.
func TestAPodWhoseStatusAloneCannotBeWrittenKeepsItsBackOff(t *testing.T) {
	bad, good := aPod("bad"), aPod("good")
	a := newAPI(bad, good)
	failing := true
	a.fail = func(_, name string) error {
		if name == "bad" && failing {
			return apierrors.NewInternalError(errors.New("failed calling webhook"))
		}
		return nil
	}
	inBubble(t, a, 4, func(t *testing.T, r *rig) {
		r.Set(Desired{Pod: bad, Status: running("True", "")})
		for i := range 600 {
			r.Set(Desired{Pod: good, Status: running("True", fmt.Sprint(i))})
			time.Sleep(time.Second)
		}
		tries := 0
		for _, q := range a.requests() {
			if strings.HasPrefix(q, "PATCH bad") {
				tries++
			}
		}
		if tries < 60 || tries > 80 {
			t.Errorf("%d tries in ten minutes, want about one per 10 s", tries)
		}
		if log := r.log.String(); strings.Count(log, "\n") > 3 || !strings.Contains(log, "although those of others are written") || !strings.Contains(log, "ns/bad(uid-bad)") {
			t.Errorf("logged:\n%s", log)
		}
		a.mu.Lock()
		failing = false
		a.mu.Unlock()
		time.Sleep(10 * time.Second)
		if got := describe(&a.get("bad").Status); got != "Running ready=True" {
			t.Errorf("status is %s", got)
		}
	})
}

func TestRefusedStatusCostsOneGetAndIsNamed(t *testing.T) {
	p := aPod("a")
	a := newAPI(p)
	a.fail = func(method, name string) error {
		if method == http.MethodPatch {
			return apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, name, nil)
		}
		return nil
	}
	inBubble(t, a, 4, func(t *testing.T, r *rig) {
		r.Set(Desired{Pod: p, Status: running("True", "")})
		r.expect(t, "PATCH a failed", "GET a")
		if !strings.Contains(r.log.String(), "ns/a(uid-a)") {
			t.Errorf("the pod is not named: %s", r.log.String())
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		r.expect(t, "PATCH a failed", "GET a") // no more requests follow within an hour
		r.Observe(a.change("a", func(p *v1.Pod) { p.Labels = map[string]string{"x": "y"} }))
		time.Sleep(time.Minute)
		r.expect(t, "PATCH a failed", "GET a", "PATCH a failed", "GET a") // the pod has changed: one more try
		if n := strings.Count(r.log.String(), "\n"); n != 1 {
			t.Errorf("logged %d times, want 1", n)
		}
		a.mu.Lock()
		a.fail = nil
		a.mu.Unlock()
		r.Set(Desired{Pod: p, Status: running("True", "changed")}) // a changed status is sent
		synctest.Wait()
		if got := describe(&a.get("a").Status); got != "Running ready=True changed" {
			t.Errorf("status is %s", got)
		}
	})
}

// A refused status is not sent again at every change of the pod.
func TestRefusedStatusOfAPodThatChangesAllTheTimeBacksOff(t *testing.T) {
	p := aPod("a")
	a := newAPI(p)
	a.fail = func(method, name string) error {
		if method == http.MethodPatch {
			return apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, name, nil)
		}
		return nil
	}
	inBubble(t, a, 4, func(t *testing.T, r *rig) {
		r.Set(Desired{Pod: p, Status: running("True", "")})
		for i := range 3600 {
			time.Sleep(time.Second)
			r.Observe(a.change("a", func(p *v1.Pod) { p.Labels = map[string]string{"x": fmt.Sprint(i)} }))
		}
		if n := len(a.requests()); n > 60 {
			t.Errorf("%d requests in an hour for a status that is refused", n)
		}
		if n := strings.Count(r.log.String(), "\n"); n != 1 {
			t.Errorf("logged %d times, want 1", n)
		}
	})
}

// A refused final status does not keep a deleted pod in the API for ever.
func TestRefusedFinalStatusDoesNotDelayTheDeletion(t *testing.T) {
	p := aPod("a")
	at := metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &at, new(int64(30))
	a := newAPI(p)
	a.fail = func(method, name string) error {
		if method == http.MethodPatch {
			return apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, name, nil)
		}
		return nil
	}
	inBubble(t, a, 4, func(t *testing.T, r *rig) {
		r.Set(Desired{Pod: p, Status: v1.PodStatus{Phase: v1.PodSucceeded}, Final: true})
		time.Sleep(time.Minute)
		r.expect(t, "PATCH a failed", "GET a", "DELETE a")
	})
}

func TestConflictIsRetriedOverAFreshObject(t *testing.T) {
	p := aPod("a")
	a := newAPI(p)
	first := true
	a.fail = func(method, name string) error {
		if method == http.MethodPatch && first {
			first = false
			return apierrors.NewConflict(schema.GroupResource{Resource: "pods"}, name, errors.New("the object has been modified"))
		}
		return nil
	}
	inBubble(t, a, 4, func(t *testing.T, r *rig) {
		r.Set(Desired{Pod: p, Status: running("True", "")})
		time.Sleep(time.Second)
		r.expect(t, "PATCH a failed", "GET a", "PATCH a Running ready=True")
	})
}

func TestHungRequestEnds(t *testing.T) {
	p := aPod("a")
	a := newAPI(p)
	a.latency = time.Hour
	inBubble(t, a, 1, func(t *testing.T, r *rig) {
		r.Set(Desired{Pod: p, Status: running("True", "")})
		time.Sleep(29 * time.Second)
		a.mu.Lock()
		a.latency = 0
		a.mu.Unlock()
		time.Sleep(2 * time.Second)
		r.expect(t, "PATCH a Running ready=True")
	})
}
