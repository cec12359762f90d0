package work

import (
	"math"
	"time"
)

// Slots is the number of jobs of one kind that may run at once. It is for jobs that the Scheduler does not queue: starts of pods and stops
// of sandboxes. Like the Scheduler's limit, it adapts to how long the jobs take. The jobs of one kind are much alike, so Slots compares
// rounds of jobs. Some rounds have the current number of slots. Other rounds try twice as many (half as many if twice exceeds the maximum).
// If jobs take no longer with twice as many slots, the additional slots are useful, and the number stays at twice. If jobs take twice as
// long, they only take time from each other.
//
// Slots is not safe for concurrent use. The zero value has no slots.
type Slots struct {
	least, most, now int
	trying           bool // this round has a number of slots that differs from now, to measure the effect
	round            int  // counts rounds, modulo rest

	began       time.Time // when the round began
	jobs        int
	took, among float64 // sums of the logarithms of the jobs' durations, and of the numbers of jobs in flight, in this round
	last        struct {
		took, among float64
		known       bool
	}
	xx, xy float64 // sums of x*x, x*y over the rounds; x, y: changes of average log(jobs in flight), log(duration) since the last round
}

// Slots tries another number of slots less often after a larger number has not helped: in one of this many rounds.
const (
	rest  = 8 // if the number of slots is the minimum
	doubt = 2 // if the number of slots is larger than the minimum
)

const (
	roundMemory = 0.7 // weight that earlier rounds keep
	roundEnough = 0.3 // minimum sum of squares (xx) to trust the slope; one round with twice as many slots adds 0.48
)

// NewSlots returns Slots that begin with least and never exceed most.
func NewSlots(least, most int, now time.Time) Slots {
	least = max(1, least)
	return Slots{least: least, most: max(least, most), now: least, began: now}
}

// Now returns the current number of slots.
func (p *Slots) Now() int {
	switch {
	case !p.trying:
		return p.now
	case 2*p.now <= p.most:
		return 2 * p.now
	}
	return max(p.least, p.now/2)
}

// Ended updates the measurements when a job has ended. among is the number of jobs that were in flight with it. full says whether other
// jobs wait for slots. If none wait, the number of slots has no effect, and the measurements of the round are dropped.
func (p *Slots) Ended(began, now time.Time, among float64, full bool) {
	if p.least == p.most {
		return
	}
	if !full {
		p.forget(now)
		return
	}
	if took := now.Sub(began); took > 0 && among > 0 && !began.Before(p.began) {
		p.jobs, p.took, p.among = p.jobs+1, p.took+math.Log(took.Seconds()), p.among+math.Log(among)
	}
	if p.jobs >= p.Now() {
		p.next(now)
	}
}

// forget drops the measurements of the round, because they cannot be compared with those of another round.
func (p *Slots) forget(now time.Time) {
	p.trying, p.last.known = false, false
	p.begin(now)
}

func (p *Slots) begin(now time.Time) {
	p.began, p.jobs, p.took, p.among = now, 0, 0, 0
}

// next compares the round with the round before, and begins a new round.
func (p *Slots) next(now time.Time) {
	took, among := p.took/float64(p.jobs), p.among/float64(p.jobs)
	if p.last.known {
		x, y := among-p.last.among, took-p.last.took
		y = max(-farthest, min(farthest, y))
		p.xx, p.xy = roundMemory*p.xx+x*x, roundMemory*p.xy+x*y
	}
	p.last.took, p.last.among, p.last.known = took, among, true
	p.round = (p.round + 1) % rest
	known := p.xx >= roundEnough
	switch slope := p.xy / max(p.xx, 1e-9); {
	case known && slope < useful:
		p.now = max(p.now, p.Now())
		p.xx, p.xy = 0, 0 // the sums belong to earlier numbers of slots
		p.trying = true
	case known && slope > useless && p.now > p.least:
		p.now = max(p.least, p.now/2)
		p.trying = false
	case known && p.now > p.least:
		p.trying = p.round%doubt == 0
	case known:
		p.trying = p.round == 0
	default:
		p.trying = !p.trying
	}
	p.begin(now)
}
