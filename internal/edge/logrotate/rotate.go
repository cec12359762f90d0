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
	cfg    Config
	now    func() time.Time
	limits atomic.Pointer[Limits] // never modified; SetLimits stores new ones
	rounds *rounds.Rounds
}

// New returns a Rotator; it starts nothing.
func New(cfg Config) *Rotator {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	r := &Rotator{cfg: cfg, now: time.Now}
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

// Round checks all logs once and rotates those that are due.
func (r *Rotator) Round(ctx context.Context) {
	var due []Container
	for _, c := range r.cfg.Running() {
		if c.Path != "" && r.due(c.Path) {
			due = append(due, c)
		}
	}
	places := make(chan struct{}, r.limits.Load().Workers)
	var wg sync.WaitGroup
	for _, c := range due {
		if ctx.Err() != nil {
			break
		}
		places <- struct{}{}
		wg.Go(func() {
			defer func() { <-places }()
			if err := r.tend(ctx, c); err != nil && ctx.Err() == nil {
				r.cfg.Log.Error("container log not rotated, will try again", "container", c.ID, "log", c.Path, "err", err)
			}
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

// tend cleans up the rotated files of one log and rotates the log if it is due.
func (r *Rotator) tend(ctx context.Context, c Container) error {
	if _, err := os.Lstat(c.Path); errors.Is(err, fs.ErrNotExist) {
		return r.mend(ctx, c)
	}
	dir, err := hostfs.OpenUntrustedDir(filepath.Dir(c.Path), crispec.LogDepth-1)
	if err != nil {
		return fmt.Errorf("open log directory: %w", err)
	}
	defer dir.Close()
	// Rotate the log even if tidy could not compress older files, for example because the disk is full. tidy first removes the oldest
	// files, so the number of files stays bounded.
	tidied := r.tidy(ctx, dir, filepath.Base(c.Path))
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return errors.Join(tidied, r.rotate(ctx, dir, c))
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

// tidy makes room for one more rotated file. It removes the remains of interrupted compressions and the oldest files, and
// compresses the files of earlier rotations.
func (r *Rotator) tidy(ctx context.Context, dir *hostfs.UntrustedDir, log string) error {
	old, err := rotated(dir, log)
	if err != nil {
		return err
	}
	if n := len(old) - (r.limits.Load().MaxFiles - 2); n > 0 { // keep room for two more files that MaxFiles counts: the current log, which is rotated next, and the new log
		for _, f := range old[:n] {
			if err := remove(dir, f); err != nil {
				return err
			}
		}
		old = old[n:]
	}
	var errs []error
	for _, f := range old {
		if !strings.HasSuffix(f, compressed) {
			errs = append(errs, compress(ctx, dir, f))
		}
	}
	return errors.Join(errs...)
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

// rotate renames a log and makes the runtime start a new one.
func (r *Rotator) rotate(ctx context.Context, dir *hostfs.UntrustedDir, c Container) error {
	log := filepath.Base(c.Path)
	to := log + "." + r.now().Format(stamp)
	for _, taken := range []string{to, to + compressed} {
		if _, err := dir.Lstat(taken); err == nil {
			return nil // a file of this name exists, after a rotation in the same second or because the clock was set back; the next round uses another name
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
