package objects

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/base/kubeclient"
)

// fixedCM returns an immutable ConfigMap.
func fixedCM(name, value string) *v1.ConfigMap {
	c := cm(name, value)
	yes := true
	c.Immutable = &yes
	return c
}

// madeAgain deletes the ConfigMap a, and makes another one of the same name.
func (w *world) madeAgain(t *testing.T, value string) {
	t.Helper()
	if err := w.client.CoreV1().ConfigMaps("ns").Delete(t.Context(), "a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.client.CoreV1().ConfigMaps("ns").Create(t.Context(), fixedCM("a", value), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func TestANewPodGetsAnImmutableObjectThatWasDeletedAndMadeAgain(t *testing.T) {
	t.Parallel()
	newPodGetsNewObject(t, watchOnly)
}

func TestANewPodGetsAnImmutableObjectThatWasMadeAgainOverAFeed(t *testing.T) {
	t.Parallel()
	newPodGetsNewObject(t, Config{NoServices: true, Follow: func(ctx context.Context, _, _, _ string, f kubeclient.Followed) (join func()) {
		var group sync.WaitGroup
		group.Go(func() { kubeclient.Follow(ctx, f, longestWait) })
		return group.Wait
	}})
}

func newPodGetsNewObject(t *testing.T, cfg Config) {
	t.Helper()
	run(t, cfg, func(t *testing.T, w *world) {
		w.Track(podWith("old", "a"))
		w.wantValue(t, "a", "1")
		time.Sleep(time.Hour)
		w.madeAgain(t, "2")
		w.Track(podWith("new", "a"))
		w.wantValueNow(t, "a", "2")
		if n := w.openWatches(); n != 0 {
			t.Errorf("%d watches, want 0", n)
		}
		w.wantNotified(t, "after the object was read again", map[types.UID]int{"old": 1, "new": 1})
	}, fixedCM("a", "1"))
}

func TestTheKnownImmutableObjectIsUsedIfItCannotBeReadAgain(t *testing.T) {
	t.Parallel()
	run(t, watchOnly, func(t *testing.T, w *world) {
		w.Track(podWith("old", "a"))
		w.wantValue(t, "a", "1")
		time.Sleep(time.Hour)
		w.setFail("list configmaps", errors.New("connection refused"))
		w.madeAgain(t, "2")
		w.Track(podWith("new", "a"))
		w.wantValueNow(t, "a", "1")
		w.setFail("list configmaps", nil)
		time.Sleep(time.Minute)
		w.wantValue(t, "a", "2")
	}, fixedCM("a", "1"))
}

func TestPodsThatRanBeforeDoNotReadAnImmutableObjectAgain(t *testing.T) {
	t.Parallel()
	run(t, watchOnly, func(t *testing.T, w *world) {
		for _, uid := range []types.UID{"1", "2", "3"} { // as after a restart of the agent
			p := podWith(uid, "a")
			now := metav1.Now()
			p.Status.StartTime = &now
			w.Track(p)
			w.wantValue(t, "a", "1")
		}
		if n := w.made("list configmaps"); n != 1 {
			t.Errorf("%d lists, want 1", n)
		}
	}, fixedCM("a", "1"))
}
