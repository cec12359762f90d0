package differ

import (
	"flag"
	"os"
	"testing"
)

var update = flag.Bool("update", false, "write docs/differences.md")

func TestDocument(t *testing.T) {
	const file = "../../../docs/differences.md"
	if *update {
		if err := os.WriteFile(file, []byte(Document()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != Document() {
		t.Errorf("%s is not what the table says: cd bench && go test ./internal/differ -run TestDocument -update", file)
	}
}

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
