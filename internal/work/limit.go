package work

import (
	"math"
	"time"
)

// Whether more at once is of use shows in how the time of one and the same command changes with how much is under way: not at
// all where the machine has room (a slope of 0 between their logarithms), as much as that where each only takes from the others
// (a slope of 1). No time of a quiet machine is needed for it, which a busy one never shows.
const (
	useful   = 0.4
	useless  = 0.6
	memory   = 0.99 // of what was seen, per command
	enough   = 0.5  // seen, to judge by
	farthest = 2.0  // bounds what one command says: its author may have it take any time
)

// limit is how many pieces of work the machine bears at once. In each round of commands it grows where more is useful, and shrinks
// where it is not; it goes up and down by itself, so that there is something to see.
type limit struct {
	least, most float64
	now         float64
	xx, xy      float64 // sums of squares and products of changes
	round       float64 // commands until the next step
	steps       int
}

func newLimit(least, most int) limit {
	l := limit{least: float64(max(1, least))}
	l.most = max(l.least, float64(most))
	l.now = min(2*l.least, l.most)
	l.round = l.now
	return l
}

// places is a third less in every other round, which are of different lengths: no command meets always the same.
func (l *limit) places() int {
	if l.steps%2 == 1 {
		return int(max(l.least, l.now*2/3))
	}
	return int(l.now)
}

func (l *limit) slope() float64 { return l.xy / max(l.xx, 1e-9) }

// ended takes a command into account that took so long among so many. full says that the limit held others up.
func (l *limit) ended(p *Pace, took time.Duration, among float64, full bool) {
	if took <= 0 || among <= 0 {
		return
	}
	now := Pace{took: took.Seconds(), among: among}
	if p.took > 0 {
		x, y := math.Log(now.among/p.among), math.Log(now.took/p.took)
		y = max(-farthest, min(farthest, y))
		l.xx, l.xy = memory*l.xx+x*x, memory*l.xy+x*y
	}
	*p = now
	if l.round--; l.round > 0 {
		return
	}
	l.steps++
	l.round = l.now * float64(1+l.steps*7%5) / 2
	switch slope := l.slope(); {
	case l.xx < enough && full:
		l.now++
	case l.xx < enough:
	case slope > useless:
		l.now *= 0.85
	case slope < useful && full:
		l.now = l.now*1.25 + 0.5
	}
	l.now = min(l.most, max(l.least, l.now))
}

// Pace is what one command took the last time, and among how much: kept by whoever runs it again and again. The zero value knows
// nothing yet.
type Pace struct{ took, among float64 }
