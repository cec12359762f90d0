package source

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
)

// moving runs a Dir in a synctest bubble and calls f. The Dir reads the directory at the path "before", which contains the manifest of the
// pod a. f may send new locations to the Dir. Nothing exists at the path "after" yet.
func moving(t *testing.T, f func(t *testing.T, w *wanted, locations chan<- Location, before, after string)) {
	t.Helper()
	top := t.TempDir()
	before, after := filepath.Join(top, "before"), filepath.Join(top, "after")
	if err := os.Mkdir(before, 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(before, "a.yaml"), podText("a", "i:1"))
	synctest.Test(t, func(t *testing.T) {
		w := &wanted{}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		locations := make(chan Location, 1)
		go func() {
			ended <- (&Dir{Config: w.config(), Path: before, Period: 20 * time.Second, Locations: locations}).Run(ctx)
		}()
		defer func() {
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}()
		f(t, w, locations, before, after)
	})
}

// A Dir that gets another location changes to it when something exists there. The pods of the old location stay until then, and end if
// the new location does not contain them.
func TestDirGoesToAnotherLocation(t *testing.T) {
	t.Parallel()
	moving(t, func(t *testing.T, w *wanted, locations chan<- Location, before, after string) {
		nextLook()
		w.expect(t, "at first", "a-n i:1")

		locations <- Location{after, 20 * time.Second}
		nextLook()
		w.expect(t, "while the new location does not exist", "a-n i:1")
		write(t, filepath.Join(before, "b.yaml"), podText("b", "i:1"))
		nextLook()
		w.expect(t, "after a change in the old location", "a-n i:1", "b-n i:1")

		if err := os.Mkdir(after, 0o700); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(after, "c.yaml"), podText("c", "i:1"))
		empties := w.emptied()
		nextLook()
		w.expect(t, "in the new location", "c-n i:1")
		if w.emptied() != empties {
			t.Error("for a moment there was no pod at all")
		}
		write(t, filepath.Join(before, "b.yaml"), podText("b", "i:2"))
		nextLook()
		w.expect(t, "after another change in the old location", "c-n i:1")

		// If a location arrives with the same path and another period, the Dir keeps the pods that it has read.
		replaces := w.replaced()
		locations <- Location{after, time.Hour}
		nextLook()
		write(t, filepath.Join(after, "c.yaml"), podText("c", "i:2"))
		nextLook()
		w.expect(t, "within the longer period", "c-n i:1")
		if w.replaced() != replaces {
			t.Error("another period made the source answer again")
		}
		time.Sleep(time.Hour)
		nextLook()
		w.expect(t, "after the longer period", "c-n i:2")
	})
}

// If the Dir gets its old location again before the new location exists, it keeps reading the old one, also when the new one appears.
func TestDirStaysIfTheNewLocationIsWithdrawn(t *testing.T) {
	t.Parallel()
	moving(t, func(t *testing.T, w *wanted, locations chan<- Location, before, after string) {
		nextLook()
		locations <- Location{after, 20 * time.Second}
		nextLook()
		locations <- Location{before, 20 * time.Second}
		nextLook()
		if err := os.Mkdir(after, 0o700); err != nil {
			t.Fatal(err)
		}
		nextLook()
		w.expect(t, "when the other location comes too late", "a-n i:1")
	})
}
