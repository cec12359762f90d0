package filewatch

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fsnotify/fsnotify"
)

// Watcher gets the kernel's events (inotify) about paths that may be created and removed at any time. Only one goroutine may use it. The
// user must call Close at the end.
type Watcher struct {
	paths []string
	w     *fsnotify.Watcher
}

// New returns a Watcher of the paths. It watches nothing until Follow. It fails if the kernel allows no more watchers.
func New(paths ...string) (*Watcher, error) {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, err
	}
	n := &Watcher{w: w}
	n.SetPaths(paths...)
	return n, nil
}

// SetPaths replaces the paths. It takes effect with the next call of Follow.
func (w *Watcher) SetPaths(paths ...string) {
	if w == nil {
		return
	}
	w.paths = w.paths[:0:0]
	for _, p := range paths {
		w.paths = append(w.paths, filepath.Clean(p))
	}
}

// Close stops the watch. No events come afterwards.
func (w *Watcher) Close() {
	if w != nil {
		_ = w.w.Close()
	}
}

// Events returns the channel of events. Many events may concern other files: see Concerns.
func (w *Watcher) Events() <-chan fsnotify.Event {
	if w == nil {
		return nil
	}
	return w.w.Events
}

// Errors returns the channel of errors. An error means that events were lost.
func (w *Watcher) Errors() <-chan error {
	if w == nil {
		return nil
	}
	return w.w.Errors
}

// Concerns reports whether an event with this name may be about one of the paths: the name is the path, is below it or above it, or is
// the link by which a mounted ConfigMap replaces all its files.
func (w *Watcher) Concerns(name string) bool {
	return w != nil && slices.ContainsFunc(w.paths, func(path string) bool { return concerns(path, name) })
}

func concerns(path, name string) bool {
	return name == path || strings.HasPrefix(name, path+"/") || strings.HasPrefix(path, strings.TrimSuffix(name, "/")+"/") ||
		filepath.Dir(name) == filepath.Dir(path) && strings.HasPrefix(filepath.Base(name), "..")
}

// looks is how often one call of Follow searches for directories. The limit is needed because somebody may create and remove directories
// all the time.
const looks = 100

// Follow watches the paths and the nearest existing directory above each, because a path may be created, or replaced by another file of
// the same name, which a watch of the path itself does not report. If a directory is created after Follow has looked for it and before it
// watches the directory above, there is no event. So Follow looks again until it finds only directories that it already watches.
func (w *Watcher) Follow() {
	if w == nil {
		return
	}
	want := w.nearest()
	for range looks {
		for _, at := range w.w.WatchList() {
			if !slices.Contains(want, at) {
				_ = w.w.Remove(at)
			}
		}
		for _, at := range want {
			_ = w.w.Add(at) // add the directory even if its name is watched already, because the name may mean another directory now
		}
		now := w.nearest()
		if slices.Equal(want, now) {
			return
		}
		want = now
	}
}

// nearest returns the directories to watch. For each path the upper directory comes first, so that its watch reports changes of
// the path while the other watches begin.
func (w *Watcher) nearest() (dirs []string) {
	for _, path := range w.paths {
		for _, dir := range nearest(path) {
			if !slices.Contains(dirs, dir) {
				dirs = append(dirs, dir)
			}
		}
	}
	return dirs
}

func nearest(path string) (dirs []string) {
	for at := path; ; at = filepath.Dir(at) {
		if st, err := os.Stat(at); err == nil && st.IsDir() {
			dirs = append(dirs, at)
			if at != path {
				break
			}
		}
		if at == filepath.Dir(at) {
			break
		}
	}
	slices.Reverse(dirs)
	return dirs
}
