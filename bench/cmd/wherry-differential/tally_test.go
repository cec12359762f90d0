package main

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/bench/internal/differ"
)

// script is a runner with prepared results. It has, for each case, by its seed, one result for each run of the case. The last result is
// also used for all further runs.
type script struct {
	mu      sync.Mutex
	results map[uint64][]result
	runs    map[uint64]int
}

type result struct {
	class    string // class of an undecided difference of Wherry; "": no difference
	upstream string // upstream's kubelet does the same as Wherry with this class
	err      error
}

func (s *script) Run(_ context.Context, c *differ.Case) (differ.Verdict, *differ.Pair, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.results[c.Seed]
	r := all[min(s.runs[c.Seed], len(all)-1)]
	s.runs[c.Seed]++
	p := &differ.Pair{Upstream: &differ.Trace{Left: []string{r.upstream}}, Wherry: &differ.Trace{Left: []string{r.class}}}
	return compareLeft(c, p.Upstream, p.Wherry), p, r.err
}

// compareLeft finds the class that a trace of Wherry has as what is left, unless that of upstream's kubelet has the same.
func compareLeft(_ *differ.Case, upstream, wherry *differ.Trace) differ.Verdict {
	v := differ.Verdict{Excused: map[string]int{}}
	if class := wherry.Left[0]; class != "" && class != upstream.Left[0] {
		v.Found = []differ.Difference{{Class: class, Level: differ.InCalls}}
		v.Sure = v.Found
	}
	return v
}

func (s *script) Restart(bool) error { return nil }

var (
	errSlow    = fmt.Errorf("%w: a container", differ.ErrSlow)
	errRefused = fmt.Errorf("%w: invalid", differ.ErrRefused)
)

// tallied runs one block with prepared results: results[i] has the results of the runs of the case with seed i.
func tallied(t *testing.T, results ...[]result) (tl *tally, s *script, err error) {
	t.Helper()
	s = &script{results: map[uint64][]result{}, runs: map[uint64]int{}}
	var b block
	for i, r := range results {
		s.results[uint64(i)] = r
		b.cases = append(b.cases, &differ.Case{Seed: uint64(i)})
	}
	tl = newTally(options{again: 1, atOnce: 10, perSecond: 3})
	tl.compareAll = compareLeft
	synctest.Test(t, func(t *testing.T) { err = tl.runAll(t.Context(), s, []block{b}) })
	return tl, s, err
}

// A case that shows a difference is run again. If all further runs are too slow, the difference stays. Otherwise only differences that
// the first further run also shows stay.
func TestSlowSecondRun(t *testing.T) {
	t.Parallel()
	slow, differs, same := result{err: errSlow}, result{class: "a"}, result{}
	tl, s, err := tallied(t, []result{differs, slow}, []result{differs, slow, same}, []result{differs, slow, differs}, []result{slow}, []result{same})
	if err != nil {
		t.Fatal(err)
	}
	var seeds []uint64
	for _, c := range tl.hits["a"].cases {
		seeds = append(seeds, c.Seed)
	}
	if fmt.Sprint(seeds) != "[0 2]" {
		t.Errorf("cases with the difference: %v, want 0 and 2", seeds)
	}
	if s.runs[0] != 1+mostTries || s.runs[3] != 1 {
		t.Errorf("runs: %v", s.runs)
	}
	if len(tl.slow) != 1 || tl.ran != 5 || tl.same != 2 || tl.unsteady != 1 {
		t.Errorf("%d slow, %d run, %d the same, %d unsteady", len(tl.slow), tl.ran, tl.same, tl.unsteady)
	}
}

// A case runs more often again if each of its runs shows a difference, or if Wherry did in one run what upstream's kubelet did in none. The former is
// undecided only if all further runs show it, too; the latter is named as long as no run of the kubelet does the same. If the agents restart in the
// case, its runs are not compared with each other.
func TestMoreRuns(t *testing.T) {
	t.Parallel()
	differs, same, both := result{class: "a"}, result{}, result{class: "a", upstream: "a"}
	for name, try := range map[string]struct {
		kind              differ.Kind
		results           []result
		runs, hits, alone int
	}{
		"each run shows it":                          {results: []result{differs}, runs: 5, hits: 1},
		"the third run does not, since both do it":   {results: []result{differs, differs, both}, runs: 3},
		"the third run does not, since neither does": {results: []result{differs, differs, same}, runs: 5, alone: 1},
		"only the first run shows it":                {results: []result{differs, same}, runs: 5, alone: 1},
		"upstream's kubelet does it in the third":    {results: []result{differs, same, both}, runs: 3},
		"no run shows it":                            {results: []result{same}, runs: 1},
		"the agents restart":                         {kind: differ.Restart, results: []result{differs, same}, runs: 2},
	} {
		s := &script{results: map[uint64][]result{0: try.results}, runs: map[uint64]int{}}
		tl := newTally(options{again: 1, more: 3, atOnce: 10, perSecond: 3})
		tl.compareAll = compareLeft
		var err error
		synctest.Test(t, func(t *testing.T) {
			err = tl.runAll(t.Context(), s, []block{{cases: []*differ.Case{{Kind: try.kind}}}})
		})
		if err != nil || s.runs[0] != try.runs || len(tl.hits) != try.hits || len(tl.alone) != try.alone {
			t.Errorf("%s: %d runs, %d hits, %d of Wherry alone, error %v", name, s.runs[0], len(tl.hits), len(tl.alone), err)
		}
	}
}

// A whole run fails if Wherry did in too many cases what upstream's kubelet did in no run.
func TestTooMuchOfWherryAlone(t *testing.T) {
	t.Parallel()
	for cases, fails := range map[int]bool{2: false, 20: true} {
		tl := newTally(options{})
		tl.ran = 5000
		for range cases {
			tl.alone = append(tl.alone, hit{class: "a", cases: []*differ.Case{{}}, first: []differ.Difference{{Class: "a"}}})
		}
		if errs := tl.reportAlone(); len(errs) > 0 != fails {
			t.Errorf("%d of 5000 cases: %v", cases, errs)
		}
	}
}

// If one case fails, the run returns an error, and all other cases are still counted.
func TestFailureKeepsOtherCases(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	tl, _, err := tallied(t, []result{{class: "a"}}, []result{{err: broken}}, []result{{err: errRefused}}, []result{{}})
	if !errors.Is(err, broken) || errors.Is(err, differ.ErrRefused) {
		t.Errorf("error %v", err)
	}
	if len(tl.hits["a"].cases) != 1 || tl.same != 1 || len(tl.refused) != 1 || tl.ran != 3 {
		t.Errorf("%d hits, %d the same, %d refused, %d run", len(tl.hits), tl.same, len(tl.refused), tl.ran)
	}
}

// After the watch of the API has ended, no further cases are run.
func TestNoRunsWithoutAWatch(t *testing.T) {
	t.Parallel()
	tl, s, err := tallied(t, []result{{}}, []result{{err: differ.ErrWatchEnded}}, []result{{}})
	if !errors.Is(err, differ.ErrWatchEnded) || strings.Count(err.Error(), "\n") > 0 {
		t.Errorf("error %v", err)
	}
	if s.runs[2] != 0 || tl.ran != 1 {
		t.Errorf("%d runs of the last case, %d run", s.runs[2], tl.ran)
	}
}

// While a case is made smaller, the smaller cases are not recorded, and those that are refused or too slow are not counted.
func TestShrinkLeavesNoTrace(t *testing.T) {
	t.Parallel()
	big := &differ.Case{Seed: 1, Spec: v1.PodSpec{Containers: []v1.Container{{Name: "a"}, {Name: "b"}}}, Acts: []differ.Act{{}, {}}}
	tl := newTally(options{atOnce: 10, perSecond: 3, shrink: time.Minute})
	tl.hits["x"] = &hit{class: "x", cases: []*differ.Case{big}, first: []differ.Difference{{Class: "x"}}}
	file := filepath.Join(t.TempDir(), "records")
	var err error
	if tl.records, err = create(file); err != nil {
		t.Fatal(err)
	}
	records := tl.records
	s := &script{results: map[uint64][]result{1: {{class: "x"}, {err: errRefused}, {err: errSlow}, {class: "x"}, {}}}, runs: map[uint64]int{}}
	synctest.Test(t, func(t *testing.T) { tl.shrinkAll(t.Context(), s) })
	if s.runs[1] < 4 || len(tl.hits["x"].cases[0].Acts) == 2 && len(tl.hits["x"].cases[0].Spec.Containers) == 2 {
		t.Errorf("%d runs, the smallest case is %v", s.runs[1], tl.hits["x"].cases[0])
	}
	if len(tl.refused) != 0 || len(tl.slow) != 0 || tl.records != records {
		t.Errorf("%d refused, %d slow", len(tl.refused), len(tl.slow))
	}
	if err := records.Close(); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	if recorded, err := io.ReadAll(z); err != nil || len(recorded) > 0 {
		t.Errorf("recorded: %s, %v", recorded, err)
	}
}

func TestOptions(t *testing.T) {
	t.Parallel()
	good := options{pairs: 5, restartPairs: 1, atOnce: 1, perSecond: 0.1}
	if err := good.check(); err != nil {
		t.Error(err)
	}
	for _, change := range []func(*options){
		func(o *options) { o.pairs = 0 }, func(o *options) { o.pairs = 11 }, func(o *options) { o.restartPairs = 0 },
		func(o *options) { o.atOnce = 0 }, func(o *options) { o.perSecond = 0 }, func(o *options) { o.perSecond = -1 },
	} {
		bad := good
		if change(&bad); bad.check() == nil {
			t.Errorf("not refused: %+v", bad)
		}
	}
}
