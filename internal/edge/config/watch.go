package config

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"syscall"
	"time"

	"github.com/wherry-node/wherry/internal/base/filewatch"
	"github.com/wherry-node/wherry/internal/core/pod"
)

const (
	// watchPeriod is how often a Watch looks at its files when the kernel reports no change.
	watchPeriod = time.Minute
	// watchGather is how long a Watch waits after a change for further changes, before it checks the files.
	watchGather = 50 * time.Millisecond
	// watchSettle is how long the files must stay the same before they are read, because a file that is being written changes
	// again a moment later.
	watchSettle = 300 * time.Millisecond
	// watchPatience is how long the files must stay the same before they are reported as wrong, because an editor may write half
	// of a file first.
	watchPatience = 2 * time.Second
	// maxWrong bounds the text of an error in bytes.
	maxWrong = 2 << 10
)

// Watch reads the files of a configuration again when they have changed. It is for configurations with at least one file.
type Watch struct {
	// Files names the files of the configuration; Load returns it in Config.Files.
	Files Files
	// Apply is called with the configuration once at the beginning, and after each change of the files if they are then valid. One
	// goroutine calls it.
	Apply func(Config, []Notice)
	// Wrong is called with the error if files cannot be read or are not valid, once for each state of the files. Right, if set,
	// is called when the files are valid again.
	Wrong func(error)
	Right func()
	// Poll makes the Watch look at the files only once a minute, without the kernel's reports of changes.
	Poll bool
	Log  *slog.Logger
}

// Watches reports whether the configuration was read from at least one file or directory, which a Watch can then read again.
func (f *Files) Watches() bool { return f.Config != "" || f.DropIns != "" || f.Wherry != "" }

// Run watches the files until ctx ends. It looks at them once at the beginning, so that it finds a change since Load.
func (w *Watch) Run(ctx context.Context) error {
	s := &watching{Watch: w, taken: "none"}
	if !w.Poll {
		var err error
		if s.kernel, err = filewatch.New(); err != nil {
			w.Log.Warn("cannot watch the configuration's files, looking at them once a minute instead", "err", err)
		}
		defer s.kernel.Close()
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	soon := true // the timer is already set for a check, so a further change need not set it
	for {
		select {
		case <-ctx.Done():
			return nil
		case e := <-s.kernel.Events():
			if !soon && s.kernel.Concerns(e.Name) {
				soon = true
				timer.Reset(watchGather)
			}
		case <-s.kernel.Errors(): // the kernel has dropped events, so any file may have changed
			timer.Reset(watchGather)
		case <-timer.C:
			soon = false
			timer.Reset(s.look())
		}
	}
}

// watching is the state of Run.
type watching struct {
	*Watch
	kernel *filewatch.Watcher // nil: changes are found by polling only
	taken  string             // the result of the method state when the files were last read
	coming string             // what state has returned since the files changed; "": they have not changed since they were read
	since  time.Time          // when coming was first seen
	wrong  string             // the error that was last reported; "": the files are valid
}

// look checks the files, and reads them again if they have changed and then stayed the same for watchSettle. It returns the time
// until the next check.
func (s *watching) look() time.Duration {
	now, dirs := s.state()
	s.kernel.SetPaths(append(dirs, s.Files.Config, s.Files.Wherry)...)
	s.kernel.Follow()
	switch {
	case now == s.taken:
		s.coming = ""
		return watchPeriod
	case now != s.coming:
		s.coming, s.since = now, time.Now()
		return watchSettle
	case time.Since(s.since) < watchSettle:
		return watchSettle
	}
	cfg, notices, err := s.load()
	if after, _ := s.state(); after != now { // a file changed while it was read
		s.coming, s.since = after, time.Now()
		return watchSettle
	}
	if err != nil && time.Since(s.since) < watchPatience {
		return watchPatience - time.Since(s.since)
	}
	s.taken, s.coming = now, ""
	s.tell(cfg, notices, err)
	return watchPeriod
}

// load reads the configuration from its files.
func (s *watching) load() (Config, []Notice, error) {
	for _, name := range []string{s.Files.Config, s.Files.Wherry} {
		if info, err := os.Stat(name); name != "" && err == nil && !info.Mode().IsRegular() {
			return Config{}, nil, fmt.Errorf("%s is not a regular file: it is read at a start only", name)
		}
	}
	return Load(s.Files.Args)
}

// tell reports the result of load to Apply, Wrong or Right.
func (s *watching) tell(cfg Config, notices []Notice, err error) {
	if err == nil {
		if s.wrong != "" && s.Right != nil {
			s.Right()
		}
		s.wrong = ""
		s.Apply(cfg, notices)
		return
	}
	text := pod.TextMax(err.Error(), maxWrong) // the text is bounded, because the error may quote bytes of the file
	if text != s.wrong {
		s.wrong = text
		s.Wrong(errors.New(text))
	}
}

// state returns a text that changes whenever a file is written, replaced, added or removed, and the directories of drop-in files. It
// reads no file.
func (s *watching) state() (text string, dirs []string) {
	h := sha256.New()
	for _, name := range []string{s.Files.Config, s.Files.Wherry} {
		if name != "" {
			addFile(h, name)
		}
	}
	if dir := s.Files.DropIns; dir != "" {
		files, below, err := dropIns(dir)
		fmt.Fprintf(h, "%d %v\n", len(files), err)
		for _, name := range files {
			addFile(h, name)
		}
		dirs = append([]string{dir}, below[:min(len(below), maxWatchedDirs)]...)
	}
	return string(h.Sum(nil)), dirs
}

// maxWatchedDirs bounds the directories that the kernel watches. Changes in others are found within watchPeriod.
const maxWatchedDirs = 64

// addFile adds the properties of a file that change when its content changes. One is the time of the last status change (ctime), because
// no program can set it back.
func addFile(h hash.Hash, name string) {
	info, err := os.Stat(name)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = fs.ErrNotExist
		}
		fmt.Fprintf(h, "%q: %v\n", name, err)
		return
	}
	fmt.Fprintf(h, "%q %d %d %v", name, info.Size(), info.ModTime().UnixNano(), info.Mode())
	if sys, ok := info.Sys().(*syscall.Stat_t); ok {
		fmt.Fprintf(h, " %d %d %d %d", sys.Dev, sys.Ino, sys.Ctim.Sec, sys.Ctim.Nsec)
	}
	_, _ = io.WriteString(h, "\n")
}
