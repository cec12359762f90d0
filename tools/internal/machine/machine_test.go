package machine

import (
	"slices"
	"testing"
)

func TestTwoSnapshotsOfAQuietMomentHaveTheSameKinds(t *testing.T) {
	t.Parallel()
	s, err := Take(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"mount", "interface", "network namespace", "sysctl"} {
		if len(s[kind]) == 0 {
			t.Errorf("no %s found: the listing looks in the wrong place", kind)
		}
	}
}

func TestDiffNamesBothDirections(t *testing.T) {
	t.Parallel()
	before := Snapshot{"mount": {"/a", "/b"}, "interface": {"lo"}}
	after := Snapshot{"mount": {"/b", "/c"}, "interface": {"lo"}}
	if got, want := Diff(before, after), []string{"+ mount /c", "- mount /a"}; !slices.Equal(got, want) {
		t.Errorf("diff %q, want %q", got, want)
	}
}
