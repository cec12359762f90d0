package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/wherry-node/wherry/bench/internal/differ"
)

// wholeRun is the number of cases from which a run counts as complete. A complete run names the decided differences (differ.Decisions, the
// intended ones) that it did not show. One run may miss a rare one; differ's TestEachDecisionWasSeen fails if all counted runs miss it.
const wholeRun = 2500

// mostSlow is the maximum percentage of cases that a run may leave out because the machine is too slow.
const mostSlow = 2

// mostAlone is the maximum percentage of cases in which Wherry may do something in one run that upstream's kubelet does in none (differ.Alone).
const mostAlone = 0.2

// runner is the part of differ.Runner that a tally uses: Run runs a case on both agents, Restart restarts both agents.
type runner interface {
	Run(ctx context.Context, c *differ.Case) (differ.Verdict, *differ.Pair, error)
	Restart(kill bool) error
}

// tally counts the differences of all blocks by class.
type tally struct {
	o        options
	ran      int // cases of the run, including those that could not be compared
	same     int // cases without an undecided (unintended) difference
	unsteady int // differences that one run of a case showed and another run of the same case did not
	hits     map[string]*hit
	decided  map[string]int // number of cases that show a decided (intended) class of differences, by class
	excused  map[string]excused
	crossed  map[string]int // number of cases in which two events may swap their order, by the events (differ.Crossing)
	alone    []hit          // what Wherry did in one run of a case and upstream's kubelet in none (differ.Alone), a hit for each case and class

	// compareAll compares the traces of a run of a case: differ.CompareAll.
	compareAll func(c *differ.Case, upstream, wherry *differ.Trace) differ.Verdict

	records *records // file for the traces of all cases; nil: they are not recorded

	mu      sync.Mutex
	refused []error                         // errors of the API server, which refused the pods of some cases
	slow    map[*differ.Case]bool           // cases that could not be compared, because upstream's kubelet was too slow
	pairs   map[*differ.Case][]*differ.Pair // traces of each case whose first run shows a difference, from all of its runs
}

func newTally(o options) *tally {
	return &tally{
		o: o, hits: map[string]*hit{}, decided: map[string]int{}, excused: map[string]excused{}, crossed: map[string]int{}, compareAll: differ.CompareAll,
		pairs: map[*differ.Case][]*differ.Pair{}, slow: map[*differ.Case]bool{},
	}
}

// excused says how often one excuse (differ.Excuse) was needed: in how many cases, and for how many differences (lines).
type excused struct{ cases, lines int }

// hit is a class of undecided (unintended) differences, with the cases that show it. first has, for each of these cases, the first
// difference of the class.
type hit struct {
	class string
	block block
	cases []*differ.Case
	first []differ.Difference
}

// runAll runs several lists of blocks at the same time; the blocks of one list run one after another. It adds the differences of all cases
// to the tally, also if some cases failed.
func (t *tally) runAll(ctx context.Context, runner runner, lots ...[]block) error {
	found, errs := make([][][]*differ.Verdict, len(lots)), make([]error, len(lots))
	var wg sync.WaitGroup
	for i, lot := range lots {
		wg.Go(func() {
			for _, b := range lot {
				verdicts, err := t.block(ctx, runner, b)
				found[i] = append(found[i], verdicts)
				if err != nil {
					errs[i] = err
					return
				}
			}
		})
	}
	wg.Wait()
	for i, lot := range lots {
		for j := range found[i] { // an error may have ended the list early
			for k, c := range lot[j].cases {
				if v := found[i][j][k]; v != nil {
					t.ran++
					t.settle(lot[j], c, *v)
				}
			}
		}
	}
	t.ran += len(t.slow) + len(t.refused)
	return errors.Join(errs...)
}

// block runs the cases of a block. It runs cases with undecided (unintended) differences again, up to -again times, and drops differences
// that a later run does not show. The cases that still have some, and those in which only one run of Wherry is like no run of upstream's kubelet
// (differ.Alone), run up to -more times again. It returns the verdict of each case; nil: the case was not compared.
func (t *tally) block(ctx context.Context, runner runner, b block) ([]*differ.Verdict, error) {
	verdicts, err := t.compare(ctx, runner, b, t.tooSlow)
	errs := []error{err}
	for n := range t.o.again + t.o.more {
		again := b
		again.perSecond = b.rate(t.o) * 2 / 3 // at a lower rate, because fewer pods at the same time disturb each other less
		again.cases = nil
		var places []int
		for i, c := range b.cases {
			if verdicts[i] != nil && (len(verdicts[i].Undecided()) > 0 || n >= t.o.again && len(t.aloneIn(c)) > 0) {
				again.cases, places = append(again.cases, c), append(places, i)
			}
		}
		if ctx.Err() != nil {
			break
		}
		if len(places) == 0 || n >= t.o.again && len(places) > mostMore {
			continue
		}
		more, err := t.again(ctx, runner, again)
		errs = append(errs, err)
		for j, i := range places {
			if more[j] != nil {
				t.both(verdicts[i], *more[j])
			}
		}
	}
	return verdicts, errors.Join(errs...)
}

// aloneIn returns what Wherry did in one run of the case and upstream's kubelet in none. Cases in which the agents restart have none, because each
// run restarts them at another moment.
func (t *tally) aloneIn(c *differ.Case) []differ.Difference {
	if c.Kind == differ.Restart {
		return nil
	}
	t.mu.Lock()
	runs := slices.Clone(t.pairs[c])
	t.mu.Unlock()
	return differ.Alone(runs, func(u, w *differ.Trace) differ.Verdict { return t.compareAll(c, u, w) })
}

// mostMore is the largest number of cases that run more than -again times again. What so many cases show needs no more runs.
const mostMore = 60

// mostTries is the maximum number of times that again runs a case while upstream's kubelet is too slow.
const mostTries = 3

// again runs cases once more. If upstream's kubelet is too slow in a case, it repeats the case, up to mostTries times in all. If every
// attempt is too slow, the verdict is nil, and the caller keeps the verdict of the first run.
func (t *tally) again(ctx context.Context, runner runner, b block) ([]*differ.Verdict, error) {
	verdicts := make([]*differ.Verdict, len(b.cases))
	var errs []error
	left := b
	for range mostTries {
		slow := map[*differ.Case]bool{}
		var mu sync.Mutex
		more, err := t.compare(ctx, runner, left, func(c *differ.Case) error {
			mu.Lock()
			defer mu.Unlock()
			slow[c] = true
			return nil
		})
		errs = append(errs, err)
		for i, c := range left.cases {
			verdicts[slices.Index(b.cases, c)] = more[i]
		}
		left.cases = slices.DeleteFunc(slices.Clone(left.cases), func(c *differ.Case) bool { return !slow[c] })
		if len(left.cases) == 0 || ctx.Err() != nil {
			break
		}
	}
	return verdicts, errors.Join(errs...)
}

// both compares two verdicts about the same case. It removes from v the undecided differences that again does not have, and counts them
// as unsteady.
func (t *tally) both(v *differ.Verdict, again differ.Verdict) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.unsteady += v.Again(again)
}

// settle adds the verdict of a case to the tally. It is called once for each case, after the last run of the case.
func (t *tally) settle(b block, c *differ.Case, v differ.Verdict) {
	v.Settle()
	if v.Crossing != nil {
		t.crossed[v.Crossing.Beats]++
	}
	t.count(v)
	t.note(b, c, differ.Shown(v.Found))
	for _, d := range t.aloneIn(c) {
		if h := t.hits[d.Class]; h == nil || !slices.Contains(h.cases, c) { // the difference is not in each run
			t.alone = append(t.alone, hit{class: d.Class, block: b, cases: []*differ.Case{c}, first: []differ.Difference{d}})
		}
	}
}

// count adds the verdict of a case to the counters of decided classes and of excuses.
func (t *tally) count(v differ.Verdict) {
	for name, lines := range v.Excused {
		e := t.excused[name]
		t.excused[name] = excused{e.cases + 1, e.lines + lines}
	}
	classes := map[string]bool{}
	for _, d := range v.Found {
		if differ.Decided(d.Class) {
			classes[d.Class] = true
		}
	}
	for c := range classes {
		t.decided[c]++
	}
}

// note adds the undecided differences of a case (shown) to the tally, by class.
func (t *tally) note(b block, c *differ.Case, shown []differ.Difference) {
	if len(shown) == 0 {
		t.same++
	}
	for _, d := range shown {
		h := t.hits[d.Class]
		if h == nil {
			h = &hit{class: d.Class, block: b}
			t.hits[d.Class] = h
		}
		if !slices.Contains(h.cases, c) {
			h.cases, h.first = append(h.cases, c), append(h.first, d)
		}
	}
}

// shows reports whether the tally has an undecided difference of this case.
func (t *tally) shows(c *differ.Case) bool {
	for _, h := range t.hits {
		if slices.Contains(h.cases, c) {
			return true
		}
	}
	return false
}

// compare runs the cases of a block at the same time and returns their verdicts; nil for a case that was not compared. It calls slow for
// each case in which upstream's kubelet was too slow. After the watch of the API has ended, it starts no further cases.
func (t *tally) compare(parent context.Context, runner runner, b block, slow func(*differ.Case) error) ([]*differ.Verdict, error) {
	ctx, stop := context.WithCancel(parent)
	defer stop()
	found, errs := make([]*differ.Verdict, len(b.cases)), make([]error, len(b.cases))
	var wg sync.WaitGroup
	var restart error
	if b.restarts {
		wg.Go(func() {
			// At this time most pods have started and none has been deleted yet.
			if restart = pause(ctx, min(30*time.Second, time.Duration(float64(len(b.cases))/b.rate(t.o)*float64(time.Second))+8*time.Second)); restart == nil {
				restart = runner.Restart(b.kill)
			}
		})
	}
	places := make(chan bool, t.o.atOnce)
	for i, c := range b.cases {
		places <- true
		// Pods begin one after another, because they would wait for each other if all began at once.
		if pause(ctx, time.Duration(float64(time.Second)/b.rate(t.o))) != nil {
			break
		}
		wg.Go(func() {
			defer func() { <-places }()
			v, pair, err := runner.Run(ctx, c)
			switch {
			case err == nil:
				found[i] = &v
				t.keep(c, v, pair)
				if t.records != nil {
					errs[i] = t.records.add(c, pair)
				}
			case errors.Is(err, differ.ErrSlow):
				errs[i] = slow(c)
				fmt.Fprintln(os.Stderr, time.Now().Format(time.TimeOnly), err)
			case errors.Is(err, differ.ErrRefused):
				t.refuse(err)
			case ctx.Err() != nil && errors.Is(err, context.Canceled): // the case was cancelled because of another error, which is reported instead
			default:
				errs[i] = err
				if errors.Is(err, differ.ErrWatchEnded) {
					stop()
				}
			}
		})
	}
	wg.Wait()
	if errors.Is(restart, context.Canceled) {
		restart = nil
	}
	return found, errors.Join(append(errs, restart, parent.Err())...)
}

// tooSlow records that the case was not compared because upstream's kubelet was too slow.
func (t *tally) tooSlow(c *differ.Case) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.slow[c] = true
	if t.records == nil {
		return nil
	}
	return t.records.add(c, &differ.Pair{})
}

// keep keeps the traces of a run of the case. It keeps none if the first run shows no difference.
func (t *tally) keep(c *differ.Case, v differ.Verdict, p *differ.Pair) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(v.Undecided()) > 0 || len(t.pairs[c]) > 0 {
		t.pairs[c] = append(t.pairs[c], p)
	}
}

func (t *tally) refuse(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.refused = append(t.refused, err)
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// shrinkAll makes the first case of each class smaller for as long as the case still shows the difference (differ.Shrink).
func (t *tally) shrinkAll(ctx context.Context, runner runner) {
	// The smaller cases do not belong to the run. So they are not recorded, and the report does not count those that the API server
	// refuses.
	refused, records := t.refused, t.records
	t.refused, t.records = nil, nil
	defer func() { t.refused, t.records = refused, records }()
	var wg sync.WaitGroup
	for _, h := range t.hits {
		if h.block.restarts {
			continue // a restart would also affect cases of other classes that run at the same time
		}
		wg.Go(func() {
			h.cases[0] = differ.Shrink(h.cases[0], h.class, time.Now().Add(t.o.shrink), func(smaller []*differ.Case) [][]differ.Difference {
				verdicts, _ := t.compare(ctx, runner, block{cases: smaller}, func(*differ.Case) error { return nil }) // a case that could not run has no verdict
				found := make([][]differ.Difference, len(verdicts))
				for i, v := range verdicts {
					if v != nil {
						found[i] = v.Found
					}
				}
				return found
			})
		})
	}
	wg.Wait()
}

// report prints how often each decided class occurred, and then the undecided classes, the most frequent first at each level. It returns
// an error if there is an undecided class.
func (t *tally) report() error {
	decided := 0
	for _, d := range differ.Decisions {
		if t.decided[d.Class] > 0 {
			decided++
		}
		fmt.Printf("decided, %d cases: %s\n", t.decided[d.Class], d.Class)
	}
	sorted := slices.SortedFunc(maps.Values(t.hits), func(a, b *hit) int {
		return cmp.Or(cmp.Compare(a.first[0].Level, b.first[0].Level), cmp.Compare(len(b.cases), len(a.cases)), cmp.Compare(a.class, b.class))
	})
	for i, h := range sorted {
		fmt.Printf("\nUNDECIDED, %d cases: %s\n", len(h.cases), h.class)
		for i := range min(t.o.show, len(h.cases)) {
			d := h.first[i]
			fmt.Printf("  seed %d %s, %s:\n    upstream: %s\n    wherry:   %s\n", h.cases[i].Seed, h.cases[i].Kind, d.About, d.Upstream, d.Wherry)
			fmt.Println(indent(h.cases[i].String()))
			if runs := t.pairs[h.cases[i]]; len(runs) > 0 && t.o.columns {
				fmt.Println(indent(runs[len(runs)-1].Columns(h.cases[i])))
			}
		}
		if t.o.keep != "" {
			if err := keep(filepath.Join(t.o.keep, fmt.Sprintf("%03d-seed-%d.json", i+1, h.cases[0].Seed)), h.cases[0]); err != nil {
				return err
			}
		}
	}
	errs := append(t.refused, t.reportAlone()...)
	errs = append(errs, t.reportExcuses()...)
	fmt.Printf("\n%d cases from seed %d, %d without an undecided difference, %d undecided classes; of %d decided classes %d were seen; %d differences were not there in a further run\n",
		t.ran, t.o.seed, t.same, len(t.hits), len(differ.Decisions), decided, t.unsteady)
	if n := len(t.slow); n > 0 {
		fmt.Printf("%d cases were not compared: upstream's kubelet reported a container to the API more than six seconds late\n", n)
		if n*100 > mostSlow*t.ran {
			errs = append(errs, fmt.Errorf("%d of %d cases were not compared, since the machine was too slow: try a lower -per-second, or more -pairs", n, t.ran))
		}
	}
	if t.o.counts != "" {
		errs = append(errs, t.counts().AddTo(t.o.counts))
	}
	if len(t.hits) > 0 {
		errs = append(errs, errors.New("there are undecided differences"))
	}
	for _, d := range differ.Decisions {
		if t.decided[d.Class] == 0 && d.Where == "" && t.ran >= wholeRun {
			fmt.Printf("no case of this run shows the decided difference: %s\n", d.Class)
		}
	}
	return errors.Join(errs...)
}

// reportAlone prints what Wherry did in one run of a case and upstream's kubelet in none. It returns an error if these are too many cases.
func (t *tally) reportAlone() (errs []error) {
	cases := map[*differ.Case]bool{}
	for i, h := range t.alone {
		c, d := h.cases[0], h.first[0]
		cases[c] = true
		fmt.Printf("\nNOT IN EACH RUN, but in no run of upstream's kubelet: %s\n  seed %d %s, %d runs, %s:\n    upstream: %s\n    wherry:   %s\n",
			h.class, c.Seed, c.Kind, len(t.pairs[c]), d.About, d.Upstream, d.Wherry)
		if t.o.keep != "" {
			errs = append(errs, keep(filepath.Join(t.o.keep, fmt.Sprintf("alone-%03d-seed-%d.json", i+1, c.Seed)), c))
		}
	}
	if n := len(cases); n > 0 {
		fmt.Printf("\nin %d cases Wherry did something in a run that upstream's kubelet did in none of its runs: a slow machine may be the cause, or a fault that does not always show\n", n)
		if compared := max(1, t.ran-len(t.slow)); compared >= wholeRun && float64(n*100) > mostAlone*float64(compared) {
			errs = append(errs, fmt.Errorf("in %d of %d cases Wherry did something in a run that upstream's kubelet did in none, more than %g of 100", n, compared, mostAlone))
		}
	}
	return errs
}

// counts returns how many cases of the run show each decided difference and need each excuse.
func (t *tally) counts() differ.RunCounts {
	r := differ.RunCounts{Seed: t.o.seed, Cases: t.ran, Slow: len(t.slow), Decided: t.decided, Excused: map[string]int{}, Lines: map[string]int{}}
	for name, e := range t.excused {
		r.Excused[name], r.Lines[name] = e.cases, e.lines
	}
	for _, n := range t.crossed {
		r.Crossed += n
	}
	return r
}

// reportExcuses prints how often differences were excused for each reason, and returns an error for each reason that exceeds its bound.
func (t *tally) reportExcuses() (errs []error) {
	compared := max(1, t.ran-len(t.slow))
	share := func(n int) float64 { return 100 * float64(n) / float64(compared) }
	fmt.Println()
	for _, e := range differ.Excuses {
		took := t.excused[e.Name]
		fmt.Printf("excused in %.1f of 100 cases, with %.1f lines per 100 cases (allowed: %s): %s\n", share(took.cases), share(took.lines), e.Bound(), e.Name)
		if compared >= wholeRun && e.Exceeded(share(took.cases), share(took.lines)) {
			errs = append(errs, fmt.Errorf("of 100 cases %.1f with %.1f lines need an excuse that at most %s may need: %s", share(took.cases), share(took.lines), e.Bound(), e.Name))
		}
	}
	crossed := 0
	for _, n := range t.crossed {
		crossed += n
	}
	fmt.Printf("in %d cases (%.1f %%, at most %g %%) two things happen in an order that may differ\n", crossed, share(crossed), differ.MostCrossed)
	for _, beats := range slices.SortedFunc(maps.Keys(t.crossed), func(a, b string) int { return cmp.Or(t.crossed[b]-t.crossed[a], cmp.Compare(a, b)) }) {
		fmt.Printf("  in %d cases: %s\n", t.crossed[beats], beats)
	}
	if compared >= wholeRun && share(crossed) > differ.MostCrossed {
		errs = append(errs, fmt.Errorf("in %.1f of 100 cases two things happen in an order that may differ, more than %g", share(crossed), differ.MostCrossed))
	}
	return errs
}

// keep writes a case into a file, which the flag -case can read.
func keep(file string, c *differ.Case) error {
	raw, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, append(raw, '\n'), 0o644)
}

func indent(text string) string {
	return "      " + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n      ")
}
