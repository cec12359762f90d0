package fleet

import (
	"testing"
	"testing/synctest"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// If somebody deletes the lease of the fleet, a shard creates it again with the numbers of nodes that are in force, and they can be changed.
func TestLeaseOfTheFleetIsDeleted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newClaims(t)
		ctx, name := t.Context(), fleetLease("f")
		if err := b.shard.join(ctx, nil); err != nil {
			t.Fatal(err)
		}
		for _, count := range []int{30, 40} {
			if err := b.f.Scale("", count); err != nil {
				t.Fatal(err)
			}
		}
		if err := b.shard.api.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := b.shard.checkRecord(ctx, b.list(t)); err != nil {
			t.Fatal(err)
		}
		record := b.list(t)[name]
		if got, err := countsOf(record, b.f.cfg.Groups, []int{20}); err != nil || got[0] != 40 {
			t.Errorf("another shard would run %v nodes: %v, want 40", got, err)
		}
		if err := b.shard.checkRecord(ctx, b.list(t)); err != nil {
			t.Fatal(err)
		}
		if err := b.f.Scale("", 10); err != nil || b.f.want[0] != 10 {
			t.Errorf("%d nodes: %v", b.f.want[0], err)
		}
		// A process that has just started creates it again, and does not know the numbers.
		if err := b.shard.api.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		fresh := newLease("f", name, leaseOfFleet)
		fresh.Annotations = map[string]string{annotationShape: b.shard.shape}
		if _, err := b.shard.api.Create(ctx, fresh, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := b.shard.checkRecord(ctx, b.list(t)); err != nil {
			t.Fatal(err)
		}
		if err := b.f.Scale("", 15); err != nil || b.f.want[0] != 15 {
			t.Errorf("%d nodes: %v", b.f.want[0], err)
		}
	})
}
