package fleettop

import (
	"time"

	"github.com/wherry-node/wherry/agent/fleet"
	"github.com/wherry-node/wherry/internal/cli/fleetctl"
)

const (
	// mostSamples is how many samples a History keeps.
	mostSamples = 240
	// smooth is how many of the newest samples are averaged for a number on the screen.
	smooth = 5
	// judged is how many of the newest samples count for how fast nodes join and what they wait for.
	judged = 15
)

// verbs are the kinds of requests in the order in which the screen shows them.
var verbs = [...]string{"GET", "WATCH", "POST", "PUT", "PATCH", "DELETE"}

// sample is what happened between two answers of a fleet.
type sample struct {
	seconds                     float64
	starts, deletions, requests float64 // in all, not in a second
	failed                      float64
	byVerb                      [len(verbs)]float64
	waited                      time.Duration // of all requests together
	cpu                         float64       // seconds
	joins, left                 float64
	joinTook, joinWaited        time.Duration
	p99                         time.Duration // of the leases, at the end
}

// History has what happened in a fleet since the first answers. The zero value is empty. A fleet that is another one than before, or has begun
// anew, begins a new history.
type History struct {
	last    *fleetctl.State
	samples []sample // the oldest first
}

// Add adds the newest answer of the fleet.
func (h *History) Add(s *fleetctl.State) {
	last := h.last
	h.last = s
	if last == nil {
		return
	}
	if s.Name != last.Name || s.Running < last.Running || s.Requests.Total < last.Requests.Total || !s.Began.Equal(last.Began) {
		h.samples = nil
		return
	}
	elapsed := (s.Running - last.Running).Seconds()
	if elapsed <= 0 {
		return
	}
	one := sample{
		seconds: elapsed, starts: float64(s.Pods.Starts - last.Pods.Starts), deletions: float64(s.Pods.Deletions - last.Pods.Deletions),
		requests: grown(s.Requests.Total, last.Requests.Total), failed: grown(s.Requests.Failed, last.Requests.Failed),
		waited: s.Requests.Waited - last.Requests.Waited, cpu: s.CPUSeconds - last.CPUSeconds, p99: lateness(&s.Leases),
		joins: float64(s.Joins.Ended - last.Joins.Ended), left: float64(s.Joins.Left - last.Joins.Left),
		joinTook: s.Joins.Took - last.Joins.Took, joinWaited: s.Joins.Waited - last.Joins.Waited,
	}
	for i, verb := range verbs {
		one.byVerb[i] = grown(s.Requests.ByVerb[verb], last.Requests.ByVerb[verb])
	}
	if len(h.samples) >= mostSamples {
		h.samples = append(h.samples[:0:0], h.samples[1:]...)
	}
	h.samples = append(h.samples, one)
}

// grown returns by how much a counter has grown.
func grown(now, before uint64) float64 {
	if now < before {
		return 0
	}
	return float64(now - before)
}

// lateness returns how late the leases are renewed: those that were renewed, or the one that is due for longest.
func lateness(l *fleet.Lateness) time.Duration { return max(l.P99, l.Overdue) }

// newest returns at most n of the newest samples.
func (h *History) newest(n int) []sample { return h.samples[max(0, len(h.samples)-n):] }

// rate returns how often something happens in a second: the mean of the newest n samples. of returns the value of one sample.
func (h *History) rate(n int, of func(*sample) float64) float64 {
	sum, seconds := 0.0, 0.0
	for _, s := range h.newest(n) {
		sum += of(&s)
		seconds += s.seconds
	}
	if seconds <= 0 {
		return 0
	}
	return sum / seconds
}

// series returns how often something happened in a second, for each of the newest n samples.
func (h *History) series(n int, of func(*sample) float64) []float64 {
	var out []float64
	for _, s := range h.newest(n) {
		out = append(out, of(&s)/s.seconds)
	}
	return out
}

// share returns for which part of the joins' time the nodes waited for the API server. ok is false if no node joined lately.
func (h *History) share() (part float64, ok bool) {
	var took, waited time.Duration
	for _, s := range h.newest(judged) {
		took += s.joinTook
		waited += s.joinWaited
	}
	if took <= 0 {
		return 0, false
	}
	return float64(waited) / float64(took), true
}

// wait returns how long a request waited for its answer lately, on average.
func (h *History) wait() time.Duration {
	var waited time.Duration
	n := 0.0
	for _, s := range h.newest(smooth) {
		waited += s.waited
		n += s.requests
	}
	if n <= 0 {
		return 0
	}
	return time.Duration(float64(waited) / n)
}
