package work

import "time"

// A command is as slow as it takes times what it takes at best. Up to easy the machine has room; beyond hard, more at once only
// makes each take longer.
const (
	easy = 1.5
	fair = 2.0
	hard = 3.0
	// worst bounds what one command says: its author may have it take any time.
	worst = 6.0
)

// limit is how many pieces of work the machine bears at once: additive increase, multiplicative decrease by the slowness of
// commands. At the least, no command waits for another one of the node's: what it takes then is what it takes.
//
//	slowness  < easy: one more per command (doubling)   < fair: one more per round of commands   > hard: a tenth less per round
type limit struct {
	least, most float64
	now         float64
	slowness    float64 // moving average
	since       int     // commands since the last decrease
}

func newLimit(least, most int) limit {
	l := limit{least: float64(max(1, least)), slowness: 1}
	l.most = max(l.least, float64(most))
	l.now = min(2*l.least, l.most)
	return l
}

func (l *limit) places() int { return int(l.now) }

// ended takes a command into account that took so long, and best at best. full says that the limit held others up. One that is
// new says nothing of how slow the machine is; where the others are not slow, it may be one that sleeps.
func (l *limit) ended(took, best time.Duration, full bool) {
	if best <= 0 || took <= 0 {
		if l.slowness < fair && full {
			l.now = min(l.most, l.now+1/l.now)
		}
		return
	}
	l.slowness += (min(worst, max(1, float64(took)/float64(best))) - l.slowness) / 8
	l.since++
	switch {
	case l.slowness < easy && full:
		l.now++
	case l.slowness < fair && full:
		l.now += 1 / l.now
	case l.slowness > hard && float64(l.since) >= l.now:
		l.now, l.since = l.now*0.9, 0
	}
	l.now = min(l.most, max(l.least, l.now))
}

// Pace is what one command usually takes, kept by whoever runs it again and again. The zero value knows nothing yet.
type Pace struct{ best time.Duration }

// learn takes in what a command took. It is the best that counts; where nothing else of the node's slowed it down, it may have
// become slower itself.
func (p *Pace) learn(took time.Duration, least bool) {
	switch {
	case p.best == 0 || took < p.best:
		p.best = took
	case least:
		p.best += (took - p.best) / 8
	}
}
