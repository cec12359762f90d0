package fleet

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Expectation is a statement about a fleet, for example that all pods run. ParseExpectation makes one; the zero value is not valid.
type Expectation struct {
	text  string
	state string // "pods=running"; "": a comparison
	// A comparison: what[part] op limit.
	what, part, op string
	limit          float64 // a number, a part in percent of all nodes or pods, or seconds
	percent        bool
}

// String returns the expectation as ParseExpectation reads it.
func (e Expectation) String() string { return e.text }

// Outcome says whether an expectation holds.
type Outcome struct {
	Expect string `json:"expect"`
	Held   bool   `json:"held"`
	Now    string `json:"now"` // the present state, for people
}

// stateNames are the expectations about all nodes and all pods.
var stateNames = []string{"nodes=ready", "nodes=gone", "pods=running", "pods=ready", "pods=succeeded", "pods=finished", "pods=gone"}

// partNames lists the numbers that a comparison can name: "nodes.ready", "pods.running" and so on.
var partNames = map[string][]string{
	"nodes":  {"ready", "notReady", "present", "joining", "leaving", "crashed", "partitioned", "failed"},
	"pods":   {"running", "ready", "pending", "succeeded", "failed", "all"},
	"leases": {"p50", "p99", "overdue", "failed"},
}

var comparison = regexp.MustCompile(`^([a-z]+)\.([a-zA-Z0-9]+)\s*(>=|<=|!=|=|>|<)\s*(.+)$`)

// maxExpectation bounds an expectation in bytes.
const maxExpectation = 200

// ParseExpectation reads an expectation: a state of all nodes or pods ("nodes=ready", "pods=running"), or a comparison of a number from Status
// ("pods.running>=500", "nodes.ready>=90%", "leases.p99<=1s"). The operators are =, !=, <, <=, > and >=.
func ParseExpectation(text string) (Expectation, error) {
	e := Expectation{text: strings.TrimSpace(text)}
	if len(text) > maxExpectation {
		return e, fmt.Errorf("an expectation has at most %d bytes, this one has %d", maxExpectation, len(text))
	}
	if slices.Contains(stateNames, e.text) {
		e.state = e.text
		return e, nil
	}
	m := comparison.FindStringSubmatch(e.text)
	if m == nil {
		return e, fmt.Errorf("expectation %q: use one of %s, or a comparison such as pods.running>=500", text, strings.Join(stateNames, ", "))
	}
	e.what, e.part, e.op = m[1], m[2], m[3]
	parts, ok := partNames[e.what]
	switch {
	case !ok:
		return e, fmt.Errorf("expectation %q: %q is unknown: use nodes, pods or leases", text, e.what)
	case !slices.Contains(parts, e.part):
		return e, fmt.Errorf("expectation %q: %s.%s is unknown: %s has %s", text, e.what, e.part, e.what, strings.Join(parts, ", "))
	}
	return e, e.setLimit(m[4])
}

// setLimit reads the right side of a comparison.
func (e *Expectation) setLimit(text string) error {
	if e.isTime() {
		d, err := time.ParseDuration(text)
		if err != nil || d < 0 {
			return fmt.Errorf("expectation %q: %q is no duration such as 500ms", e.text, text)
		}
		e.limit = d.Seconds()
		return nil
	}
	number, percent := strings.CutSuffix(text, "%")
	n, err := strconv.ParseFloat(number, 64)
	switch {
	case err != nil || !(n >= 0 && n <= 1e9):
		return fmt.Errorf("expectation %q: %q is no number from 0 to 1000000000", e.text, text)
	case percent && (n > 100 || e.what == "leases"):
		return fmt.Errorf("expectation %q: a percentage from 0%% to 100%% is for nodes and pods", e.text)
	}
	e.limit, e.percent = n, percent
	return nil
}

// isTime reports whether the right side of a comparison is a duration.
func (e *Expectation) isTime() bool { return e.what == "leases" && e.part != "failed" }

// ParseExpectations reads several expectations. The error joins all problems.
func ParseExpectations(texts []string) ([]Expectation, error) {
	var all []Expectation
	var errs []error
	for _, text := range texts {
		e, err := ParseExpectation(text)
		all, errs = append(all, e), append(errs, err)
	}
	return all, errors.Join(errs...)
}

// Check reports whether the expectation holds in the state s. wanted is the least number of pods: with fewer pods, no expectation about all
// pods holds, except pods=gone.
func (e Expectation) Check(s *Status, wanted int) Outcome {
	o := Outcome{Expect: e.text}
	if e.state != "" {
		o.Held, o.Now = e.checkState(s, wanted)
		return o
	}
	if e.isTime() && e.part != "overdue" && s.Leases.Renewals == 0 {
		o.Now = "unknown: no lease was renewed yet"
		return o
	}
	value, whole := e.value(s, wanted)
	limit := e.limit
	o.Now = strconv.FormatFloat(value, 'f', -1, 64)
	switch {
	case e.isTime():
		o.Now = time.Duration(value * float64(time.Second)).Round(time.Millisecond).String()
	case e.percent:
		limit = whole * e.limit / 100
		o.Now += " of " + strconv.FormatFloat(whole, 'f', -1, 64)
	}
	switch e.op {
	case "=":
		o.Held = value == limit
	case "!=":
		o.Held = value != limit
	case "<":
		o.Held = value < limit
	case "<=":
		o.Held = value <= limit
	case ">":
		o.Held = value > limit
	case ">=":
		o.Held = value >= limit
	}
	return o
}

// CheckAll checks expectations one after another, each as Check does, and reports whether all hold.
func CheckAll(all []Expectation, s *Status, wanted int) (outcomes []Outcome, held bool) {
	outcomes, held = make([]Outcome, len(all)), true
	for i, e := range all {
		outcomes[i] = e.Check(s, wanted)
		held = held && outcomes[i].Held
	}
	return outcomes, held
}

// checkState checks an expectation about all nodes or all pods.
func (e *Expectation) checkState(s *Status, wanted int) (held bool, now string) {
	n, p := &s.Nodes, &s.Pods
	all := p.all()
	pods := func(count int) (bool, string) {
		return count == all && all >= max(1, wanted), fmt.Sprintf("%d of %d", count, max(all, wanted))
	}
	switch e.state {
	case "nodes=ready":
		return s.Settled(), fmt.Sprintf("%d of %d", n.Ready, n.Want)
	case "nodes=gone":
		return n.Present == 0, fmt.Sprintf("%d are left", n.Present)
	case "pods=running":
		return pods(p.Running)
	case "pods=ready":
		return pods(p.Ready)
	case "pods=succeeded":
		return pods(p.Succeeded)
	case "pods=finished":
		return pods(p.Succeeded + p.Failed)
	case "pods=gone":
		return all == 0, fmt.Sprintf("%d are left", all)
	}
	return false, ""
}

// value returns the number of a comparison, and how many nodes or pods there are or should be in all.
func (e *Expectation) value(s *Status, wanted int) (value, whole float64) {
	n, p, l := &s.Nodes, &s.Pods, &s.Leases
	byName := map[string]int{
		"nodes.ready": n.Ready, "nodes.notReady": n.Present - n.Ready, "nodes.present": n.Present, "nodes.joining": n.Joining, "nodes.leaving": n.Leaving,
		"nodes.crashed": n.Crashed, "nodes.partitioned": n.Partitioned, "nodes.failed": n.Failed,
		"pods.running": p.Running, "pods.ready": p.Ready, "pods.pending": p.Pending, "pods.succeeded": p.Succeeded, "pods.failed": p.Failed, "pods.all": p.all(),
		"leases.failed": l.Failed,
	}
	times := map[string]time.Duration{"leases.p50": l.P50, "leases.p99": l.P99, "leases.overdue": l.Overdue}
	name := e.what + "." + e.part
	if e.isTime() {
		return times[name].Seconds(), 0
	}
	if e.what == "nodes" {
		return float64(byName[name]), float64(n.Want)
	}
	return float64(byName[name]), float64(max(p.all(), wanted))
}

// all returns the number of pods.
func (p *Pods) all() int { return p.Pending + p.Running + p.Succeeded + p.Failed }

// Unmet is the error of Await: expectations did not hold in time.
type Unmet struct {
	Outcomes []Outcome // of all expectations, at the end
	Hold     time.Duration
}

// Error lists the expectations that do not hold.
func (u *Unmet) Error() string {
	var missing []string
	for _, o := range u.Outcomes {
		if !o.Held {
			missing = append(missing, fmt.Sprintf("%s (now: %s)", o.Expect, o.Now))
		}
	}
	switch {
	case missing == nil && u.Hold == 0:
		return "the expectations hold, but the fleet was not ready to be judged: it had not created its pods or was still starting"
	case missing == nil:
		return fmt.Sprintf("the expectations hold, but not for %s yet", u.Hold)
	}
	return "not as expected: " + strings.Join(missing, ", ")
}

// expectPace is how often expectations are checked.
const expectPace = 100 * time.Millisecond

// Await waits until all expectations hold at the same time, and without a break for the time hold. If ctx ends before that, the error is an *Unmet.
// Pods count that are bound to nodes of the fleet.
func (f *Fleet) Await(ctx context.Context, hold time.Duration, all ...Expectation) ([]Outcome, error) {
	return AwaitStatus(ctx, hold, all, func(context.Context) (Status, int, error) { return f.Status(), 0, nil })
}

// AwaitStatus does what Await does for a fleet in another process. read returns the state of the fleet, and the least number of pods. If read
// returns an error, the wait ends.
func AwaitStatus(ctx context.Context, hold time.Duration, all []Expectation, read func(context.Context) (Status, int, error)) ([]Outcome, error) {
	var since time.Time // from when on all have held
	var held bool
	outcomes := make([]Outcome, len(all))
	for i, e := range all {
		outcomes[i] = Outcome{Expect: e.text, Now: "unknown: the fleet has not answered"}
	}
	for {
		s, wanted, err := read(ctx)
		switch {
		case err != nil && ctx.Err() == nil:
			return nil, err
		case err != nil: // the end of the time has cut the request short
			return outcomes, &Unmet{Outcomes: outcomes, Hold: hold}
		}
		now := time.Now()
		outcomes, held = CheckAll(all, &s, wanted)
		switch {
		case !held:
			since = time.Time{}
		case since.IsZero():
			since = now
		}
		if held && now.Sub(since) >= hold {
			return outcomes, nil
		}
		if !pause(ctx, expectPace) {
			return outcomes, &Unmet{Outcomes: outcomes, Hold: hold}
		}
	}
}
