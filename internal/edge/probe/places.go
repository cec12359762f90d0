package probe

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// These constants bound how many checks run at once, so that checks that hang delay the probes of no other pod.
const (
	// execsPerPod bounds how many commands run, or wait in the scheduler, at once for the probes of one pod: each command is a process in
	// the pod's containers and a call of the runtime. connsPerPod bounds the checks over connections.
	execsPerPod = 8
	connsPerPod = 16
	// podAgain is when a check beyond the bound of its pod is tried again.
	podAgain = 100 * time.Millisecond
	// slowAfter is how long a check counts towards MaxParallel. slowest bounds the checks that last longer, in multiples of MaxParallel.
	slowAfter = time.Second
	slowest   = 16
	// fullAgain is when the loop looks again at probes that cannot begin, to report them.
	fullAgain = time.Second
)

// share is the set of checks that have a bound in common: the commands of one pod, or its checks over connections.
type share struct {
	pod  types.UID
	exec bool
}

// usage is how many checks of a share run, or wait in the scheduler, and how many wait in the heap because others fill the share (their
// runners are held).
type usage struct{ busy, held int }

func (r *runner) share() share { return share{r.c.ref.UID, r.spec.Exec != nil} }

func (s share) most() int {
	if s.exec {
		return execsPerPod
	}
	return connsPerPod
}

// enters counts a check that was taken out of the heap as busy. It returns false, and counts the check as held, if its pod has its maximum
// of checks, or if others of the pod were held before it: checks that are held get their turns in the order in which they came. It is called
// with the lock held.
func (p *Probes) enters(r *runner) bool {
	s := r.share()
	u := p.usage[s]
	defer func() { p.usage[s] = u }()
	if u.busy < s.most() && (r.held || u.held == 0) {
		if r.held {
			u.held--
		}
		u.busy++
		return true
	}
	if !r.held {
		r.held = true
		u.held++
	}
	return false
}

// exits stops counting a check as busy. It is called with the lock held.
func (p *Probes) exits(r *runner) {
	s := r.share()
	u := p.usage[s]
	u.busy--
	p.use(s, u)
}

// takesOut takes a probe out of the heap, if it is there. It is called with the lock held.
func (p *Probes) takesOut(r *runner) {
	if r.Waits() && r.held {
		s := r.share()
		u := p.usage[s]
		u.held--
		p.use(s, u)
	}
	p.timers.Remove(r)
}

func (p *Probes) use(s share, u usage) {
	if u == (usage{}) {
		delete(p.usage, s)
		return
	}
	p.usage[s] = u
}

// room reports whether one more check may begin. If MaxParallel checks count, it stops counting those that have become slow, as long as
// there may be more slow ones. It is called with the lock held.
func (p *Probes) room(now time.Time) bool {
	for len(p.running) >= p.cfg.MaxParallel {
		if p.slow >= slowest*p.cfg.MaxParallel || now.Sub(p.running[0].began) < slowAfter {
			return false
		}
		p.running[0].slow = true
		p.running = slices.Delete(p.running, 0, 1)
		p.slow++
	}
	return true
}

// untilRoom returns when to call room again if it has returned false. A check that ends wakes the loop earlier. It is called with the lock
// held.
func (p *Probes) untilRoom(now time.Time) time.Duration {
	if p.slow >= slowest*p.cfg.MaxParallel {
		return fullAgain
	}
	return p.running[0].began.Add(slowAfter).Sub(now)
}

// ended stops counting a check that has ended. It is called with the lock held.
func (p *Probes) ended(b *batch) {
	if b.slow {
		p.slow--
	} else {
		i := slices.Index(p.running, b)
		p.running = slices.Delete(p.running, i, i+1)
	}
	p.exits(b.runners[0])
}

// blocked returns a report if probes have been due for long and cannot begin, because there is no room; first is the one that is due the
// longest. nil: nothing to report. It is called with the lock held.
func (p *Probes) blocked(first *runner, now time.Time) *Behind {
	late := now.Sub(first.At())
	if late < behindWindow || !p.behind.mayReport(now) {
		return nil
	}
	p.behind.reportedAt = now
	report := &Behind{Most: late}
	for _, e := range p.pods {
		for _, c := range e.containers {
			for _, r := range c.runners {
				if r != nil && r.Waits() && !r.At().After(now) {
					report.Waiting++
				}
			}
		}
	}
	return report
}
