package work

import (
	"context"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// hold is how long a job counts as load at least, and longest is how long at most. Between these bounds, the time is four times the usual
// duration of the jobs of its class.
const (
	hold    = 2 * time.Second
	longest = 6 * time.Second
)

// yieldFor is how long a removal waits while a pod starts or stops, or a user runs a command.
const yieldFor = 10 * time.Second

// Config configures a Scheduler; its zero value is usable.
type Config struct {
	// Processors is the number of processors of the machine, and the lower bound of the limit. Default 2.
	Processors int
	// Most is the upper bound of the limit. Default 128.
	Most int
	// Shares are the shares of the classes; nil: DefaultShares.
	Shares *Shares
}

// Scheduler decides when jobs may begin. All methods may be called concurrently. Only Wait blocks.
type Scheduler struct {
	mu     sync.Mutex
	limit  limit
	queue  queue
	few    int    // how many removals may run at once while a pod starts or stops, or a user runs a command
	flying []*Job // the jobs that count as load, oldest first
	queued int    // number of jobs in flying whose class can wait
	timer  *time.Timer
}

// Job is one piece of work.
//
//	waiting ──► running ──► done
//	   └──────────────────────▲
type Job struct {
	s       *Scheduler
	class   Class
	uid     types.UID
	pace    *Pace
	granted func()

	state   state
	asked   time.Time // when the job began to wait
	loads   bool      // the job is in Scheduler.flying
	waits   bool      // the job's class can wait
	began   time.Time
	charged time.Duration
	until   time.Time // when the job stops counting as load
	among   int       // number of jobs in flight when the job began, including itself
}

type state uint8

const (
	waiting state = iota
	running
	done
)

// New returns a Scheduler.
func New(cfg Config) *Scheduler {
	if cfg.Processors <= 0 {
		cfg.Processors = 2
	}
	if cfg.Most <= 0 {
		cfg.Most = 128
	}
	shares := DefaultShares()
	if cfg.Shares != nil {
		shares = *cfg.Shares
	}
	return &Scheduler{limit: newLimit(cfg.Processors, cfg.Most), queue: queue{shares: shares}, few: cfg.Processors}
}

// Begin records a job that begins at once. Done ends it.
func (s *Scheduler) Begin(c Class) *Job {
	j := &Job{s: s, class: c}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.launch(j, time.Now())
	return j
}

// Enter asks the Scheduler to let a job of a pod begin. If now is true, the job may begin at once. Otherwise the Scheduler calls granted,
// in a goroutine of its own, when the job may begin, unless Withdraw is called before. pace may be nil. It holds how long the job took
// before; the Scheduler reads and writes it under its lock.
func (s *Scheduler) Enter(c Class, uid types.UID, pace *Pace, granted func()) (j *Job, now bool) {
	j = &Job{s: s, class: c, uid: uid, pace: pace, granted: granted, waits: true}
	at := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire(at)
	if s.queue.length == 0 && s.room() && s.may(c, at, at) {
		s.launch(j, at)
		return j, true
	}
	j.asked = at
	s.queue.push(j)
	s.dispatch(at)
	return j, false
}

// Wait blocks until the job may begin or ctx ends.
func (s *Scheduler) Wait(ctx context.Context, c Class, uid types.UID) (*Job, error) {
	turn := make(chan struct{})
	j, now := s.Enter(c, uid, nil, func() { close(turn) })
	if now {
		return j, nil
	}
	select {
	case <-turn:
		return j, nil
	case <-ctx.Done():
		if !j.Withdraw() {
			j.Cut()
		}
		return nil, ctx.Err()
	}
}

// Withdraw removes a waiting job from the queue. It returns false, and does nothing, if the job was already allowed to begin.
func (j *Job) Withdraw() bool {
	j.s.mu.Lock()
	defer j.s.mu.Unlock()
	if j.state != waiting {
		return false
	}
	j.state = done
	j.s.queue.remove(j)
	return true
}

// Done ends a job that has begun. Only the first call counts.
func (j *Job) Done() { j.end(false) }

// Cut ends a job that was canceled. Unlike with Done, the Scheduler does not learn from its duration.
func (j *Job) Cut() { j.end(true) }

func (j *Job) end(cut bool) {
	now := time.Now()
	s := j.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if j.state != running {
		return
	}
	took := now.Sub(j.began)
	full := s.queue.length > 0
	among := float64(j.among+len(s.flying)) / 2
	if j.loads {
		s.unload(j, took)
	} else {
		s.queue.learn(j.class, took)
	}
	j.state = done
	if j.pace != nil && !cut {
		s.limit.ended(j.pace, took, among, full)
	}
	s.dispatch(now)
}

// room reports whether one more job that can wait may begin. While a pod starts or stops, or a user runs a command, such jobs have a
// quarter of the limit: with more such jobs, a start would get only a small part of the machine. Otherwise they may use the whole limit.
func (s *Scheduler) room() bool {
	slots := s.limit.current()
	if s.awaited() {
		return s.queued < max(1, slots/4)
	}
	return len(s.flying) < slots
}

// awaited reports whether a job in flight is one that somebody waits for: a start or stop of a pod, or a command of a user.
func (s *Scheduler) awaited() bool {
	return s.queue.classes[Start].active+s.queue.classes[People].active > 0
}

// may reports whether a job of this class that has waited since asked may begin now. Only removals are delayed, because nobody waits for
// them. While a pod starts or stops, or a user runs a command, removals wait for yieldFor, and then as many run at once as there are
// processors.
func (s *Scheduler) may(c Class, asked, now time.Time) bool {
	return c != Removal || !s.awaited() || now.Sub(asked) >= yieldFor && s.queue.classes[c].active < s.few
}

// launch begins a job.
func (s *Scheduler) launch(j *Job, now time.Time) {
	j.state, j.began, j.loads = running, now, true
	s.flying = append(s.flying, j)
	j.among = len(s.flying)
	j.until = now.Add(min(longest, max(hold, 4*s.queue.classes[j.class].usual)))
	s.queue.begin(j)
	if j.waits {
		s.queued++
	}
}

// unload stops counting a job as load.
func (s *Scheduler) unload(j *Job, took time.Duration) {
	if !j.loads {
		return
	}
	j.loads = false
	i := slices.Index(s.flying, j)
	s.flying = slices.Delete(s.flying, i, i+1)
	s.queue.end(j, took)
	if j.waits {
		s.queued--
	}
}

// expire stops counting the jobs whose time (Job.until) is over, so that a job that hangs does not hold a place for ever. The jobs
// themselves go on.
func (s *Scheduler) expire(now time.Time) {
	for i := 0; i < len(s.flying); {
		if f := s.flying[i]; !now.Before(f.until) {
			s.unload(f, now.Sub(f.began))
			continue
		}
		i++
	}
}

// dispatch starts waiting jobs while there is room. If some still wait, dispatch sets a timer for the next job that expires.
func (s *Scheduler) dispatch(now time.Time) {
	s.expire(now)
	for s.queue.length > 0 && s.room() {
		j := s.queue.pop(func(j *Job) bool { return s.may(j.class, j.asked, now) })
		if j == nil {
			break
		}
		s.launch(j, now)
		go j.granted()
	}
	if s.timer != nil {
		s.timer.Stop()
		s.timer = nil
	}
	if s.queue.length > 0 && len(s.flying) > 0 {
		next := s.flying[0].until
		for _, f := range s.flying {
			if f.until.Before(next) {
				next = f.until
			}
		}
		s.timer = time.AfterFunc(max(time.Millisecond, next.Sub(now)), s.again)
	}
}

// again is called by the timer that dispatch sets for the next job that expires.
func (s *Scheduler) again() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dispatch(time.Now())
}

// Waiter is a job that waits.
type Waiter struct {
	Class Class
	UID   types.UID
	Since time.Time
}

// mostWaiters bounds how many jobs Waiting returns.
const mostWaiters = 200

// Waiting returns jobs that wait, by class and in the order of the pods' turns.
func (s *Scheduler) Waiting() (out []Waiter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.queue.classes {
		for _, t := range s.queue.classes[c].pods {
			for _, j := range t.jobs {
				if len(out) == mostWaiters {
					return out
				}
				out = append(out, Waiter{Class: j.class, UID: j.uid, Since: j.asked})
			}
		}
	}
	return out
}

// Load is the state of a Scheduler: its limit, and how many jobs count as load or wait.
type Load struct{ Limit, Flying, Waiting int }

// Load returns the current load.
func (s *Scheduler) Load() Load {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Load{Limit: s.limit.current(), Flying: len(s.flying), Waiting: s.queue.length}
}
