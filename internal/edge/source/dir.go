package source

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/wherry-node/wherry/internal/core/manifest"
	"github.com/wherry-node/wherry/internal/core/pod"
)

// settle is how long a file must say the same before it counts: one that is being written, or is being replaced, says
// something else a moment later.
const settle = 200 * time.Millisecond

// gather is how long events are gathered before the files are looked at.
const gather = 20 * time.Millisecond

// Dir reads the manifests in a directory, or one file: KubeletConfiguration.staticPodPath.
//
// "The kubelet ignores files starting with dots when scanning the specified directory"; subdirectories and files whose
// names do not end in .yaml, .yml or .json are passed over too. A file that is gone takes its pods with it; one that cannot
// be read or is wrong does not.
type Dir struct {
	Config
	Path string
	// Period is how often the files are looked at when nothing tells of a change.
	Period time.Duration
	// Watch has the kernel tell of changes (inotify).
	Watch bool
}

// Run reads until ctx ends.
func (d *Dir) Run(ctx context.Context) error {
	s := &scan{Dir: d, held: newManifests(d.Config, pod.SourceFile), taken: map[string]text{}, coming: map[string]sighting{}, removed: map[string]bool{}, passed: map[string]bool{}}
	var w *watcher
	if d.Watch {
		w = newWatcher(d.Path, d.Log)
		defer w.close()
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	soon := true // the timer is about to fire
	for {
		select {
		case <-ctx.Done():
			return nil
		case e := <-w.events():
			if e.Has(fsnotify.Remove) || e.Has(fsnotify.Rename) {
				s.lost(e.Name)
			}
			if !soon && w.concerns(e.Name) {
				soon = true
				timer.Reset(gather)
			}
			continue
		case <-w.errors(): // events were lost
			if !soon {
				soon = true
				timer.Reset(gather)
			}
			continue
		case <-timer.C:
		}
		w.follow()
		wait := d.Period
		if s.look() {
			wait = settle
		}
		soon = false
		timer.Reset(wait)
	}
}

// text is what a file said; its zero value: the file is not there.
type text struct {
	there bool
	sum   [sha256.Size]byte
}

// sighting is a text that does not count yet, and since when it has been there.
type sighting struct {
	text
	since time.Time
}

// scan is what Run knows of the files.
type scan struct {
	*Dir
	held     *manifests
	taken    map[string]text // what counts
	coming   map[string]sighting
	removed  map[string]bool // what counts was removed; a file of the same text that is there now is another one
	passed   map[string]bool // files that are there and were said to be passed over
	answered bool
	absent   bool // the path is not there, and that was said
	broken   bool // something could not be read, and that was said
}

// look reads all files once and hands on what has settled. It reports whether something has not.
func (s *scan) look() (unsettled bool) {
	names, err := s.list()
	if err != nil {
		s.say("the static pods' path cannot be read; what was read of it last stays", err)
		return false
	}
	changed, failed := false, false
	for name := range s.held.parts {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	for _, name := range names {
		now, data, err := s.read(name)
		if err != nil {
			failed, changed = true, true
			delete(s.taken, name) // read anew, also when it says the same
			s.held.wrong(name, fmt.Errorf("read %s: %w; make it readable, or remove it", name, err))
			continue
		}
		switch {
		case now == s.taken[name] && s.removed[name]:
			unsettled = true
			if s.settled(name, now) { // its pods end first
				s.take(name, text{}, nil)
				changed = true
			}
		case now == s.taken[name] && (now.there || !s.has(name)):
			delete(s.coming, name)
		case s.settled(name, now):
			s.take(name, now, data)
			changed = true
		default:
			unsettled = true
		}
	}
	if s.broken && !failed {
		s.broken = false
		s.Log.Info("the static pods' path is read again", "path", s.Path)
	}
	if changed || (!s.answered && !unsettled) || s.held.satisfied() {
		whole := s.answered || (!unsettled && !failed)
		s.held.publish(whole)
		s.answered = whole
	}
	return unsettled
}

func (s *scan) has(name string) bool { return s.held.parts[name] != nil }

// settled reports whether the file has said the same for long enough.
func (s *scan) settled(name string, now text) bool {
	before, ok := s.coming[name]
	if !ok || before.text != now {
		s.coming[name] = sighting{now, time.Now()}
		return false
	}
	return time.Since(before.since) >= settle
}

// lost notes that a file was removed or renamed. Whoever writes it again, even as it was, wants its pods anew: an edit in
// place and a file that takes another's place remove nothing.
func (s *scan) lost(name string) {
	if s.taken[name].there {
		s.removed[name] = true
	}
}

func (s *scan) take(name string, now text, data []byte) {
	delete(s.coming, name)
	delete(s.removed, name)
	if !now.there {
		delete(s.taken, name)
		s.held.drop(name)
		return
	}
	s.taken[name] = now
	s.held.put(name, data)
}

// list names the files that count. A path that is not there has none.
func (s *scan) list() ([]string, error) {
	st, err := os.Stat(s.Path)
	if errors.Is(err, fs.ErrNotExist) {
		if !s.absent {
			s.absent = true
			s.Log.Warn("the static pods' path is not there; it is waited for", "path", s.Path)
		}
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if s.absent {
		s.absent = false
		s.Log.Info("the static pods' path is there", "path", s.Path)
	}
	if !st.IsDir() {
		return []string{s.Path}, nil
	}
	entries, err := os.ReadDir(s.Path)
	if err != nil {
		return nil, err
	}
	var out []string
	passed := map[string]bool{}
	for _, e := range entries {
		name := e.Name()
		if strings.HasPrefix(name, ".") || e.IsDir() {
			continue
		}
		switch filepath.Ext(name) {
		case ".yaml", ".yml", ".json":
			out = append(out, filepath.Join(s.Path, name))
		default:
			passed[name] = true
			if !s.passed[name] {
				s.Log.Info("file is not a manifest by its name (.yaml, .yml, .json) and is passed over", "path", filepath.Join(s.Path, name))
			}
		}
	}
	s.passed = passed
	return out, nil
}

// read reads one file, which may be a link, as those of mounted ConfigMaps are.
func (s *scan) read(name string) (text, []byte, error) {
	st, err := os.Stat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return text{}, nil, nil
	case err != nil:
		return text{}, nil, err
	case st.IsDir():
		return text{}, nil, nil
	case !st.Mode().IsRegular():
		return text{}, nil, errors.New("not a regular file")
	}
	f, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return text{}, nil, nil
	}
	if err != nil {
		return text{}, nil, err
	}
	defer f.Close() //nolint:errcheck // only read
	data, err := io.ReadAll(io.LimitReader(f, manifest.MaxBytes+1))
	if err != nil {
		return text{}, nil, err
	}
	return text{there: true, sum: sha256.Sum256(data)}, data, nil
}

func (s *scan) say(what string, err error) {
	if !s.broken {
		s.broken = true
		s.Log.Error(what, "path", s.Path, "err", err)
	}
}

// watcher hears of changes at a path that may come and go. A nil watcher hears of nothing.
type watcher struct {
	path string
	w    *fsnotify.Watcher
}

// newWatcher returns nil where the kernel cannot watch: the period finds changes too.
func newWatcher(path string, log interface{ Warn(string, ...any) }) *watcher {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		log.Warn("static pod files are not watched, only looked at now and then", "path", path, "err", err)
		return nil
	}
	return &watcher{path: filepath.Clean(path), w: w}
}

func (w *watcher) close() {
	if w != nil {
		_ = w.w.Close()
	}
}

func (w *watcher) events() <-chan fsnotify.Event {
	if w == nil {
		return nil
	}
	return w.w.Events
}

func (w *watcher) errors() <-chan error {
	if w == nil {
		return nil
	}
	return w.w.Errors
}

// concerns reports whether an event may be about the path: below it, on the way to it, or the link by which a mounted
// ConfigMap exchanges all its files.
func (w *watcher) concerns(name string) bool {
	return name == w.path || strings.HasPrefix(name, w.path+"/") || strings.HasPrefix(w.path, strings.TrimSuffix(name, "/")+"/") ||
		filepath.Dir(name) == filepath.Dir(w.path) && strings.HasPrefix(filepath.Base(name), "..")
}

// follow watches the path and the nearest directory above it that is there: the path may be made, or be replaced by
// another of its name, which a watch of the old one does not tell. What was made between the look and the watch told
// nobody, so it looks again until it finds what it watches.
func (w *watcher) follow() {
	if w == nil {
		return
	}
	for want := w.nearest(); ; {
		for _, at := range w.w.WatchList() {
			if !slices.Contains(want, at) {
				_ = w.w.Remove(at)
			}
		}
		for _, at := range want {
			_ = w.w.Add(at) // again for one that is watched: the name may stand for another directory now
		}
		now := w.nearest()
		if slices.Equal(want, now) {
			return
		}
		want = now
	}
}

// nearest are the directories to watch, the upper one first: from then on it tells what becomes of the path.
func (w *watcher) nearest() (dirs []string) {
	for at := w.path; ; at = filepath.Dir(at) {
		if st, err := os.Stat(at); err == nil && st.IsDir() {
			dirs = append(dirs, at)
			if at != w.path {
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
