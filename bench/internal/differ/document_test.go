package differ

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// counted is the file with the counts of all complete runs.
const counted = "../../results/differential.json"

var update = flag.Bool("update", false, "write docs/differences.md")

func TestDocument(t *testing.T) {
	const file = "../../../docs/differences.md"
	counts, err := ReadCounts(counted)
	if err != nil {
		t.Fatal(err)
	}
	want := Document(counts)
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("%s is not what the table says: cd bench && go test ./internal/differ -run TestDocument -update", file)
	}
}

// mostRare is how many decided differences need not be in any counted run. It must not grow.
const mostRare = 5

func TestDecisionsAreComplete(t *testing.T) {
	seen := map[string]bool{}
	for _, d := range Decisions {
		if d.Class == "" || d.Why == "" || d.Notice == "" {
			t.Errorf("an entry without a class, a reason or what a user notices: %+v", d)
		}
		if seen[d.Class] {
			t.Errorf("two entries for %s", d.Class)
		}
		seen[d.Class] = true
	}
}

// The complete runs together showed each intended difference and used each excuse, so no entry of the two tables is out of date. The runs
// left out few cases.
func TestEachDecisionWasSeen(t *testing.T) {
	counts, err := ReadCounts(counted)
	if err != nil {
		t.Fatal(err)
	}
	if len(counts.Runs) == 0 {
		t.Skip("no whole run has been counted")
	}
	rare := 0
	for _, d := range Decisions {
		switch n := counts.Decided(d.Class); {
		case d.Rare && n > 0:
			t.Errorf("%d cases show a decided difference that is marked as rare: remove the mark: %s", n, d.Class)
		case d.Rare:
			rare++
		case d.Where == "" && n == 0:
			t.Errorf("no case of the %d runs shows this decided difference: %s", len(counts.Runs), d.Class)
		}
	}
	if rare > mostRare {
		t.Errorf("%d decided differences are marked as rare, at most %d may be", rare, mostRare)
	}
	for _, e := range Excuses {
		if cases, _ := counts.Excused(e.Name); cases == 0 {
			t.Errorf("no case of the %d runs needs this excuse: %s", len(counts.Runs), e.Name)
		}
	}
	for _, r := range counts.Runs {
		for class := range r.Decided {
			if !Decided(class) {
				t.Errorf("the run of seed %d counts a class that is not decided: %s", r.Seed, class)
			}
		}
	}
}

// The counts of a run replace those of an earlier run with the same seed. The sums cover all runs, without the cases that were not
// compared.
func TestCountsOfRuns(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "counts.json")
	for _, r := range []RunCounts{
		{Seed: 1, Cases: 9, Decided: map[string]int{"a": 9}},
		{Seed: 2, Cases: 5000, Slow: 100, Decided: map[string]int{"a": 2}, Excused: map[string]int{"e": 49}, Lines: map[string]int{"e": 98}},
		{Seed: 1, Cases: 100, Decided: map[string]int{"a": 3, "b": 1}, Excused: map[string]int{"e": 1}, Lines: map[string]int{"e": 2}},
	} {
		if err := r.AddTo(file); err != nil {
			t.Fatal(err)
		}
	}
	c, err := ReadCounts(file)
	if err != nil || len(c.Runs) != 2 || c.Cases() != 5000 || c.Decided("a") != 5 || c.Decided("b") != 1 {
		t.Errorf("%+v, %v", c, err)
	}
	if cases, lines := c.Excused("e"); cases != 50 || lines != 100 {
		t.Errorf("%d cases with %d lines", cases, lines)
	}
	if got := (Excuse{Name: "e"}).seen(c) + ", " + (Excuse{Name: "e", Lines: 7}).seen(c); got != "1.0 cases, 2 lines" {
		t.Error(got)
	}
	if text := c.runs(); !strings.Contains(text, "| 2 | 5,000 | 100 | 0 |") {
		t.Error(text)
	}
}
