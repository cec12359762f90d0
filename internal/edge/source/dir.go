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
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/wherry-node/wherry/internal/base/filewatch"
	"github.com/wherry-node/wherry/internal/core/manifest"
	"github.com/wherry-node/wherry/internal/core/pod"
)

// settle is how long the content of a file must stay the same before Dir uses it, because a file that is still being written or
// replaced changes again soon.
const settle = 200 * time.Millisecond

// restless is how long the first answer waits for a file that changes again and again.
const restless = 10 * time.Second

// gather is how long Dir collects events before it reads the files.
const gather = 20 * time.Millisecond

// Dir reads the manifests in a directory, or one file: KubeletConfiguration.staticPodPath.
//
// "The kubelet ignores files starting with dots when scanning the specified directory"; Dir also ignores
// subdirectories, and files whose names show that they are no manifests, such as backups (see isManifest). If a file is removed, its pods
// end; if a file cannot be read or is wrong, its pods continue.
type Dir struct {
	Config
	Path string
	// Period is how often Dir reads the files when no event reports a change.
	Period time.Duration
	// Watch makes the kernel report changes (inotify).
	Watch bool
	// Locations, if set, delivers a new location while Dir runs. Dir changes to the new location when a file or directory exists there.
	// Until then it continues with the old location. The pods of the old location stay until the files of the new location are read.
	Locations <-chan Location
}

// Location is the path that a Dir reads, and how often.
type Location struct {
	Path   string
	Period time.Duration
}

// Run reads the manifests at the start and whenever they may have changed, until ctx ends.
func (d *Dir) Run(ctx context.Context) error {
	r := &reading{scan: d.at(d.Path, d.Period)}
	if d.Watch {
		var err error
		if r.w, err = filewatch.New(d.Path); err != nil {
			d.Log.Warn("cannot watch the static pods' files, reading them periodically instead", "path", d.Path, "err", err)
		}
		defer r.w.Close()
	}
	r.timer = time.NewTimer(0)
	defer r.timer.Stop()
	r.soon = true // the timer fires at once
	for {
		select {
		case <-ctx.Done():
			return nil
		case e := <-r.w.Events():
			if e.Has(fsnotify.Remove) || e.Has(fsnotify.Rename) {
				r.scan.lost(e.Name)
			}
			if r.w.Concerns(e.Name) {
				r.hurry()
			}
		case <-r.w.Errors(): // the kernel has lost events, so read the files
			r.hurry()
		case p := <-d.Locations:
			r.send(p)
		case <-r.timer.C:
			r.read()
		}
	}
}

// at returns a new scan of path. The scan has not read any file yet.
func (d *Dir) at(path string, period time.Duration) *scan {
	here := *d
	here.Path, here.Period = path, period
	return &scan{Dir: &here, held: newManifests(d.Config, pod.SourceFile), taken: map[string]text{}, coming: map[string]sighting{}, removed: map[string]bool{}, passed: map[string]bool{}}
}

// reading is the state of Run.
type reading struct {
	scan  *scan
	w     *filewatch.Watcher // the kernel's reports of changes; nil: the kernel reports nothing
	timer *time.Timer
	soon  bool   // the timer fires within the time gather
	next  string // new path, to which the Dir changes when it exists; "": there is no new path
}

// hurry makes the timer fire within the time gather (20 ms), so that the files are read soon.
func (r *reading) hurry() {
	if !r.soon {
		r.soon = true
		r.timer.Reset(gather)
	}
}

// send handles a new location: the Dir reads with the new period from now on, and changes to the new path when something exists
// there.
func (r *reading) send(p Location) {
	r.scan.Period, r.next = p.Period, p.Path
	if p.Path == r.scan.Path {
		r.next = ""
	}
	if r.next != "" {
		r.scan.Log.Info("static pods come from another path as soon as it exists", "path", p.Path, "now", r.scan.Path)
	}
	r.hurry()
}

// read reads all files once and sets the timer for the next reading.
func (r *reading) read() {
	if r.next != "" {
		if _, err := os.Stat(r.next); err == nil {
			r.scan, r.next = r.scan.at(r.next, r.scan.Period), ""
			r.scan.Log.Info("static pods come from another path", "path", r.scan.Path)
		}
	}
	paths := []string{r.scan.Path}
	if r.next != "" {
		paths = append(paths, r.next)
	}
	r.w.SetPaths(paths...)
	r.w.Follow()
	wait := r.scan.Period
	if r.scan.look() {
		wait = settle
	}
	r.soon = false
	r.timer.Reset(wait)
}

// text identifies the content of a file. The zero value means that the file does not exist.
type text struct {
	there bool
	sum   [sha256.Size]byte
}

// sighting is content that Dir does not use yet, with the time when it was first read.
type sighting struct {
	text
	since time.Time
	began time.Time // since when the file has changed again and again
}

// scan holds the state of the files that Run has read.
type scan struct {
	*Dir
	held     *manifests
	taken    map[string]text // the content of each file that is in use
	coming   map[string]sighting
	removed  map[string]bool // files that were removed; if a file comes back with the same content, it counts as a new file
	passed   map[string]bool // existing files that are not manifests by their names, and that were already logged
	answered bool
	absent   bool // the path does not exist, and this was logged
	broken   bool // something could not be read, and this was logged
}

// look reads all files once and publishes the content of the files that have settled. It reports whether some files have not settled.
func (s *scan) look() (unsettled bool) {
	names, err := s.list()
	if err != nil {
		s.say("cannot read the static pods' path; the pods that were read before stay", err)
		return false
	}
	changed, failed, waits := false, false, false // waits: a complete answer waits for a file to settle
	for name := range s.held.parts {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	for _, name := range names {
		now, data, err := s.read(name)
		if err != nil {
			failed, changed = true, true
			delete(s.taken, name) // forget the file, so that it is used again later even with the same content
			s.held.wrong(name, fmt.Errorf("read %s: %w; make it readable, or remove it", name, err))
			continue
		}
		switch {
		case now == s.taken[name] && s.removed[name]:
			unsettled, waits = true, true
			if s.settled(name, now) { // end the removed file's pods now; the next look uses the file again
				s.take(name, text{}, nil)
				changed = true
			}
		case now == s.taken[name] && (now.there || !s.has(name)):
			delete(s.coming, name)
		case s.settled(name, now):
			s.take(name, now, data)
			changed = true
		case !s.answered && time.Since(s.coming[name].began) >= restless: // the first answer has to come, even if the file never settles
			unsettled, changed = true, true
			s.held.wrong(name, fmt.Errorf("%s changes again and again; write it in another directory, and move it here when it is complete", name))
		default:
			unsettled, waits = true, true
		}
	}
	if s.broken && !failed {
		s.broken = false
		s.Log.Info("the static pods' path is readable again", "path", s.Path)
	}
	if changed || (!s.answered && !waits) || s.held.satisfied() {
		// A file that cannot be read does not delay the answer: it puts the source in doubt (see Config.Doubt), so no static pod ends. Without
		// an answer, the node would neither end deleted pods nor evict pods nor remove images.
		whole := s.answered || !waits
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
		at := time.Now()
		if !ok {
			before.began = at
		}
		s.coming[name] = sighting{now, at, before.began}
		return false
	}
	return time.Since(before.since) >= settle
}

// lost records that a file was removed or renamed. If somebody writes the file again, even with the same content, its pods start anew.
// A file that is edited in place or replaced by a rename does not count as removed.
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

// list returns the paths of the manifest files. If Path does not exist, list returns no paths.
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
		if isManifest(name) {
			out = append(out, filepath.Join(s.Path, name))
			continue
		}
		passed[name] = true
		if !s.passed[name] {
			s.Log.Info("ignoring a file whose name has another ending than .yaml, .yml, .json or .manifest", "path", filepath.Join(s.Path, name))
		}
	}
	s.passed = passed
	return out, nil
}

// isManifest reports whether a file of this name is read. Upstream's kubelet reads files of all names, and some installers give their
// manifests the ending .manifest, or none. Files with other endings are mostly backups of manifests.
func isManifest(name string) bool {
	switch filepath.Ext(name) {
	case ".yaml", ".yml", ".json", ".manifest":
		return true
	case "":
		return !strings.HasSuffix(name, "~")
	}
	return false
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
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0) // non-blocking, in case a FIFO has just replaced the file
	if errors.Is(err, fs.ErrNotExist) {
		return text{}, nil, nil
	}
	if err != nil {
		return text{}, nil, err
	}
	defer f.Close() //nolint:errcheck // only read
	if st, err = f.Stat(); err == nil && !st.Mode().IsRegular() {
		err = errors.New("not a regular file")
	}
	if err != nil {
		return text{}, nil, err
	}
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
