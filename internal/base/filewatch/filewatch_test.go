package filewatch

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// A path gets events when it is created together with its directories, when it is replaced, and when it is removed.
func TestFollow(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "a", "b", "config.yaml")
	w, err := New(file, filepath.Join(dir, "conf.d"))
	if err != nil {
		t.Skip(err) // this machine allows no more watchers
	}
	defer w.Close()
	w.Follow()
	await := func(what string) {
		t.Helper()
		for deadline := time.After(10 * time.Second); ; {
			select {
			case e := <-w.Events():
				if w.Concerns(e.Name) {
					w.Follow()
					return
				}
			case err := <-w.Errors():
				t.Fatal(err)
			case <-deadline:
				t.Fatalf("no event after %s", what)
			}
		}
	}
	for _, step := range []struct {
		what string
		do   func() error
	}{
		{"making the directories", func() error { return os.MkdirAll(filepath.Dir(file), 0o755) }},
		{"writing the file", func() error { return os.WriteFile(file, []byte("1"), 0o600) }},
		{"making the other path", func() error { return os.Mkdir(filepath.Join(dir, "conf.d"), 0o755) }},
		{"writing below the other path", func() error { return os.WriteFile(filepath.Join(dir, "conf.d", "x"), nil, 0o600) }},
		{"removing the file", func() error { return os.Remove(file) }},
	} {
		if err := step.do(); err != nil {
			t.Fatal(err)
		}
		await(step.what)
	}
}

func TestConcerns(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		path, name string
		want       bool
	}{
		{"/etc/k/config.yaml", "/etc/k/config.yaml", true},
		{"/etc/k/conf.d", "/etc/k/conf.d/10.conf", true},
		{"/etc/k/conf.d", "/etc/k", true},
		{"/etc/k/config.yaml", "/etc/k/..data", true}, // a mounted ConfigMap
		{"/etc/k/config.yaml", "/etc/k/other", false},
		{"/etc/k/conf.d", "/etc/k/conf.d2", false},
	} {
		if got := concerns(c.path, c.name); got != c.want {
			t.Errorf("%s of %s: %t", c.name, c.path, got)
		}
	}
	var none *Watcher
	if none.Concerns("/x") || none.Events() != nil || none.Errors() != nil {
		t.Error("a nil watcher has events")
	}
	none.SetPaths("/x")
	none.Follow()
	none.Close()
}

// A directory that is created just as the watch begins is never missed: either the watcher finds it, or an event reports it.
func TestWatcherMissesNothing(t *testing.T) {
	t.Parallel()
	for i := range 100 {
		top := t.TempDir()
		path := filepath.Join(top, "a", "b", "manifests")
		w, err := New(path)
		if err != nil {
			t.Skip(err)
		}
		made := make(chan error, 1)
		go func() { made <- os.MkdirAll(path, 0o700) }()
		w.Follow()
		if err := <-made; err != nil {
			t.Fatal(err)
		}
		if !slices.Contains(w.w.WatchList(), path) {
			select {
			case <-w.Events():
			case <-time.After(2 * time.Minute):
				t.Fatalf("run %d: %s is there, watched is %q and there was no event", i, path, w.w.WatchList())
			}
		}
		w.Close()
	}
}
