package checkpoint

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/core/decide"
)

type store interface {
	Load(types.UID) (*decide.Memory, error)
	Save(types.UID, *decide.Memory) error
}

func stores(t *testing.T) map[string]store {
	return map[string]store{"directory": Dir{Root: t.TempDir()}, "memory": In{&InMemory{}}}
}

// Load returns the saved memory, except the fields that are not kept. A pod without a checkpoint is no error.
func TestWhatIsKeptComesBack(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC)
	m := &decide.Memory{
		Admitted: true, StartTime: now, StopBegan: now.Add(time.Minute), StopGrace: 30 * time.Second,
		Stop:  &decide.Stop{Reason: "Evicted", Message: "why", Since: now, Grace: new(time.Second)},
		SetUp: true, // not kept, because the agent finds it out again
		Containers: []decide.ContainerMemory{{Name: "main", CrashDelay: 20 * time.Second, CrashUntil: now.Add(time.Hour), CrashedID: "abc",
			PostStartedID: "abc", Pulled: true, ProbedID: "abc"}},
	}
	for name, s := range stores(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got, err := s.Load("u"); got != nil || err != nil {
				t.Fatalf("before the first Save: %v, %v", got, err)
			}
			for _, grace := range []time.Duration{time.Hour, 30 * time.Second} { // the second file replaces the first
				m := *m
				m.StopGrace = grace
				if err := s.Save("u", &m); err != nil {
					t.Fatal(err)
				}
			}
			got, err := s.Load("u")
			if err != nil {
				t.Fatal(err)
			}
			want := m.Kept()
			if d := cmp.Diff(&want, got); d != "" {
				t.Error(d)
			}
			if got.SetUp || got.Containers[0].Pulled {
				t.Error("a field that is not kept was saved")
			}
			if got, err := s.Load("other"); got != nil || err != nil {
				t.Errorf("another pod: %v, %v", got, err)
			}
		})
	}
}

// The error for a file that cannot be read names the file and the remedy. A file of another version counts as missing.
func TestFilesThatCannotBeRead(t *testing.T) {
	t.Parallel()
	d := Dir{Root: t.TempDir()}
	if err := d.Save("u", &decide.Memory{Admitted: true}); err != nil {
		t.Fatal(err)
	}
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(d.path("u"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, text := range []string{"", "{", `{"version":"x"}`, "\x00\x00\x00"} {
		write(text)
		if got, err := d.Load("u"); got != nil || err == nil || !strings.Contains(err.Error(), d.path("u")) || !strings.Contains(err.Error(), "delete the file") {
			t.Errorf("of %q: %v, %v; want an error that names the file and what to do", text, got, err)
		}
	}
	write(`{"version":99,"memory":{"Admitted":true}}`)
	if got, err := d.Load("u"); got != nil || err != nil {
		t.Errorf("another version: %v, %v; want nothing", got, err)
	}
}

// A failed write leaves the old checkpoint complete, and no part of a new one.
func TestAFullDiskLosesNothing(t *testing.T) {
	t.Parallel()
	d := Dir{Root: t.TempDir()}
	if err := d.Save("u", &decide.Memory{Admitted: true}); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/dev/full", d.path("u")+".new"); err != nil {
		t.Fatal(err)
	}
	if err := d.Save("u", &decide.Memory{Finished: true}); err == nil || !strings.Contains(err.Error(), "no space left") {
		t.Fatalf("save on a full disk: %v", err)
	}
	m, err := d.Load("u")
	if err != nil || !m.Admitted || m.Finished {
		t.Errorf("memory %+v, %v; want the old one", m, err)
	}
	entries, err := os.ReadDir(filepath.Dir(d.path("u")))
	if err != nil || len(entries) != 1 {
		t.Errorf("left %v, %v; want the old checkpoint alone", entries, err)
	}
}

func TestInMemoryForgets(t *testing.T) {
	t.Parallel()
	m := &InMemory{}
	for _, uid := range []types.UID{"b", "a"} {
		if err := m.Save(uid, []byte("kept")); err != nil {
			t.Fatal(err)
		}
	}
	m.Remove("b")
	m.Remove("never there")
	if d := cmp.Diff([]types.UID{"a"}, m.UIDs()); d != "" {
		t.Error(d)
	}
}

// A power cut may leave any part of a checkpoint. Such a file is never accepted.
func TestNoTornCheckpointIsBelieved(t *testing.T) {
	t.Parallel()
	d := Dir{Root: t.TempDir()}
	if err := d.Save("u", &decide.Memory{Admitted: true, Containers: []decide.ContainerMemory{{Name: "main", CrashedID: "abc"}}}); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(d.path("u"))
	if err != nil {
		t.Fatal(err)
	}
	for n := range whole {
		for name, torn := range map[string][]byte{"cut": whole[:n], "zeros": append(slices.Clone(whole[:n]), make([]byte, len(whole)-n)...)} {
			if err := os.WriteFile(d.path("u"), torn, 0o600); err != nil {
				t.Fatal(err)
			}
			if m, err := d.Load("u"); m != nil || err == nil {
				t.Fatalf("%s after %d of %d bytes: %+v, %v", name, n, len(whole), m, err)
			}
		}
	}
}
