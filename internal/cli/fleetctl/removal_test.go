package fleetctl

import (
	"bytes"
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/wherry-node/wherry/agent/fleet"
)

// While a fleet ends, the user sees every ten seconds how far that is. A fleet that runs, and one that ends soon, says nothing.
func TestTellRemoval(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		p := &progress{out: &out, began: time.Now()}
		states := [][2]fleet.Removed{{}, {{Nodes: 3}, {Nodes: 9}}, {{Nodes: 9, Pods: 1}, {Nodes: 9, Pods: 20}}}
		next := 0
		ctx, cancel := context.WithCancel(t.Context())
		over := make(chan struct{})
		told := make(chan struct{})
		go func() {
			defer close(told)
			p.tellRemoval(ctx, over, func() (done, found fleet.Removed) {
				next++
				return states[next-1][0], states[next-1][1]
			})
		}()
		time.Sleep(time.Hour)
		cancel()
		time.Sleep(35 * time.Second)
		close(over)
		<-told
		want := "3610.0 s  the nodes end\n3620.0 s  removed 3 of 9 nodes from the cluster\n3630.0 s  removed 9 of 9 nodes and 1 of 20 pods from the cluster\n"
		if diff := cmp.Diff(want, out.String()); diff != "" {
			t.Error(diff)
		}
		over = make(chan struct{})
		close(over)
		p.tellRemoval(t.Context(), over, nil) // it has ended by itself
	})
}
