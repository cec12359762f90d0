package objects

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
)

func TestAnObjectIsFollowed(t *testing.T) {
	t.Parallel()
	run(t, watchOnly, func(t *testing.T, w *world) {
		ctx, api := t.Context(), w.client.CoreV1().ConfigMaps("ns")
		w.Track(podWith("1", "a"))
		w.wantValue(t, "a", "1")
		w.wantNotified(t, "after the first answer, which everybody waited for", nil)

		_, _ = api.Update(ctx, cm("a", "2"), metav1.UpdateOptions{})
		w.wantValue(t, "a", "2")
		w.wantNotified(t, "after a change", map[types.UID]int{"1": 1})

		same := cm("a", "2")
		same.Labels = map[string]string{"l": "v"}
		_, _ = api.Update(ctx, same, metav1.UpdateOptions{})
		w.wantNotified(t, "after a change that no reader sees", nil)

		_, _ = api.Update(ctx, cm("b", "other"), metav1.UpdateOptions{})
		w.wantNotified(t, "after a change of another object", nil)

		_ = api.Delete(ctx, "a", metav1.DeleteOptions{})
		w.wantValue(t, "a", "not found")
		w.wantNotified(t, "after the deletion", map[types.UID]int{"1": 1})

		_, _ = api.Create(ctx, cm("a", "3"), metav1.CreateOptions{})
		w.wantValue(t, "a", "3")
		w.wantNotified(t, "after it was created again", map[types.UID]int{"1": 1})
	}, cm("a", "1"), cm("b", "1"))
}

func TestWhatIsMissingIsRemembered(t *testing.T) {
	t.Parallel()
	run(t, watchOnly, func(t *testing.T, w *world) {
		w.Track(podWith("1", "a"))
		w.wantValue(t, "a", "not found")
		w.wantValue(t, "a", "not found")
		if n := w.made("list configmaps") + w.made("get configmaps"); n != 1 {
			t.Errorf("%d reads, want 1", n)
		}
		_, _ = w.client.CoreV1().ConfigMaps("ns").Create(t.Context(), cm("a", "1"), metav1.CreateOptions{})
		w.wantNotified(t, "after it appeared", map[types.UID]int{"1": 1})
		w.wantValue(t, "a", "1")
	})
}

func TestOneWatchPerObjectHoweverManyPods(t *testing.T) {
	t.Parallel()
	run(t, watchOnly, func(t *testing.T, w *world) {
		for i := range 50 {
			w.Track(podWith(types.UID(fmt.Sprint(i)), "a"))
			w.Track(podWith(types.UID(fmt.Sprint(i)), "a"))
		}
		if n := w.openWatches(); n != 1 {
			t.Errorf("%d watches, want 1", n)
		}
		_, _ = w.client.CoreV1().ConfigMaps("ns").Update(t.Context(), cm("a", "2"), metav1.UpdateOptions{})
		want := map[types.UID]int{}
		for i := range 50 {
			want[types.UID(fmt.Sprint(i))] = 1
		}
		w.wantNotified(t, "after a change", want)
		for i := range 49 {
			w.Forget(types.UID(fmt.Sprint(i)))
		}
		if n := w.openWatches(); n != 1 {
			t.Errorf("%d watches while one pod is left, want 1", n)
		}
		w.Track(podWith("49", "b")) // the pod refers to another object now
		w.wantValue(t, "b", "1")
		if n := w.openWatches(); n != 1 {
			t.Errorf("%d watches after the references changed, want 1", n)
		}
		ended := podWith("49", "b")
		ended.Status.Phase = v1.PodFailed
		w.Track(ended)
		if n := w.openWatches(); n != 0 {
			t.Errorf("%d watches for a pod that has failed, want 0", n)
		}
		w.Forget("49")
		w.Forget("49")
		if n := w.openWatches(); n != 0 {
			t.Errorf("%d watches after all were forgotten, want 0", n)
		}
		w.wantValue(t, "a", "2") // no pod refers to the object, so each read asks the API server
		if n := w.made("get configmaps"); n != 1 {
			t.Errorf("%d GETs, want 1", n)
		}
	}, cm("a", "1"), cm("b", "1"))
}

func forbidden() error {
	return apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "a", errors.New("no relationship found between node and this object"))
}

// If the API server forbids a read right after a pod was bound, Objects tries again and the caller goes on waiting. The API server's
// authorizer may learn of the pod later than the node does.
func TestARefusalOfTheFirstMomentsIsNoAnswer(t *testing.T) {
	t.Parallel()
	run(t, watchOnly, func(t *testing.T, w *world) {
		w.setFail("list configmaps", forbidden())
		began := time.Now()
		time.AfterFunc(120*time.Millisecond, func() { w.setFail("list configmaps", nil) })
		w.Track(podWith("1", "a"))
		w.wantValueNow(t, "a", "1")
		if took := time.Since(began); took > 500*time.Millisecond {
			t.Errorf("took %v", took)
		}
	}, cm("a", "1"))
}

func TestAFailureThatLastsIsReportedAndRetried(t *testing.T) {
	t.Parallel()
	run(t, watchOnly, func(t *testing.T, w *world) {
		w.setFail("list configmaps", forbidden())
		w.Track(podWith("1", "a"))
		began := time.Now()
		if got := w.value(t, "a"); !strings.Contains(got, "no relationship found") {
			t.Errorf("got %q", got)
		}
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("notified after %v", took)
		}
		w.wantNotified(t, "of a failure that a reader waited for", nil)
		before := w.made("list configmaps")
		time.Sleep(10 * time.Minute)
		if n := w.made("list configmaps") - before; n < 12 || n > 30 {
			t.Errorf("%d tries in 10 minutes, want one in about 30 s", n)
		}
		w.setFail("list configmaps", nil)
		time.Sleep(time.Minute)
		w.wantNotified(t, "after it could be read", map[types.UID]int{"1": 1})
		w.wantValue(t, "a", "1")
	}, cm("a", "1"))
}

func TestAnOutageKeepsWhatWasRead(t *testing.T) {
	t.Parallel()
	run(t, watchOnly, func(t *testing.T, w *world) {
		w.Track(podWith("1", "a"))
		w.wantValue(t, "a", "1")
		w.setFail("watch configmaps", errors.New("connection refused"))
		w.mu.Lock()
		last := w.watches[0]
		w.mu.Unlock()
		last.Interface.Stop()
		time.Sleep(5 * time.Minute)
		w.wantValue(t, "a", "1")
		w.wantNotified(t, "during the outage", nil)
		w.setFail("watch configmaps", nil)
		time.Sleep(time.Minute)
		_, _ = w.client.CoreV1().ConfigMaps("ns").Update(t.Context(), cm("a", "2"), metav1.UpdateOptions{})
		w.wantValue(t, "a", "2")
		w.wantNotified(t, "after the outage", map[types.UID]int{"1": 1})
	}, cm("a", "1"))
}

func TestAnExpiredWatchListsAgain(t *testing.T) {
	t.Parallel()
	run(t, watchOnly, func(t *testing.T, w *world) {
		w.Track(podWith("1", "a"))
		w.wantValue(t, "a", "1")
		time.Sleep(time.Minute)
		gone := apierrors.NewResourceExpired("too old resource version").Status()
		w.mu.Lock()
		last := w.watches[0]
		w.mu.Unlock()
		last.kill <- watch.Event{Type: watch.Error, Object: &gone}
		// The object changes before the new watch begins, so only a list shows the change.
		if err := w.client.Tracker().Update(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, cm("a", "2"), "ns"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		w.wantValue(t, "a", "2")
		if n := w.made("list configmaps"); n != 2 {
			t.Errorf("%d lists, want 2", n)
		}
		w.wantNotified(t, "after the change", map[types.UID]int{"1": 1})
	}, cm("a", "1"))
}

func TestAnImmutableObjectIsNotWatched(t *testing.T) {
	t.Parallel()
	fixed, later := cm("a", "1"), cm("b", "2")
	yes := true
	fixed.Immutable, later.Immutable = &yes, &yes
	run(t, watchOnly, func(t *testing.T, w *world) {
		w.Track(podWith("1", "a", "b"))
		w.wantValue(t, "a", "1")
		if n := w.openWatches(); n != 1 { // only the watch of b is open
			t.Errorf("%d watches, want 1", n)
		}
		_, _ = w.client.CoreV1().ConfigMaps("ns").Update(t.Context(), later, metav1.UpdateOptions{})
		w.wantValue(t, "b", "2")
		if n := w.openWatches(); n != 0 {
			t.Errorf("%d watches after b became immutable, want 0", n)
		}
	}, fixed, cm("b", "1"))
}

func TestGivingUpWaitingNamesTheObject(t *testing.T) {
	t.Parallel()
	run(t, watchOnly, func(t *testing.T, w *world) {
		w.setFail("list configmaps", errors.New("connection refused"))
		time.AfterFunc(200*time.Millisecond, func() { w.setFail("list configmaps", nil) })
		w.Track(podWith("1", "a"))
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		_, err := w.ConfigMap(ctx, "ns", "a")
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "configmap ns/a") || !strings.Contains(err.Error(), "connection refused") {
			t.Errorf("error %v", err)
		}
		time.Sleep(time.Second)
		w.wantNotified(t, "after the answer for which somebody gave up waiting", map[types.UID]int{"1": 1})
	}, cm("a", "1"))
}

func TestStrategyGet(t *testing.T) {
	t.Parallel()
	run(t, Config{NoServices: true, Strategy: StrategyGet}, func(t *testing.T, w *world) {
		w.Track(podWith("1", "a"))
		for range 3 {
			w.wantValue(t, "a", "1")
		}
		if n := w.made("get configmaps"); n != 3 || w.openWatches() != 0 {
			t.Errorf("%d GETs, %d watches", n, w.openWatches())
		}
		w.Track(podWith("2"))
		time.Sleep(3*time.Minute + time.Second)
		w.wantNotified(t, "in 3 minutes without a watch", map[types.UID]int{"1": 3})
	}, cm("a", "1"))
}

func TestStrategyCache(t *testing.T) {
	t.Parallel()
	run(t, Config{NoServices: true, Strategy: StrategyCache}, func(t *testing.T, w *world) {
		w.Track(podWith("1", "a"))
		w.wantValue(t, "a", "1")
		_, _ = w.client.CoreV1().ConfigMaps("ns").Update(t.Context(), cm("a", "2"), metav1.UpdateOptions{})
		time.Sleep(30 * time.Second)
		w.wantValue(t, "a", "1")
		time.Sleep(31 * time.Second)
		w.wantValue(t, "a", "2")
		_, _ = w.client.CoreV1().ConfigMaps("ns").Update(t.Context(), cm("a", "3"), metav1.UpdateOptions{})
		w.Track(podWith("1", "a"))
		w.wantValue(t, "a", "2")
		w.Track(podWith("2", "a")) // a new pod gets fresh objects
		w.wantValue(t, "a", "3")
		if n := w.made("get configmaps"); n != 3 || w.openWatches() != 0 {
			t.Errorf("%d GETs, %d watches", n, w.openWatches())
		}
	}, cm("a", "1"))
}

func TestMetadataIsNotKept(t *testing.T) {
	t.Parallel()
	s := &v1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "s", Annotations: map[string]string{"kubectl.kubernetes.io/last-applied-configuration": "all of it again"},
		ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubectl"}}}, Type: v1.SecretTypeOpaque, Data: map[string][]byte{"k": []byte("v")}}
	run(t, watchOnly, func(t *testing.T, w *world) {
		p := podWith("1")
		p.Spec.ImagePullSecrets = []v1.LocalObjectReference{{Name: "s"}}
		w.Track(p)
		got, err := w.Secret(t.Context(), "ns", "s")
		if err != nil {
			t.Fatal(err)
		}
		if got.Annotations != nil || got.ManagedFields != nil || string(got.Data["k"]) != "v" || got.Type != v1.SecretTypeOpaque {
			t.Errorf("kept %+v", got)
		}
	}, s)
}

func TestRunTwice(t *testing.T) {
	t.Parallel()
	o := New(Config{API: apiOf(fake.NewClientset()), NoServices: true})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := o.Run(ctx); err != nil {
		t.Error(err)
	}
	if err := o.Run(ctx); err == nil {
		t.Error("a second Run was let in")
	}
	o.Track(podWith("1", "a")) // after Run has ended, Track starts nothing
}
