package differ

import "testing"

// Each run of Wherry has to be like one run of upstream's kubelet. A letter is what an agent did in one run of a case; a capital letter comes after a
// Crossing of its run.
func TestWhatWherryDoesAlone(t *testing.T) {
	compare := func(upstream, wherry *Trace) (v Verdict) {
		if u, w := upstream.Left[0], wherry.Left[0]; u != w {
			v.Found = []Difference{{Class: "does " + w, Level: InCalls}, {Class: "tells of " + w, Level: InEvents}}
			if w >= "a" {
				v.Sure = v.Found
			}
		}
		return v
	}
	for _, try := range []struct{ upstream, wherry, alone string }{
		{"aaa", "aaa", ""},
		{"aaa", "bbb", "b"}, // a fault that is in each run
		{"aaa", "aba", "b"}, // a fault that is in one run
		{"aca", "aba", "b"}, // the same, of a case in which upstream's kubelet does not always do the same either
		{"aaa", "abc", "b"}, // the first of two
		{"aab", "bba", ""},  // upstream's kubelet did b, too
		{"bab", "aba", ""},  // no run of Wherry is like the run of the kubelet beside it, but each is like another one
		{"aca", "aBa", ""},  // after the Crossing either may happen
		{"aaaaaab", "babbbba", ""},
		{"aaaaaaa", "babbbba", "b"},
		{"a", "b", ""}, // one run has no range
	} {
		var runs []*Pair
		for i := range try.upstream {
			runs = append(runs, &Pair{&Trace{Left: []string{try.upstream[i : i+1]}}, &Trace{Left: []string{try.wherry[i : i+1]}}})
		}
		var class []string
		if try.alone != "" {
			class = []string{"does " + try.alone}
		}
		want(t, Alone(runs, compare), class...)
	}
}

// Wherry restarts a container in one of two runs, and upstream's kubelet in none. The comparison of the runs one by one does not show that, and their range does. It does
// not if the kubelet restarts the container, too, in the other run.
func TestARestartInOneRunOnly(t *testing.T) {
	for _, too := range []bool{false, true} {
		c, again, once := oneContainer(), newLife(), newLife()
		again.runs(10, "main-0", 1)
		runs := []*Pair{{once.Trace, again.Trace}, {newLife().Trace, newLife().Trace}}
		if too {
			runs[1] = &Pair{again.Trace, again.Trace}
		}
		compare := func(u, w *Trace) Verdict { return CompareAll(c, u, w) }
		v := compare(runs[0].Upstream, runs[0].Wherry)
		if v.Again(compare(runs[1].Upstream, runs[1].Wherry)); len(v.Undecided()) > 0 {
			t.Errorf("each run shows %q", classes(v.Undecided()))
		}
		var class []string
		if !too {
			class = []string{"calls of main: only Wherry has a further instance"}
		}
		want(t, Alone(runs, compare), class...)
	}
}
