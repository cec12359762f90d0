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

// settle is how long the content of a file must stay the same before it counts, because a file that is being written or
// replaced changes a moment later.
const settle = 200 * time.Millisecond

// gather is how long Dir collects events before it reads the files.
const gather = 20 * time.Millisecond

// Dir reads the manifests in a directory, or one file: KubeletConfiguration.staticPodPath.
//
// "The kubelet ignores files starting with dots when scanning the specified directory"; Dir also ignores
// subdirectories, and files whose names do not end in .yaml, .yml or .json. If a file is removed, its pods end; if a
// file cannot be read or is wrong, they do not.
type Dir struct {
	Config
	Path string
	// Period is how often Dir reads the files when no event reports a change.
	Period time.Duration
	// Watch makes the kernel report changes (inotify).
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

// text identifies the content of a file. The zero value means that the file does not exist.
type text struct {
	there bool
	sum   [sha256.Size]byte
}

// sighting is a text that does not count yet, with the time of its first reading.
type sighting struct {
	text
	since time.Time
}

// scan holds what Run knows of the files.
type scan struct {
	*Dir
	held     *manifests
	taken    map[string]text // the content that counts
	coming   map[string]sighting
	removed  map[string]bool // the file that counts was removed; a file with the same content is a new one
	passed   map[string]bool // existing files whose names are not a manifest's, already logged
	answered bool
	absent   bool // the path does not exist, and that was logged
	broken   bool // something could not be read, and that was logged
}

// look reads all files once and publishes the content of those that have settled. It reports whether some have not.
func (s *scan) look() (unsettled bool) {
	names, err := s.list()
	if err != nil {
		s.say("cannot read the static pods' path; the pods that were read before stay", err)
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
			delete(s.taken, name) // take the file again later, even with the same content
			s.held.wrong(name, fmt.Errorf("read %s: %w; make it readable, or remove it", name, err))
			continue
		}
		switch {
		case now == s.taken[name] && s.removed[name]:
			unsettled = true
			if s.settled(name, now) { // the pods of the removed file end first
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
		s.Log.Info("the static pods' path is readable again", "path", s.Path)
	}
	if changed || (!s.answered && !unsettled) || s.held.satisfied() {
		whole := s.answered || (!unsettled && !failed)
		s.held.publish(whole)
		s.answered = whole
	}
	return unsettled
}

func (s *scan) has(name string) bool { return s.held.parts[name] != nil }

// settled reports whether the content of the file has stayed the same for long enough.
func (s *scan) settled(name string, now text) bool {
	before, ok := s.coming[name]
	if !ok || before.text != now {
		s.coming[name] = sighting{now, time.Now()}
		return false
	}
	return time.Since(before.since) >= settle
}

// lost records that a file was removed or renamed. If somebody writes it again, even with the same content, its pods
// start anew. Editing a file in place and replacing it by a rename remove nothing.
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

// list returns the files that count. A path that does not exist has none.
func (s *scan) list() ([]string, error) {
	st, err := os.Stat(s.Path)
	if errors.Is(err, fs.ErrNotExist) {
		if !s.absent {
			s.absent = true
			s.Log.Warn("the static pods' path does not exist; waiting for it", "path", s.Path)
		}
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if s.absent {
		s.absent = false
		s.Log.Info("the static pods' path exists now", "path", s.Path)
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
				s.Log.Info("ignoring a file whose name does not end in .yaml, .yml or .json", "path", filepath.Join(s.Path, name))
			}
		}
	}
	s.passed = passed
	return out, nil
}

// read reads one file. It follows a link, because the files of mounted ConfigMaps are links.
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

// watcher gets the kernel's events about a path that may come and go. A nil watcher gets none.
type watcher struct {
	path string
	w    *fsnotify.Watcher
}

// newWatcher returns nil if the kernel cannot watch: the periodic reading finds changes, too.
func newWatcher(path string, log interface{ Warn(string, ...any) }) *watcher {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		log.Warn("cannot watch the static pods' files, reading them periodically instead", "path", path, "err", err)
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

// concerns reports whether an event may be about the path: below it, in a directory above it, or about the link by
// which a mounted ConfigMap replaces all its files.
func (w *watcher) concerns(name string) bool {
	return name == w.path || strings.HasPrefix(name, w.path+"/") || strings.HasPrefix(w.path, strings.TrimSuffix(name, "/")+"/") ||
		filepath.Dir(name) == filepath.Dir(w.path) && strings.HasPrefix(filepath.Base(name), "..")
}

// follow watches the path and the nearest existing directory above it. The path may be created, or replaced by another
// of the same name, which a watch of the old one does not report. No event reports a directory that was made between
// the look and the watch, so follow looks again until it finds only what it watches.
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
			_ = w.w.Add(at) // also if it is watched: the name may belong to another directory now
		}
		now := w.nearest()
		if slices.Equal(want, now) {
			return
		}
		want = now
	}
}

// nearest returns the directories to watch, the upper one first, so that its events cover what happens to the path from
// then on.
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
