package pod

import "k8s.io/apimachinery/pkg/types"

// Hint is the content of an event from the runtime: a sandbox or container of a pod has reached a point of its life. A hint is
// never used as a status. It means only that an inspection may find something new.
type Hint struct {
	UID types.UID
	// ID is the sandbox or container; empty: the runtime did not say.
	ID      string
	Reached Reached
}

// Reached is a point in the life of a sandbox or container. Each point is reached at most once.
//
//	Running ──► Ended ──► Removed
type Reached uint8

// These are the points, in the order in which they are reached.
const (
	ReachedUnknown Reached = iota
	ReachedRunning
	ReachedEnd
	ReachedRemoval
)

// Shows reports whether an inspection already shows the change that a hint announces. If so, another inspection would find nothing
// new.
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
