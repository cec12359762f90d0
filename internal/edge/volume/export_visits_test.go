package volume

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// VisitAll does the periodic work (a visit) on all mounted volumes now, as if their time had come.
func (v *Volumes) VisitAll(ctx context.Context) {
	ready, _ := v.visits.take(time.Now().Add(24 * time.Hour))
	for i := range ready {
		v.visits.done(&ready[i], v.visit(ctx, &ready[i]))
	}
}

// Visits returns how many volumes the node visits periodically.
func (v *Volumes) Visits() int {
	v.visits.mu.Lock()
	defer v.visits.mu.Unlock()
	return v.visits.heap.Len()
}

// VisitForTest adds a volume of a pod that the node has to publish again at each visit (once a minute).
func (v *Volumes) VisitForTest(uid types.UID) {
	v.visits.add(uid, "v", &bound{Kind: kindCSI, Inline: true, Republish: true}, false)
}

// UnstageUnused makes one attempt to unstage each volume that a pod has left, as if its time had come.
func (v *Volumes) UnstageUnused(ctx context.Context) error {
	_, err := v.staged()
	errs := []error{err}
	ready, _ := v.stagings.take(time.Now().Add(24 * time.Hour))
	for _, one := range ready {
		errs = append(errs, v.tryUnstage(ctx, one))
	}
	return errors.Join(errs...)
}

// SetStat makes stat stand for stat(2) where the agent finds out whether the file system of a path answers.
func (v *Volumes) SetStat(stat func(path string)) { v.stat = stat }
