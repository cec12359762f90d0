package fleet

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/wherry-node/wherry/internal/sim/simkube"
)

// claimsBench has the claims of one shard, which nothing renews by itself.
type claimsBench struct {
	kube *simkube.Kube
	*claims
	shard *shard
}

func newClaims(t *testing.T) claimsBench {
	t.Helper()
	kube := simkube.New(simkube.Config{})
	f, err := New(Config{Name: "f", Client: kube.RESTConfig("test"), Identity: Shared, Groups: []Group{{Count: 20}}, Shard: Shard{Name: "a"}})
	if err != nil {
		t.Fatal(err)
	}
	return claimsBench{kube, f.shard.claims, f.shard}
}

func (b claimsBench) list(t *testing.T) map[string]*coordinationv1.Lease {
	t.Helper()
	all, err := b.shard.list(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// holders returns the holders of the leases of slices 0 and 1, without the random part.
func (b claimsBench) holders(t *testing.T) [2]bool {
	t.Helper()
	all := b.list(t)
	return [2]bool{holderOf(all[sliceLease("f", 0)]) == b.id, holderOf(all[sliceLease("f", 1)]) == b.id}
}

func (b claimsBench) held() (out []int) { return b.chosen(func(*claim) bool { return true }) }

// A lease is released only when the nodes of its slice have ended.
func TestReleaseWaitsForTheNodes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newClaims(t)
		b.take(t.Context(), []int{0, 1}, b.list(t))
		if got := b.holders(t); got != [2]bool{true, true} {
			t.Fatalf("taken: %v", got)
		}
		b.give([]int{0, 1})
		b.release(t.Context(), map[int]bool{0: true})
		if got := b.holders(t); got != [2]bool{true, false} || !b.permits[1].over() || b.permits[0].over() {
			t.Errorf("while nodes of slice 0 run: %v", got)
		}
		b.release(t.Context(), nil)
		if got := b.holders(t); got != [2]bool{} || len(b.held()) != 0 {
			t.Errorf("after their end: %v, %v", got, b.held())
		}
	})
}

// If the answer to a renewal is lost, the slice stays held when the next list shows that it is. If somebody else holds the lease or has deleted
// it, the slice is lost at once.
func TestUnsureClaims(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newClaims(t)
		ctx, name := t.Context(), sliceLease("f", 0)
		b.take(ctx, []int{0}, b.list(t))
		b.kube.Inject(simkube.Fault{Verb: "update", Resource: "leases", Effect: simkube.Lost, Times: 1})
		time.Sleep(shardRenew)
		b.renew(ctx) // the answer is lost
		b.renew(ctx) // the version is out of date
		b.confirm(ctx, b.list(t))
		time.Sleep(shardFence - 1)
		if !slices.Equal(b.held(), []int{0}) || b.permits[0].over() {
			t.Error("a slice is lost with an answer")
		}
		api := b.shard.api
		l := b.list(t)[name]
		hold(l, "other", time.Now())
		if _, err := api.Update(ctx, l, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		b.renew(ctx)
		b.confirm(ctx, b.list(t))
		if len(b.held()) != 0 || !b.permits[0].over() {
			t.Error("a slice that another shard holds is not lost")
		}
		b.take(ctx, []int{1}, b.list(t))
		if err := api.Delete(ctx, sliceLease("f", 1), metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(shardRenew)
		b.renew(ctx)
		if len(b.held()) != 0 || !b.permits[1].over() {
			t.Error("a slice whose lease is deleted is not lost")
		}
	})
}

// slowAnswers is a connection to an API server that does what it is asked at once, and answers a second later.
type slowAnswers struct{ kube *simkube.Kube }

func (s slowAnswers) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := s.kube.RoundTrip(r.WithContext(context.WithoutCancel(r.Context())))
	select {
	case <-time.After(time.Second):
		return resp, err
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
}

// A shard that ends while renewals are under way leaves no lease with its name: it waits for their answers, since it can release only the newest
// version of a lease.
func TestEndDuringARenewal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, ends := range []time.Duration{500 * time.Millisecond, 1500 * time.Millisecond, 2500 * time.Millisecond} { // in the renewal of the slice, of the shard, after both
			b := newClaims(t)
			if err := b.shard.keepAlive(t.Context(), b.list(t)); err != nil {
				t.Fatal(err)
			}
			b.take(t.Context(), []int{0}, b.list(t))
			time.Sleep(shardRenew)
			all, client := b.list(t), b.kube.RESTConfig("slow")
			client.Transport = slowAnswers{b.kube}
			slow, err := newClient(client, nil)
			if err != nil {
				t.Fatal(err)
			}
			b.api = slow.Leases(b.f.cfg.Shard.Namespace)
			ctx, end := context.WithCancel(t.Context())
			time.AfterFunc(ends, end)
			b.renew(ctx)
			_ = b.shard.keepAlive(ctx, all) // an error says that the shard has ended
			b.shard.leave(t.Context())
			for name, l := range b.list(t) {
				if holderOf(l) == b.id {
					t.Errorf("ended after %s: the lease %s is left", ends, name)
				}
			}
		}
	})
}

// A slice that another shard takes at the same time is left to it.
func TestTakeOfTwo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newClaims(t)
		before := b.list(t)
		b.take(t.Context(), []int{0}, before)
		other := &claims{f: b.f, api: b.api, id: "other", permits: b.permits, held: map[int]*claim{}}
		other.take(t.Context(), []int{0}, before)
		b.give([]int{0})
		old := b.list(t)
		b.release(t.Context(), nil)
		other.take(t.Context(), []int{0}, old)
		if len(other.mine()) != 0 {
			t.Error("a slice is taken with an old version of its lease")
		}
		other.take(t.Context(), []int{0}, b.list(t))
		if len(other.mine()) != 1 {
			t.Error("a free slice is not taken")
		}
	})
}

// No request of a node is sent when its permit is over.
func TestLinkWithoutPermit(t *testing.T) {
	t.Parallel()
	sent := 0
	next := roundTripper(func(*http.Request) (*http.Response, error) {
		sent++
		return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
	})
	p := &permit{base: time.Now()}
	l := &link{next: next, permit: p}
	p.grant(time.Now().Add(time.Hour))
	for range 2 {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPatch, "http://kube/api/v1/nodes/n/status", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := l.RoundTrip(r)
		if sent != 1 || p.over() != errors.Is(err, errNotHeld) {
			t.Errorf("%d requests were sent: %v", sent, err)
		}
		if resp != nil {
			_ = resp.Body.Close()
		}
		p.end()
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// The permit of a node may end while a fault delays a request. Then the request is not sent.
func TestPermitEndsDuringADelay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		next := roundTripper(func(*http.Request) (*http.Response, error) {
			t.Error("a request was sent")
			return nil, errNotHeld
		})
		p := &permit{base: time.Now()}
		p.grant(time.Now().Add(shardFence))
		l := &link{next: next, permit: p}
		l.slow(time.Minute)
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPatch, "http://kube/api/v1/nodes/n/status", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.RoundTrip(r); !errors.Is(err, errNotHeld) {
			t.Error(err)
		}
	})
}
