package pod

import "k8s.io/apimachinery/pkg/types"

// Hint is what an event of the runtime says: that a sandbox or container of a pod has come to a point of its life. It is
// never taken as a status; it says that an inspection may be worth making.
type Hint struct {
	UID types.UID
	// ID is the sandbox or container; empty: the runtime did not say.
	ID      string
	Reached Reached
}

// Reached is a point in the life of a sandbox or container. None of them is ever passed twice.
//
//	Running ──► Ended ──► Removed
type Reached uint8

// The points.
const (
	ReachedUnknown Reached = iota
	ReachedRunning
	ReachedEnd
	ReachedRemoval
)

// Shows reports whether an inspection already holds what a hint tells of, so that another would find nothing new in it.
func (o *Observed) Shows(h Hint) bool {
	if h.ID == "" || h.Reached == ReachedUnknown {
		return false
	}
	for i := range o.Sandboxes {
		if s := &o.Sandboxes[i]; s.ID == h.ID {
			return h.Reached == ReachedRunning || h.Reached == ReachedEnd && !s.Ready
		}
	}
	if c := o.ByID(h.ID); c != nil {
		return c.State == StateExited && h.Reached != ReachedRemoval || c.State == StateRunning && h.Reached == ReachedRunning
	}
	return h.Reached == ReachedRemoval
}
