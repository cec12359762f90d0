package main

import "testing"

// leftOut returns an error for a run that compared too few of its pods, because such a run could miss differences.
func TestLeftOut(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		compared, without, neither int
		fails                      bool
	}{
		{1000, 0, 0, false}, {700, 300, 0, false}, {699, 301, 0, true}, {980, 0, 20, false}, {979, 0, 21, true}, {10, 80, 0, false},
	} {
		r := report{compared: c.compared, without: c.without, neither: c.neither}
		if err := r.leftOut(); (err != nil) != c.fails {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
