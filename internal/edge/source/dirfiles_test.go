package source

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// Upstream's kubelet reads files of all names. Some installers give their manifests the ending .manifest, or none: on their nodes the
// control plane would not start if Dir read only .yaml, .yml and .json. Backups with an ending of their own are not read.
func TestDirReadsManifestsOfOtherNames(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, want := range map[string]string{
		"a.manifest": "a", "b": "b", "c.yaml": "c",
		"c.yaml.bak": "no-1", "c.yaml~": "no-2", "b~": "no-3", ".d": "no-4", "e.yaml.off": "no-5",
	} {
		write(t, filepath.Join(dir, name), podText(want, "i:1"))
	}
	inDir(t, dir, func(w *wanted) {
		w.expect(t, "manifests of other names", "a-n i:1", "b-n i:1", "c-n i:1")
		if _, _, wrongs := w.state(); len(wrongs) > 0 {
			t.Errorf("reported %q", wrongs)
		}
	})
}

// A manifest that cannot be read when the agent starts does not keep the source from answering, or else the node would never end deleted
// pods, evict pods or remove images. The source is in doubt meanwhile, so that the pods which an earlier agent made of this manifest stay.
func TestDirAnswersBesideAManifestThatCannotBeRead(t *testing.T) {
	t.Parallel()
	for name, create := range map[string]func(path string) error{
		"a link to itself": func(path string) error { return os.Symlink(filepath.Base(path), path) },
		"a pipe":           func(path string) error { return syscall.Mkfifo(path, 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			a, b := filepath.Join(dir, "a.yaml"), filepath.Join(dir, "b.yaml")
			write(t, a, podText("a", "i:1"))
			if err := create(b); err != nil {
				t.Fatal(err)
			}
			inDir(t, dir, func(w *wanted) {
				w.expect(t, "at first", "a-n i:1")
				if answered, doubt, wrongs := w.state(); !answered || !doubt || len(wrongs) != 1 || !strings.Contains(wrongs[0], b) {
					t.Errorf("answered %t, in doubt %t, reported %q", answered, doubt, wrongs)
				}
				if err := os.Remove(b); err != nil {
					t.Fatal(err)
				}
				write(t, b, podText("b", "i:1"))
				nextLook()
				w.expect(t, "readable", "a-n i:1", "b-n i:1")
				if _, doubt, _ := w.state(); doubt {
					t.Error("the source is in doubt although each manifest is read")
				}
			})
		})
	}
}

// A manifest that changes all the time while the agent starts counts as one that cannot be read, so it does not keep the source from answering.
// It is used when it has settled.
func TestDirAnswersBesideAManifestThatKeepsChanging(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dir, w := t.TempDir(), &wanted{}
		a, b := filepath.Join(dir, "a.yaml"), filepath.Join(dir, "b.yaml")
		write(t, a, podText("a", "i:1"))
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- (&Dir{Config: w.config(), Path: dir, Period: 20 * time.Second}).Run(ctx) }()
		for i := range 150 {
			write(t, filepath.Join(dir, ".b"), podText("b", fmt.Sprint("i:", i)))
			if err := os.Rename(filepath.Join(dir, ".b"), b); err != nil { // so that each look finds a whole file
				t.Fatal(err)
			}
			time.Sleep(100 * time.Millisecond)
		}
		synctest.Wait()
		w.expect(t, "while one changes", "a-n i:1")
		if answered, doubt, wrongs := w.state(); !answered || !doubt || len(wrongs) != 1 || !strings.Contains(wrongs[0], b) {
			t.Errorf("answered %t, in doubt %t, reported %q", answered, doubt, wrongs)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		w.expect(t, "settled", "a-n i:1", "b-n i:149")
		if _, doubt, _ := w.state(); doubt {
			t.Error("the source is in doubt although each manifest is read")
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
