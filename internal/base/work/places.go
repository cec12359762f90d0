package work

import (
	"math"
	"time"
)

// Places is how many jobs of one kind may run at once, for jobs that the Scheduler does not queue: pods that start. It follows
// how long they take, as the Scheduler's limit does. The jobs come one after another and are much alike, so Places compares
// rounds of jobs: in a round there are as many places as before, or twice as many (half as many where twice would be too many). If
// a job took as long among twice as many, they are useful and stay; if each took twice as long, they only took time from each other.
//
// It is not safe for concurrent use. The zero value has no places.
type Places struct {
	least, most, now int
	trying           bool // another number, to see what it does
	round            int  // counts rounds, modulo rest

	began       time.Time // of the round
	jobs        int
	took, among float64 // sums of the round's logarithms
	last        struct {
		took, among float64
		known       bool
	}
	xx, xy float64 // sums of squares and products of changes from round to round
}

// rest and doubt are every how many rounds Places tries another number when more were of no use the last time: with the least
// number of places, and with more.
const (
	rest  = 8
	doubt = 2
)

const (
	roundMemory = 0.7 // weight that earlier rounds keep
	roundEnough = 0.3 // least sum of squares to trust the slope: twice as many places add 0.48
)

// NewPlaces returns Places that begin with least and never exceed most.
func NewPlaces(least, most int, now time.Time) Places {
	least = max(1, least)
	return Places{least: least, most: max(least, most), now: least, began: now}
}

// Now returns the current number of places.
func (p *Places) Now() int {
	switch {
	case !p.trying:
		return p.now
	case 2*p.now <= p.most:
		return 2 * p.now
	}
	return max(p.least, p.now/2)
}

// Ended learns from a job that began at a time and ends now, with among jobs in flight. full says that others wait for places:
// what happens while nobody does says nothing.
func (p *Places) Ended(began, now time.Time, among float64, full bool) {
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

// forget drops the round, which no other can be compared with.
func (p *Places) forget(now time.Time) {
	p.trying, p.last.known = false, false
	p.begin(now)
}

func (p *Places) begin(now time.Time) {
	p.began, p.jobs, p.took, p.among = now, 0, 0, 0
}

// next compares the round with the one before, and begins another.
func (p *Places) next(now time.Time) {
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
		p.xx, p.xy = 0, 0 // forget the sums of earlier numbers of places
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
