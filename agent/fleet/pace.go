package fleet

import "time"

const (
	paceFirst = 8   // how many nodes may join at the same time at the beginning
	paceLeast = 2   // how many nodes may join at the same time at least, however slow joins are
	paceMost  = 256 // how many nodes may join at the same time at most, however fast joins are
	// paceSlack decides which joins are slow: those that take longer than three times the fastest join plus paceSlack.
	paceSlack = 500 * time.Millisecond
	// LateForJoins is how late the leases of the fleet may be renewed before allows lets fewer nodes join.
	LateForJoins = 2 * time.Second
)

// pace decides how many nodes may join at the same time; the number is window. It raises the number while joins are fast, and halves it
// when a join is slow. After a halving it ignores the next joins that end (rest is their number), because they began before the halving
// and would halve the number again. pace has no clock. Only one goroutine at a time may use it.
type pace struct {
	window  float64
	fastest time.Duration // 0: no node has joined yet
	full    bool          // a join was slow, so the number of joins at once grows slowly from now on
	rest    int           // how many of the next joins that end are ignored, because they began before the number was halved
}

func newPace() *pace { return &pace{window: paceFirst} }

// allows reports whether one more node may begin to join. joining is the number of nodes that join now. late is how late the fleet's
// leases are renewed.
func (p *pace) allows(joining int, late time.Duration) bool {
	if late > LateForJoins {
		return joining == 0 && late < 5*LateForJoins
	}
	return joining < int(p.window)
}

// ended adjusts the number of nodes that may join at the same time, after a join that took the given time.
func (p *pace) ended(took time.Duration) {
	if p.fastest == 0 || took < p.fastest {
		p.fastest = took
	}
	if p.rest > 0 {
		p.rest--
		return
	}
	switch {
	case took > 3*p.fastest+paceSlack:
		p.window, p.full = max(paceLeast, p.window/2), true
		p.rest = int(p.window)
	case p.full:
		p.window = min(paceMost, p.window+1/p.window)
	default:
		p.window = min(paceMost, p.window+1)
	}
}
