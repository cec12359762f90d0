package work

import (
	"math"
	"time"
)

// The limit depends on how the duration of a command changes with the number of jobs in flight. The slope compares the changes of their
// logarithms. If the machine has room, the duration does not change, and the slope is 0. If jobs only take time from each other, the
// duration grows in proportion, and the slope is 1. This needs no measurement from an idle machine, which a busy node never provides. A
// slope below useful means that more jobs at once are useful, and a slope above useless that they are not.
const (
	useful   = 0.4
	useless  = 0.6
	memory   = 0.99 // weight that earlier observations keep at each new command
	enough   = 0.5  // minimum sum of squares (xx) to trust the slope
	farthest = 2.0  // bound of the change that one command can contribute, because a user chooses how long a command takes
)

// limit is how many jobs may be in flight before others wait. After each round of commands it grows if more jobs are useful, and
// shrinks if they are not. It also alternates between two values, so that there are differences to measure.
type limit struct {
	least, most float64
	now         float64
	xx, xy      float64 // sums of x*x, x*y over the commands; x, y: changes of log(jobs in flight), log(duration) since the command ran last
	round       float64 // number of commands until the next step
	steps       int     // number of steps so far
}

func newLimit(least, most int) limit {
	l := limit{least: float64(max(1, least))}
	l.most = max(l.least, float64(most))
	l.now = min(2*l.least, l.most)
	l.round = l.now
	return l
}

// current returns the limit that applies now: the full value in one round, two thirds of it in the next. Rounds differ in length, so that
// a command that runs periodically is measured with both values.
func (l *limit) current() int {
	if l.steps%2 == 1 {
		return int(max(l.least, l.now*2/3))
	}
	return int(l.now)
}

// slope returns by how much the logarithm of a command's duration grows when the logarithm of the number of jobs in flight grows by 1.
func (l *limit) slope() float64 { return l.xy / max(l.xx, 1e-9) }

// ended updates the measurements after a command. took is how long the command took, and among is how many jobs were in flight at the same
// time. full says whether other jobs wait because the limit is reached.
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

// Pace records how long a command took the last time, and with how many jobs in flight. A caller that repeats a command keeps a Pace for
// it. The zero value means that the command was not measured yet.
type Pace struct{ took, among float64 }
