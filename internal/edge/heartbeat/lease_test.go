package heartbeat

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/core/nodestatus"
)

func TestLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.run()
		b.want("0s create leases", "leases")
		time.Sleep(65 * time.Second)
		renewals := strings.Split(b.take("update leases"), "\n")
		if len(renewals) != 6 {
			t.Errorf("renewed %d times in 65 s, want 6: %v", len(renewals), renewals)
		}
		last := time.Duration(0)
		for _, r := range renewals {
			at, err := time.ParseDuration(strings.Fields(r)[0])
			if err != nil {
				t.Fatal(err)
			}
			if gap := at - last; gap < 10*time.Second || gap > 10400*time.Millisecond {
				t.Errorf("renewed after %s, want 10 s to 10.4 s", gap)
			}
			last = at
		}
		l, err := b.api.CoordinationV1().Leases(v1.NamespaceNodeLease).Get(t.Context(), "n1", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]any{"holder": *l.Spec.HolderIdentity, "seconds": *l.Spec.LeaseDurationSeconds, "owner": l.OwnerReferences}
		want := map[string]any{"holder": "n1", "seconds": int32(40), "owner": []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "n1", UID: "u7"}}}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
		b.stop()
	})
}

// The shortest lease that the configuration allows, of one second, is renewed four times a second.
func TestTheShortestLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.cfg.LeaseDuration = time.Second
		b.run()
		b.take("leases")
		time.Sleep(10 * time.Second)
		if n := strings.Count(b.take("update leases"), "update leases"); n < 38 || n > 40 {
			t.Errorf("renewed %d times in 10 s", n)
		}
		b.stop()
	})
}

// A new Node takes over the lease that an earlier Node of its name left.
func TestNewNodeFindsAnOldLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		old := nodestatus.NewLease("n1")
		nodestatus.RenewLease(old, "n1", "uid-of-the-earlier-node", 40*time.Second, time.Now().Add(-time.Hour))
		b := newBench(t, old)
		b.run()
		b.want("0s create leases\n0s get leases\n0s update leases", "leases")
		time.Sleep(15 * time.Second)
		if got := b.take("leases"); strings.Count(got, "update leases") != 1 || strings.Contains(got, "get") || strings.Contains(got, "create") {
			t.Errorf("after the first renewal the lease had the requests %q, want one update", got)
		}
		b.stop()
	})
}

// If the API server fails, the agent tries five times at once to update the lease. After that it tries to read or create the lease, with
// a back-off of 200 ms to 7 s.
func TestLeaseBacksOff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.run()
		time.Sleep(time.Second)
		b.take()
		b.set(func() {
			b.fail = failing("leases", errors.New("connection refused"))
		})
		time.Sleep(31 * time.Second)
		lines := strings.Split(b.take("leases"), "\n")
		if len(lines) < 13 || strings.Count(strings.Join(lines[:5], "\n"), "update leases") != 5 {
			t.Fatalf("want five updates and then reads:\n%s", strings.Join(lines, "\n"))
		}
		var gaps []string
		var last time.Duration
		for i, l := range lines[5:] {
			at, err := time.ParseDuration(strings.Fields(l)[0])
			if err != nil {
				t.Fatal(err)
			}
			if i > 0 {
				gaps = append(gaps, (at - last).String())
			}
			last = at
		}
		want := []string{"200ms", "400ms", "800ms", "1.6s", "3.2s", "6.4s", "7s"}
		if diff := cmp.Diff(want, gaps[:len(want)]); diff != "" {
			t.Error(diff)
		}
		b.stop()
	})
}

type sharedLeases struct{ kept, released []string }

func (s *sharedLeases) Keep(node string, uid func() types.UID) func() {
	s.kept = append(s.kept, node)
	return func() { s.released = append(s.released, node+" "+string(uid())) }
}

func TestSharedLeases(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, existing())
		shared := &sharedLeases{}
		b.cfg.Leases = shared
		b.run()
		time.Sleep(time.Minute)
		if got := b.take("leases"); got != "" {
			t.Errorf("renewed its own lease too:\n%s", got)
		}
		b.stop()
		if diff := cmp.Diff(&sharedLeases{kept: []string{"n1"}, released: []string{"n1 u1"}}, shared, cmp.AllowUnexported(sharedLeases{})); diff != "" {
			t.Error(diff)
		}
	})
}
