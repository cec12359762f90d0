package recorder

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/wherry-node/wherry/internal/base/hostfs"
	"github.com/wherry-node/wherry/internal/core/inorder"
	"github.com/wherry-node/wherry/internal/core/replay"
)

// DirName is the directory of the recorded turns (passes of a pod's worker), below the root directory of the agent.
const DirName = "recorded-turns"

// Further limits, besides Config.MaxBytes.
const (
	maxTurns     = 1000      // files in all
	maxPodTurns  = 8         // files of one pod
	maxTurnBytes = 256 << 10 // bytes of one file; a larger turn is not recorded
	maxQueue     = 64        // turns that wait to be written; further ones are lost, and counted in the log
)

// Config configures a Recorder.
type Config struct {
	// Dir is the directory of the files. It is made when the first turn is written.
	Dir string
	// MaxBytes bounds the bytes of all files.
	MaxBytes int64
	Log      *slog.Logger
}

// Recorder writes turns to disk. A turn is one pass of a pod's worker, with its inputs and its decision.
type Recorder struct {
	cfg  Config
	wake chan struct{} // has an element while turns wait

	mu    sync.Mutex
	queue []*replay.Turn
	lost  int // turns that did not fit into the queue

	// Only Run uses the fields below.
	files   []file // oldest first
	bytes   int64
	failing bool // the last write failed, and this was logged
}

// file is one recorded turn on disk.
type file struct {
	pod   string // the directory of its pod
	name  string
	bytes int64
}

// New returns a Recorder. It does no IO.
func New(cfg Config) *Recorder { return &Recorder{cfg: cfg, wake: make(chan struct{}, 1)} }

// Record queues a turn for Run to write. It never blocks, and may be called concurrently. The turn must not be changed afterwards.
func (r *Recorder) Record(t *replay.Turn) {
	r.mu.Lock()
	if len(r.queue) < maxQueue {
		r.queue = append(r.queue, t)
	} else {
		r.lost++
	}
	r.mu.Unlock()
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// Run writes queued turns until ctx ends. Before it returns, it writes the turns that are still queued.
func (r *Recorder) Run(ctx context.Context) error {
	r.scan()
	for {
		select {
		case <-ctx.Done():
			r.writeAll()
			return nil
		case <-r.wake:
			r.writeAll()
		}
	}
}

// writeAll writes all queued turns.
func (r *Recorder) writeAll() {
	r.mu.Lock()
	queue, lost := r.queue, r.lost
	r.queue, r.lost = nil, 0
	r.mu.Unlock()
	if lost > 0 {
		r.cfg.Log.Warn("turns of pods that went wrong are not recorded, because the disk is slow", "turns", lost)
	}
	for _, t := range queue {
		err := r.write(t)
		switch {
		case err == nil:
			r.failing = false
		case !r.failing:
			r.failing = true
			r.cfg.Log.Error("turns of pods that went wrong are not recorded until the disk works again", "dir", r.cfg.Dir, "err", err)
		}
	}
}

// write writes one turn, and first removes old files if it needs their room. It drops a turn that is too large.
func (r *Recorder) write(t *replay.Turn) error {
	data, err := t.Encode()
	if err != nil {
		return err
	}
	if len(data) > maxTurnBytes {
		return nil
	}
	f := file{pod: podDir(t), name: t.Input.Now.UTC().Format(stamp) + ".json", bytes: int64(len(data))}
	if f.bytes > r.cfg.MaxBytes {
		return nil
	}
	r.makeRoom(&f)
	path := filepath.Join(r.cfg.Dir, f.pod, f.name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("make the directory of recorded turns: %w", err)
	}
	if err := hostfs.WriteFile(path, data, 0o600); err != nil {
		return fmt.Errorf("write a recorded turn: %w", err)
	}
	r.files, r.bytes = append(r.files, f), r.bytes+f.bytes
	return nil
}

// stamp is the layout of the time in the names of files, so that the names sort by time.
const stamp = "20060102T150405.000000000Z"

// podDir returns the name of the directory of a pod.
func podDir(t *replay.Turn) string {
	return podPrefix(t.Namespace, t.Name) + dirPart(t.UID)
}

// podPrefix returns the beginning of the name of a pod's directory. Pods with very long names may share it.
func podPrefix(namespace, name string) string { return dirPart(namespace) + "_" + dirPart(name) + "_" }

// dirPart bounds a part of the name of a directory, and replaces characters that are not safe in file names, because a UID can be any text.
func dirPart(s string) string {
	return strings.Map(func(c rune) rune {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '.' {
			return c
		}
		return '-'
	}, s[:min(len(s), 80)])
}

// makeRoom removes the oldest files of the pod, and then the oldest of all, so that the new file fits.
func (r *Recorder) makeRoom(f *file) {
	own := 0
	for i := range r.files {
		if r.files[i].pod == f.pod {
			own++
		}
	}
	for i := 0; i < len(r.files) && own >= maxPodTurns; {
		if r.files[i].pod != f.pod {
			i++
			continue
		}
		r.remove(i)
		own--
	}
	for len(r.files) > 0 && (len(r.files) >= maxTurns || r.bytes+f.bytes > r.cfg.MaxBytes) {
		r.remove(0)
	}
}

// remove removes the i-th file, and the directory of its pod if that is then empty. A file that cannot be removed is no longer
// counted; the next agent will find it again.
func (r *Recorder) remove(i int) {
	f := r.files[i]
	r.files, r.bytes = slices.Delete(r.files, i, i+1), r.bytes-f.bytes
	_ = os.Remove(filepath.Join(r.cfg.Dir, f.pod, f.name))
	if !slices.ContainsFunc(r.files, func(o file) bool { return o.pod == f.pod }) {
		_ = os.Remove(filepath.Join(r.cfg.Dir, f.pod))
	}
}

// scan lists the files of earlier agents, and removes the oldest ones if they exceed the configured bounds.
func (r *Recorder) scan() {
	files, err := list(r.cfg.Dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		r.failing = true
		r.cfg.Log.Error("recorded turns cannot be listed", "dir", r.cfg.Dir, "err", err)
	}
	r.files = files
	for i := range files {
		r.bytes += files[i].bytes
	}
	r.makeRoom(&file{})
}

// list returns the recorded turns in a directory, oldest first.
func list(dir string) ([]file, error) {
	pods, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var out []file
	for _, p := range pods {
		turns, err := os.ReadDir(filepath.Join(dir, p.Name()))
		if err != nil {
			continue // it is not a directory, or it is gone
		}
		for _, t := range turns {
			info, err := t.Info()
			if err != nil || !info.Mode().IsRegular() || !strings.HasSuffix(t.Name(), ".json") {
				continue
			}
			out = append(out, file{p.Name(), t.Name(), info.Size()})
		}
	}
	inorder.Sort(out, func(a, b file) int { return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.pod, b.pod)) })
	return out, nil
}

// Recorded is one recorded turn.
type Recorded struct {
	Path string
	At   time.Time // when the turn was taken
	Turn *replay.Turn
	// Err is why the file cannot be read; then Turn is nil.
	Err error
}

// Read returns the recorded turns below the root directory of an agent, oldest first. It returns the turns of the pod with this
// namespace and name, of all pods of the namespace if name is empty, or of all pods if both are empty. The agent need not run.
func Read(root, namespace, name string) ([]Recorded, error) {
	dir := filepath.Join(root, DirName)
	files, err := list(dir)
	if err != nil {
		return nil, fmt.Errorf("list recorded turns: %w", err)
	}
	prefix := ""
	switch {
	case name != "":
		prefix = podPrefix(namespace, name)
	case namespace != "":
		prefix = dirPart(namespace) + "_"
	}
	var out []Recorded
	for _, f := range files {
		if !strings.HasPrefix(f.pod, prefix) {
			continue
		}
		rec := Recorded{Path: filepath.Join(dir, f.pod, f.name)}
		rec.At, _ = time.Parse(stamp, strings.TrimSuffix(f.name, ".json"))
		if f.bytes > maxTurnBytes {
			rec.Err = fmt.Errorf("%s: the file has more than %d bytes", rec.Path, maxTurnBytes)
		} else {
			var data []byte
			if data, rec.Err = os.ReadFile(rec.Path); rec.Err == nil {
				rec.Turn, rec.Err = replay.Parse(rec.Path, data)
			}
		}
		if t := rec.Turn; t != nil && (name != "" && t.Name != name || namespace != "" && t.Namespace != namespace) {
			continue // another pod, whose name begins in the same way and is as long as the names of directories
		}
		out = append(out, rec)
	}
	return out, nil
}
