package logrotate

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wherry-node/wherry/internal/base/hostfs"
	"github.com/wherry-node/wherry/internal/core/crispec"
)

// A container that can write to its log directory can make files that look like rotated ones. These constants bound what their compression
// costs.
const (
	// compressFor bounds the time for one file.
	compressFor = 2 * time.Minute
	// slack and factor bound the size: a file is not compressed if it is larger than factor times MaxSize plus slack. A real log is larger
	// than MaxSize only by what the container writes between two rounds.
	slack  = 64 << 20
	factor = 4
)

// errCostly means that the compression of a file costs too much. The file stays as it is.
var errCostly = errors.New("its compression costs too much")

// costly reports whether a file of this size is too large to be compressed.
func costly(size, maxSize int64) bool { return (size-slack)/factor > maxSize }

// compressAll compresses the rotated files of all logs. It begins no further file when the next round is due, but in each round at least one.
func (r *Rotator) compressAll(ctx context.Context, began time.Time) {
	limits := r.limits.Load()
	var logs []string
	for log, o := range r.olds {
		if len(o.todo) > 0 {
			logs = append(logs, log)
		}
	}
	var some atomic.Bool // a compression of this round has begun
	parallel(ctx, limits.Workers, logs, func(log string) {
		for o := r.olds[log]; len(o.todo) > 0 && ctx.Err() == nil; o.todo = o.todo[1:] {
			if some.Swap(true) && time.Since(began) >= limits.Interval {
				return
			}
			r.press(ctx, log, o)
		}
	})
	for log, o := range r.olds {
		if len(o.todo)+len(o.left) == 0 {
			delete(r.olds, log)
		}
	}
}

// press compresses the first file of o.todo.
func (r *Rotator) press(ctx context.Context, log string, o *olds) {
	name := o.todo[0]
	limited, cancel := context.WithTimeout(ctx, r.longest)
	defer cancel()
	err := compressIn(limited, filepath.Dir(log), name, r.limits.Load().MaxSize)
	if limited.Err() != nil && err != nil {
		err = fmt.Errorf("%w: more than %v", errCostly, r.longest)
	}
	switch {
	case err == nil, ctx.Err() != nil, errors.Is(err, fs.ErrNotExist): // if the file or its directory is gone, there is nothing to do
	case errors.Is(err, errCostly):
		o.left = append(o.left, name)
		r.cfg.Log.Warn("rotated container log stays uncompressed", "log", log, "file", name, "err", err)
	default:
		r.cfg.Log.Error("rotated container log not compressed, will try again after the next rotation", "log", log, "file", name, "err", err)
	}
}

func compressIn(ctx context.Context, path, name string, maxSize int64) error {
	dir, err := hostfs.OpenUntrustedDir(path, crispec.LogDepth-1)
	if err != nil {
		return fmt.Errorf("open log directory: %w", err)
	}
	defer dir.Close()
	return compress(ctx, dir, name, maxSize)
}

// compress replaces a file of a log directory by its compressed form. After a failure the file is unchanged.
func compress(ctx context.Context, dir *hostfs.UntrustedDir, name string, maxSize int64) (err error) {
	in, err := dir.Open(name)
	if err != nil {
		return fmt.Errorf("open rotated log: %w", err)
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return fmt.Errorf("stat rotated log: %w", err)
	}
	if costly(info.Size(), maxSize) {
		return fmt.Errorf("%w: %d bytes", errCostly, info.Size())
	}
	tmp := name + compressed + unfinished
	out, err := dir.Create(tmp, info.Mode().Perm())
	if err != nil {
		return fmt.Errorf("make compressed log: %w", err)
	}
	defer func() {
		if err != nil {
			_ = out.Close()
			_ = dir.Remove(tmp)
		}
	}()
	z := gzip.NewWriter(out)
	switch n, err := io.Copy(z, io.LimitReader(&patient{ctx, in}, info.Size()+1)); {
	case err != nil:
		return fmt.Errorf("compress log: %w", err)
	case n > info.Size():
		return errors.New("compress log: somebody writes to it")
	}
	if err := z.Close(); err != nil {
		return fmt.Errorf("compress log: %w", err)
	}
	at := unix.NsecToTimeval(info.ModTime().UnixNano())
	if err := unix.Futimes(int(out.Fd()), []unix.Timeval{at, at}); err != nil {
		return fmt.Errorf("set the time of the compressed log: %w", err)
	}
	if err := out.Close(); err != nil {
		return fmt.Errorf("compress log: %w", err)
	}
	if err := dir.Rename(tmp, name+compressed); err != nil {
		return fmt.Errorf("name compressed log: %w", err)
	}
	return remove(dir, name)
}

// patient is a reader that fails when its context has ended.
type patient struct {
	ctx context.Context
	r   io.Reader
}

// Read returns an error when the context has ended.
func (p *patient) Read(b []byte) (int, error) {
	if err := p.ctx.Err(); err != nil {
		return 0, err
	}
	return p.r.Read(b)
}
