package work

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
)

// If the plan leaves out no work, at least one arm runs each block in the first round: an arm with an agent, an arm without one, or both.
// The block exec runs only without an agent.
func TestEveryBlockRuns(t *testing.T) {
	t.Parallel()
	p := &Plan{Dense: 10}
	names := BlockNames()
	for _, name := range names {
		if !slices.Contains(p.Blocks(0, true), name) && !slices.Contains(p.Blocks(0, false), name) {
			t.Errorf("no arm runs block %s", name)
		}
	}
	if with := p.Blocks(0, true); slices.Contains(with, "exec") || !slices.Contains(names, "exec") {
		t.Errorf("exec runs without an agent only; with an agent: %q, all: %q", with, names)
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		plan Plan
		want string // "": no error
	}{
		{Plan{}, ""},
		{Plan{Work: map[string]bool{"one": true, "exec": true}, Probes: []string{"exec", "http", "grpc"}}, ""},
		{Plan{Work: map[string]bool{"many": true, "death": true}}, ""},
		{Plan{Work: map[string]bool{"prob": true}}, `there is no work "prob"`},
		{Plan{Work: map[string]bool{"death": true}}, `"death" continues with the pods of "many"`},
		{Plan{Work: map[string]bool{"dense": true}}, "give -dense"},
		{Plan{Work: map[string]bool{"dense": true}, Dense: 4}, ""},
		{Plan{Probes: []string{"htpp"}}, `there is no kind of probe "htpp"`},
	} {
		err := c.plan.Check()
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v %q: %v, want %q", c.plan.Work, c.plan.Probes, err, c.want)
		}
	}
}

// The functions atOnce and execAgain add no sample for a call that fails.
func TestFailuresAddNoTime(t *testing.T) {
	t.Parallel()
	refused := errors.New("refused")
	var mu sync.Mutex
	s := Samples{}
	if err := atOnce([]string{"a", "b", "c"}, 2, "start", s, &mu, func(n string) error {
		if n == "b" {
			return refused
		}
		return nil
	}); !errors.Is(err, refused) {
		t.Errorf("atOnce: %v", err)
	}
	if len(s["start, each"]) != 2 || len(s["start, total"]) != 0 {
		t.Errorf("samples of two starts and a failure: %v", s)
	}
	c, n := &CRI{}, 0
	if err := c.execAgain(t.Context(), s, "exec", 1, func(context.Context) error {
		if n++; n == 3 {
			return refused
		}
		return nil
	}); !errors.Is(err, refused) || len(s["exec"]) != 2 {
		t.Errorf("two commands and a failure: %v, %d samples", err, len(s["exec"]))
	}
}

// Lines sorts counts from the largest to the smallest, even if they are equal when rounded.
func TestLines(t *testing.T) {
	t.Parallel()
	if got, want := Lines(map[string]float64{"a": 1.04, "c": 1.01, "b": 1.04, "d": 2}), []string{"2.0 d", "1.0 a", "1.0 b", "1.0 c"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if got, want := Lines(map[string]float64{"a": 1.01, "b": 1.04}), []string{"1.0 b", "1.0 a"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
