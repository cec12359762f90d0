package fleet

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/wherry-node/wherry/internal/sim/simkube"
)

// Nodes whose requests a fault delays keep no other node waiting, however many they are: the others renew their leases on time, and nodes can
// join. That is also so if the delay is longer than a renewal may take.
func TestSlowNodesDelayNoOtherLease(t *testing.T) {
	t.Parallel()
	for _, delay := range []time.Duration{9 * time.Second, 15 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			const slow, healthy, duration = 4 * mostRenewals, 50, 40 * time.Second
			kube := simkube.New(simkube.Config{Latency: 5 * time.Millisecond})
			api, err := newClient(&rest.Config{Host: "http://simkube", Transport: byNode{kube}}, nil)
			if err != nil {
				t.Fatal(err)
			}
			leases := api.Leases(v1.NamespaceNodeLease)
			w := &wheel{api: leases, log: discard()}
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() {
				defer close(done)
				w.run(ctx)
			}()
			var releases []func()
			var links []*link
			for i := range slow + healthy {
				l := &link{next: kube}
				links = append(links, l)
				releases = append(releases, w.of(l, uint64(i+1), duration, true, nil).Keep(fmt.Sprintf("n%d", i), func() types.UID { return "uid" }))
			}
			time.Sleep(time.Minute)
			for _, l := range links[:slow] {
				l.slow(delay)
			}
			for range 90 {
				time.Sleep(time.Second)
				if late := w.lateness().Overdue; late > LateForJoins {
					t.Fatalf("delay %s: leases are %s late, so nodes that join wait", delay, late)
				}
				for i := slow; i < slow+healthy; i++ {
					l, err := leases.Get(t.Context(), fmt.Sprintf("n%d", i), metav1.GetOptions{})
					if err != nil {
						t.Fatal(err)
					}
					if age := time.Since(l.Spec.RenewTime.Time); age > 11*time.Second {
						t.Fatalf("delay %s: the lease of a node without a fault is %s old", delay, age)
					}
				}
			}
			for _, release := range releases {
				release()
			}
			cancel()
			<-done
		})
	}
}
