package work

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// queue holds the waiting jobs by class and pod. It has no lock: the Scheduler holds its own.
type queue struct {
	shares  Shares
	classes [Classes]line
	virtual float64 // largest account of any class when one of its jobs was chosen; a class that had no jobs continues from this value
	length  int
}

// line is the queue of one class: its pods in the order of their turns, each with its waiting jobs.
type line struct {
	pods    []*turn
	of      map[types.UID]*turn
	account float64       // the time in seconds that the class has used, divided by its share
	usual   time.Duration // average duration of the jobs of the class
	active  int           // number of running jobs of the class, without those that have run so long that they no longer count as load
}

// turn has the waiting jobs of one pod in one class, oldest first.
type turn struct {
	uid  types.UID
	jobs []*Job
}

// guess is the assumed duration of jobs of a class that has not been measured yet.
const guess = 100 * time.Millisecond

// push adds a job that waits.
func (q *queue) push(j *Job) {
	l := &q.classes[j.class]
	if l.of == nil {
		l.of = map[types.UID]*turn{}
	}
	if len(l.pods) == 0 && l.active == 0 { // the account begins at the virtual time, so that a class cannot save up time while it has no jobs
		l.account = max(l.account, q.virtual)
	}
	t := l.of[j.uid]
	if t == nil {
		t = &turn{uid: j.uid}
		l.of[j.uid] = t
		l.pods = append(l.pods, t)
	}
	t.jobs = append(t.jobs, j)
	q.length++
}

// pop removes and returns the next job, or returns nil if there is none. It skips a class if may returns false for the class's next job.
func (q *queue) pop(may func(*Job) bool) *Job {
	next := Classes
	for c := range Classes {
		if p := q.classes[c].pods; len(p) > 0 && may(p[0].jobs[0]) && (next == Classes || q.before(c, next)) {
			next = c
		}
	}
	if next == Classes {
		return nil
	}
	l := &q.classes[next]
	t := l.pods[0]
	j := t.jobs[0]
	l.pods, t.jobs = l.pods[1:], t.jobs[1:]
	if len(t.jobs) > 0 {
		l.pods = append(l.pods, t)
	} else {
		delete(l.of, t.uid)
	}
	q.length--
	if q.shares[next] > 0 {
		q.virtual = max(q.virtual, l.account)
	}
	return j
}

// before reports whether the next job of class a begins before that of class b. A class with a share comes before one without. Of two
// classes with a share, the one that has used less time in relation to its share comes first.
func (q *queue) before(a, b Class) bool {
	if (q.shares[a] > 0) != (q.shares[b] > 0) {
		return q.shares[a] > 0
	}
	x, y := q.classes[a].account, q.classes[b].account
	return x < y || x == y && q.shares[a] > q.shares[b]
}

// remove removes a job that was withdrawn.
func (q *queue) remove(j *Job) {
	l := &q.classes[j.class]
	t := l.of[j.uid]
	if t == nil {
		return
	}
	i := slices.Index(t.jobs, j)
	if i < 0 {
		return
	}
	t.jobs = slices.Delete(t.jobs, i, i+1)
	q.length--
	if len(t.jobs) == 0 {
		delete(l.of, j.uid)
		l.pods = slices.DeleteFunc(l.pods, func(o *turn) bool { return o == t })
	}
}

// begin charges a class for a job that begins, with its usual duration; end corrects the charge to the real duration.
func (q *queue) begin(j *Job) {
	l := &q.classes[j.class]
	if l.usual == 0 {
		l.usual = guess
	}
	j.charged = l.usual
	l.active++
	q.charge(j.class, j.charged)
}

// end replaces the usual duration, which begin has charged, by the real one.
func (q *queue) end(j *Job, took time.Duration) {
	l := &q.classes[j.class]
	l.active--
	q.charge(j.class, took-j.charged)
	q.learn(j.class, took)
}

// learn updates the average duration of the jobs of a class.
func (q *queue) learn(c Class, took time.Duration) {
	l := &q.classes[c]
	l.usual += (min(took, time.Minute) - l.usual) / 8
}

// charge adds a duration to the account of a class.
func (q *queue) charge(c Class, d time.Duration) {
	if q.shares[c] > 0 {
		q.classes[c].account += d.Seconds() / q.shares[c]
	}
}
