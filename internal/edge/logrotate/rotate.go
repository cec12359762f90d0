package logrotate

import (
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
	"sync/atomic"
	"time"

	"github.com/wherry-node/wherry/internal/base/hostfs"
	"github.com/wherry-node/wherry/internal/base/rounds"
	"github.com/wherry-node/wherry/internal/core/crispec"
)

// Container is a running container and the file that the runtime writes its log to.
type Container struct {
	ID   string
	Path string
}

// Limits are the fields of Config that SetLimits can change. Config describes them.
type Limits struct {
	MaxSize  int64
	MaxFiles int
	Workers  int
	Interval time.Duration
}

// Config configures a Rotator.
type Config struct {
	// MaxSize is the size in bytes above which a log is rotated; 0 or less: no log is rotated.
	MaxSize int64
	// MaxFiles is the maximum number of files of a container's log, including the current one; at least 2.
	MaxFiles int
	// Workers is how many logs are rotated at the same time.
	Workers int
	// Interval is the time between two rounds.
	Interval time.Duration
	// Running returns the running containers. It is called once per round.
	Running func() []Container
	// Reopen makes the runtime start a new log file at the path of a container's log. It may be called concurrently.
	Reopen func(ctx context.Context, id string) error
	Log    *slog.Logger
}

// Limits returns the fields that SetLimits changes.
func (c *Config) Limits() Limits { return Limits{c.MaxSize, c.MaxFiles, c.Workers, c.Interval} }

// Rotator rotates the logs of one node. Create it with New, then Run it.
type Rotator struct {
	cfg     Config
	now     func() time.Time
	longest time.Duration          // how long the compression of one file may take
	limits  atomic.Pointer[Limits] // never modified; SetLimits stores new ones
	rounds  *rounds.Rounds

	// olds has, by the path of the current log, the rotated files of running containers' logs that the compressor has to know. Only the
	// round that runs uses it.
	olds map[string]*olds
}

// olds are rotated files of one log, by name.
type olds struct {
	todo []string // will be compressed, oldest first
	left []string // stay as they are, because their compression would cost or has cost too much
}

// New returns a Rotator; it starts nothing.
func New(cfg Config) *Rotator {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	r := &Rotator{cfg: cfg, now: time.Now, longest: compressFor, olds: map[string]*olds{}}
	r.rounds = rounds.New(r.round)
	r.store(cfg.Limits())
	return r
}

func (r *Rotator) store(l Limits) {
	l.MaxFiles, l.Workers = max(l.MaxFiles, 2), max(l.Workers, 1)
	r.limits.Store(&l)
}

// SetLimits replaces the limits and begins a round. It does not block.
func (r *Rotator) SetLimits(l Limits) {
	r.store(l)
	r.rounds.Wake()
}

// Begin checks all logs at once, and then once per interval, until ctx ends. It returns immediately; join waits until all work has
// ended.
func (r *Rotator) Begin(ctx context.Context) (join func()) { return r.rounds.Begin(ctx) }

// Run does the same as Begin, but blocks until ctx has ended and all work has stopped. It returns nil.
func (r *Rotator) Run(ctx context.Context) error { return rounds.Until(ctx, r.Begin) }

// round checks all logs, and returns the time until the next check.
func (r *Rotator) round(ctx context.Context) time.Duration {
	l := r.limits.Load()
	if l.MaxSize <= 0 {
		return rounds.Never // SetLimits starts the next round
	}
	began := time.Now()
	r.Round(ctx)
	return max(0, l.Interval-time.Since(began))
}

// Round checks all logs once and rotates those that are due. Then it compresses older files, until the next round is due. A later round
// compresses the rest. Round must not be called concurrently.
func (r *Rotator) Round(ctx context.Context) {
	began := time.Now()
	var due []Container
	known := r.olds
	r.olds = map[string]*olds{} // forgets the logs of containers that have ended
	for _, c := range r.cfg.Running() {
		o := known[c.Path]
		if c.Path != "" && r.due(c.Path) {
			due = append(due, c)
			if o == nil {
				o = &olds{}
			}
		}
		if o != nil {
			r.olds[c.Path] = o
		}
	}
	parallel(ctx, r.limits.Load().Workers, due, func(c Container) {
		if err := r.tend(ctx, c, r.olds[c.Path]); err != nil && ctx.Err() == nil {
			r.cfg.Log.Error("container log not rotated, will try again", "container", c.ID, "log", c.Path, "err", err)
		}
	})
	r.compressAll(ctx, began)
}

// parallel calls f for each element of the list, for as many at a time as there are workers, until ctx ends.
func parallel[T any](ctx context.Context, workers int, list []T, f func(T)) {
	places := make(chan struct{}, workers)
	var wg sync.WaitGroup
	for _, one := range list {
		if ctx.Err() != nil {
			break
		}
		places <- struct{}{}
		wg.Go(func() {
			defer func() { <-places }()
			f(one)
		})
	}
	wg.Wait()
}

// due reports whether a log has to be rotated or is missing.
func (r *Rotator) due(path string) bool {
	info, err := os.Lstat(path)
	if err != nil {
		return errors.Is(err, fs.ErrNotExist)
	}
	return info.Mode().IsRegular() && info.Size() >= r.limits.Load().MaxSize
}

// tend cleans up the rotated files of one log and rotates the log if it is due. It writes to o which files to compress.
func (r *Rotator) tend(ctx context.Context, c Container, o *olds) error {
	if _, err := os.Lstat(c.Path); errors.Is(err, fs.ErrNotExist) {
		return r.mend(ctx, c)
	}
	dir, err := hostfs.OpenUntrustedDir(filepath.Dir(c.Path), crispec.LogDepth-1)
	if err != nil {
		return fmt.Errorf("open log directory: %w", err)
	}
	defer dir.Close()
	newest, err := r.tidy(dir, filepath.Base(c.Path), o)
	return errors.Join(err, r.rotate(ctx, dir, c, newest))
}

// mend makes the runtime reopen a log that is missing, because a rotation failed or was interrupted after the rename.
func (r *Rotator) mend(ctx context.Context, c Container) error {
	if _, err := os.Lstat(filepath.Dir(c.Path)); err != nil {
		return nil // the pod is being removed
	}
	if err := r.cfg.Reopen(ctx, c.ID); err != nil {
		return err
	}
	r.cfg.Log.Info("missing container log reopened", "container", c.ID, "log", c.Path)
	return nil
}

// tidy makes room for one more rotated file: it removes the remains of interrupted compressions and the oldest files. It writes to o which
// of the others have to be compressed, and returns the newest file; "": there is none.
func (r *Rotator) tidy(dir *hostfs.UntrustedDir, log string, o *olds) (newest string, err error) {
	old, err := rotated(dir, log)
	if err != nil {
		return "", err
	}
	if len(old) > 0 {
		newest = old[len(old)-1]
	}
	if n := len(old) - (r.limits.Load().MaxFiles - 2); n > 0 { // keep room for two more files that MaxFiles counts: the current log, which is rotated next, and the new log
		for _, f := range old[:n] {
			if err := remove(dir, f); err != nil {
				return newest, err
			}
		}
		old = old[n:]
	}
	o.left = slices.DeleteFunc(o.left, func(f string) bool { return !slices.Contains(old, f) })
	o.todo = slices.DeleteFunc(old, func(f string) bool { return strings.HasSuffix(f, compressed) || slices.Contains(o.left, f) })
	return newest, nil
}

const (
	compressed = ".gz"
	unfinished = ".tmp"
	// stamp is the format of a rotation's time, as in Kubernetes.
	stamp = "20060102-150405"
	// maxRotated bounds the names of rotated files in memory. containerLogMaxFiles is far below it.
	maxRotated = 10_000
)

// rotated returns the rotated files of a log, oldest first and without duplicates, and removes leftover files.
func rotated(dir *hostfs.UntrustedDir, log string) ([]string, error) {
	var found []string
	err := dir.Each(func(e fs.DirEntry) error {
		name := e.Name()
		rest, ok := strings.CutPrefix(name, log+".")
		if !ok || !e.Type().IsRegular() {
			return nil
		}
		if strings.HasSuffix(name, unfinished) {
			return remove(dir, name)
		}
		if _, err := time.Parse(stamp, strings.TrimSuffix(rest, compressed)); err == nil {
			found = append(found, name)
		}
		if len(found) > maxRotated {
			return fmt.Errorf("more than %d files look like rotated files of %s: remove them", maxRotated, log)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read log directory: %w", err)
	}
	slices.Sort(found)
	return slices.DeleteFunc(found, func(f string) bool {
		if !slices.Contains(found, f+compressed) {
			return false
		}
		err := remove(dir, f) // a crash prevented the removal after the compression
		return err == nil
	}), nil
}

// nextName returns the name of the next rotated file of a log: the time, but if the clock was set back, as when summer time ends, the second after that of the
// newest file. The names order the files, and the first is removed first: with an earlier name that would be the file with the newest lines. A name that no
// clock can have given has no effect.
func (r *Rotator) nextName(log, newest string) string {
	const farthest = 366 * 24 * time.Hour
	now := r.now().Format(stamp)
	last := strings.TrimSuffix(strings.TrimPrefix(newest, log+"."), compressed)
	at, _ := time.Parse(stamp, now)
	if before, err := time.Parse(stamp, last); err == nil && before.After(at) && before.Sub(at) < farthest {
		now = before.Add(time.Second).Format(stamp)
	}
	return log + "." + now
}

// rotate renames a log and makes the runtime start a new one. newest is its newest rotated file, or "".
func (r *Rotator) rotate(ctx context.Context, dir *hostfs.UntrustedDir, c Container, newest string) error {
	log := filepath.Base(c.Path)
	to := r.nextName(log, newest)
	for _, taken := range []string{to, to + compressed} {
		if _, err := dir.Lstat(taken); err == nil {
			return nil // a file of this name exists, after a rotation in the same second; the next round uses another name
		}
	}
	if err := dir.Rename(log, to); err != nil {
		return fmt.Errorf("rename log: %w", err)
	}
	if err := r.cfg.Reopen(ctx, c.ID); err != nil {
		// The runtime continues to write to the renamed file. Restore its name, unless there is a new file. A hard link, unlike
		// a rename, replaces no file.
		if lerr := dir.Link(to, log); lerr == nil {
			return errors.Join(err, remove(dir, to))
		}
		return err
	}
	r.cfg.Log.Debug("rotated container log", "container", c.ID, "log", c.Path, "to", to)
	return nil
}

func remove(dir *hostfs.UntrustedDir, name string) error {
	if err := dir.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove rotated log: %w", err)
	}
	return nil
}
