package decide_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/wherry-node/wherry/internal/core/decide"
	"github.com/wherry-node/wherry/internal/core/replay"
	"github.com/wherry-node/wherry/internal/proof/script"
)

// replays exports a turn, parses the export, and checks that the decision on it is the same.
func replays(t *testing.T, in *decide.Input, plan *decide.Plan) {
	t.Helper()
	turn := replay.Of(in.Observed.Ref, in)
	turn.Decided(plan)
	data, err := turn.Encode()
	if err != nil {
		t.Fatal(err)
	}
	read, err := replay.Parse("turn", data)
	if err != nil {
		t.Fatal(err)
	}
	if lines, same := replay.Diff(read.Plan, read.Again()); !same {
		t.Errorf("an exported turn is decided otherwise:\n%s\n%s", strings.Join(lines, "\n"), data)
	}
	scripted(t, turn, in, plan)
}

// steps checks that Steps, which records the steps of a decision, gives the same plan, and that exactly one step begins each action.
func steps(t *testing.T, in *decide.Input, plan *decide.Plan) {
	t.Helper()
	stepped, list := decide.Steps(in)
	if lines, same := replay.Diff(replay.Lines(plan, in.Now), replay.Lines(&stepped, in.Now)); !same {
		t.Errorf("a turn with steps is decided otherwise:\n%s", strings.Join(lines, "\n"))
	}
	begun := 0
	for _, s := range list {
		if s.Rule == "" || s.Saw == "" {
			t.Errorf("a step says nothing: %+v", s)
		}
		for _, l := range s.Decided {
			if strings.HasPrefix(l, "begins ") {
				begun++
			}
		}
	}
	if begun != len(plan.Do) {
		t.Errorf("the steps begin %d actions, the plan has %d: %+v", begun, len(plan.Do), list)
	}
}

// scripted checks that the script made of an exported turn gives the same plan.
func scripted(t *testing.T, turn *replay.Turn, in *decide.Input, plan *decide.Plan) {
	t.Helper()
	text, err := turn.Script()
	if err != nil {
		t.Fatal(err)
	}
	var again decide.Input
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if f[0] == "turn-of" {
			if err := replay.ReadPart(&again, f[1], f[2]); err != nil || len(f) != 3 {
				t.Fatalf("%v: %s", err, line)
			}
		}
	}
	now := decide.Decide(&again)
	if lines, same := replay.Diff(replay.PlanLines(plan, in.Now), replay.PlanLines(&now, again.Now)); !same {
		t.Errorf("the script of a turn gives another plan:\n%s\n%s", strings.Join(lines, "\n"), text)
	}
}

// TestScriptsOfTurns runs the scripts that are made of the exported turns of package replay.
func TestScriptsOfTurns(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../replay/testdata/*.json")
	if err != nil || len(files) == 0 {
		t.Fatal("no turns", err)
	}
	dir := t.TempDir()
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		turn, err := replay.Parse(file, data)
		if err != nil {
			t.Fatal(err)
		}
		text, err := turn.Script()
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, filepath.Base(file)+".txt"), []byte(text), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	script.Run(t, filepath.Join(dir, "*.txt"), false, tell)
}

// part carries out a turn-of command: it reads a part of an exported turn. The first command that is no turn-of puts all parts into the
// world (restore).
func (s *story) part(f []string) {
	if s.parts == nil {
		s.parts = &decide.Input{}
	}
	if len(f) != 3 {
		s.Fail("turn-of needs the name of a part and its JSON without blanks")
		return
	}
	if err := replay.ReadPart(s.parts, f[1], f[2]); err != nil {
		s.Fail("%v", err)
	}
}

// restore makes the world as it was in the exported turn.
func (s *story) restore() {
	in := s.parts
	s.parts, s.exported = nil, true
	if in.Observed == nil || in.Memory == nil || in.Policy == nil {
		s.Fail("a turn needs the parts observed, memory and policy")
		return
	}
	s.pod, s.lastGrace, s.now, s.node, s.pol = in.Pod, in.LastGrace, in.Now, in.Node, *in.Policy
	s.sandboxes, s.containers = slices.Clone(in.Observed.Sandboxes), slices.Clone(in.Observed.Containers)
	s.mem, s.saved, s.said, s.old = *in.Memory, in.Memory.Kept(), in.Probed, in.Stale
	s.hashes = map[string]string{} // the hashes of the turn are replaced by those that the world computes for its own containers
	for name := range in.Hashes {
		if spec := s.spec(name); spec != nil {
			s.hashes[name] = specHash(spec.Image)
		}
	}
	s.sized, s.group = len(in.Sizes) > 0, in.Memory.GroupSize
	s.vols, s.dirs = in.Memory.SetUp, in.Memory.SetUp
	for _, a := range in.InFlight {
		s.flights = append(s.flights, flight{action: a, began: in.Now, until: in.Now, pod: in.Pod})
	}
	for i := range s.containers {
		c := &s.containers[i]
		s.given[c.ID] = c.Actual
		if spec := s.spec(c.Name); spec != nil && c.SpecHash == in.Hashes[c.Name] {
			c.SpecHash = specHash(spec.Image)
		}
		r := s.record(c.Name)
		r.tried, r.ran = max(r.tried, int(c.Attempt)), true
	}
	s.observed = *in.Observed
	s.observed.Containers = slices.Clone(s.containers)
}
