package agent

import (
	"time"

	"github.com/wherry-node/wherry/internal/core/nodeclock"
)

// Clock is the clock of a node as other machines see it: the times that the node writes into objects, and reads from them. It may be wrong, ahead or
// behind or drifting, as the clock of a machine may be. What lasts a time on the node (back-off, probes, grace periods, intervals) does not
// depend on it. Calls may be concurrent, and must be quick.
type Clock interface {
	// Shows returns what the clock shows at the instant t, or, if t has passed, what it showed then. So a time that was written once stays the same
	// when the clock is set.
	Shows(t time.Time) time.Time
	// Instant returns when the clock shows the time shown, or would have shown it, if it always goes as it goes now. A node that compares a time
	// from outside with its clock compares this instant with now.
	Instant(shown time.Time) time.Time
}

// clock returns the node's clock.
func (a *Agent) clock() nodeclock.Clock { return nodeclock.Of(a.deps.Clock) }
