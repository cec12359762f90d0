package crilog

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wherry-node/wherry/internal/base/hostfs"
	"github.com/wherry-node/wherry/internal/core/crispec"
)

// Options selects what to read. Its fields are those of PodLogOptions that concern the content of the log file.
type Options struct {
	// Tail is the number of lines from the end; nil: all. "If not specified, logs are shown from the creation
	// of the container or sinceSeconds or sinceTime."
	Tail *int64
	// Limit is the number of written bytes, timestamps included, after which Read stops; nil: no limit.
	Limit *int64
	// Since drops the lines that were written before this time; zero: no line is dropped.
	Since time.Time
	// Stream selects the output of the container to read; "" means All.
	Stream Stream
	// Timestamps puts the time (RFC 3339 with nine decimals) and a space before every line.
	Timestamps bool
	// Running makes Read follow: Read calls it at each end of the file, never concurrently. When it has returned false, Read
	// reads the rest of the file and ends. nil: do not follow.
	Running func() bool
	// Flush is called before Read waits and when it ends, to pass on the written output; it may be nil.
	Flush func()
}

// The waits of a follower at the end of a file, and the format of Options.Timestamps.
const (
	pollMin    = 20 * time.Millisecond
	pollMax    = 500 * time.Millisecond
	turnMax    = 5 * time.Second // how long the runtime may take to close a rotated file
	timeFormat = "2006-01-02T15:04:05.000000000Z07:00"
)

// errLimit ends a read whose limit of bytes is reached.
var errLimit = errors.New("limit reached")

// Read writes the log at path to w. If path does not exist, the error is fs.ErrNotExist; but if Read follows, it waits for the
// file while the container runs. If ctx ends while Read follows, Read returns the error of ctx.
func Read(ctx context.Context, path string, o Options, w io.Writer) error {
	r := &reader{path: path, opts: o, out: bufio.NewWriterSize(w, 32<<10), left: math.MaxInt64}
	if o.Limit != nil {
		r.left = *o.Limit
	}
	defer r.close()
	err := r.run(ctx)
	if errors.Is(err, errLimit) {
		err = nil
	}
	if ferr := r.flush(); err == nil {
		err = ferr
	}
	if err == nil && r.lines == 0 && r.strange > 0 {
		return fmt.Errorf("read log %s: none of its %d lines is in the CRI log format", path, r.strange)
	}
	return err
}

// reader is the state of one call of Read.
type reader struct {
	path string
	opts Options
	out  *bufio.Writer
	file *os.File
	left int64 // bytes that may still be written

	turned time.Time // when a newer file was first seen at the path of the open file; zero: never

	buf        []byte // the bytes that were read and not yet written are buf[start:end]
	start, end int

	inside  bool // the head of the line at start has been parsed, and content follows
	skip    bool // the line at start is dropped: Options do not select it, or it is not in the format
	partial bool // the piece at start does not end a line of the container's output
	midline bool // the last piece that was written did not end a line of the output

	lines, strange int64
}

func (r *reader) run(ctx context.Context) error {
	if err := r.open(ctx); err != nil {
		return err
	}
	if r.left <= 0 {
		return nil
	}
	if err := r.seek(ctx); err != nil {
		return err
	}
	r.buf = make([]byte, block)
	wait := pollMin
	for {
		n, err := r.drain(ctx)
		if err != nil {
			return err
		}
		if r.opts.Running == nil {
			return r.finish()
		}
		// Running is called before the check for more content, so that Read returns everything that the container wrote before its
		// end.
		running := r.opts.Running()
		more, err := r.again(ctx)
		if err != nil {
			return err
		}
		if more {
			wait = pollMin
			continue
		}
		if !running && r.turned.IsZero() { // if turned is set, a newer file is still to be read
			return r.finish()
		}
		if wait = min(wait*3/2, pollMax); n > 0 {
			wait = pollMin
		}
		if err := r.wait(ctx, wait); err != nil {
			return err
		}
	}
}

// open opens the log; a follower waits for it while the container runs, because the runtime may create it later.
func (r *reader) open(ctx context.Context) error {
	for {
		f, err := hostfs.OpenUntrusted(r.path, crispec.LogDepth)
		if err == nil {
			r.file = f
			return nil
		}
		if !errors.Is(err, fs.ErrNotExist) || r.opts.Running == nil || !r.opts.Running() {
			return fmt.Errorf("open log: %w", err)
		}
		if err := r.wait(ctx, pollMin*5); err != nil {
			return err
		}
	}
}

// seek moves to the offset in the file where the last Options.Tail lines begin.
func (r *reader) seek(ctx context.Context) error {
	if r.opts.Tail == nil {
		return nil
	}
	st, err := r.file.Stat()
	if err != nil {
		return fmt.Errorf("read log: %w", err)
	}
	at, err := tailOffset(ctx, r.file, st.Size(), &r.opts)
	if err != nil {
		return err
	}
	if _, err := r.file.Seek(at, io.SeekStart); err != nil {
		return fmt.Errorf("read log: %w", err)
	}
	return nil
}

// drain writes what the file has, up to its end, and returns how many bytes it read.
func (r *reader) drain(ctx context.Context) (total int64, err error) {
	for {
		if err := ctx.Err(); err != nil {
			return total, err
		}
		n, err := r.file.Read(r.buf[r.end:])
		r.end += n
		total += int64(n)
		if werr := r.consume(); werr != nil {
			return total, werr
		}
		if err == io.EOF || (err == nil && n == 0) {
			return total, nil
		}
		if err != nil {
			return total, fmt.Errorf("read log: %w", err)
		}
	}
}

// again is called at the end of the open file. It returns true if there is more to read, because the file has grown, was truncated,
// or was replaced by a new file.
func (r *reader) again(ctx context.Context) (bool, error) {
	held, err := r.file.Stat()
	if err != nil {
		return false, fmt.Errorf("read log: %w", err)
	}
	at, err := r.file.Seek(0, io.SeekCurrent)
	if err != nil {
		return false, fmt.Errorf("read log: %w", err)
	}
	named, err := os.Lstat(r.path)
	if err != nil || os.SameFile(held, named) {
		r.turned = time.Time{}
		// There is no newer file at the path, so the runtime still writes to the file that this reader has open. A smaller size means
		// that the file was truncated.
		if held.Size() < at {
			r.restart()
			_, err = r.file.Seek(0, io.SeekStart)
			return true, err
		}
		return held.Size() > at, nil
	}
	if r.turned.IsZero() {
		r.turned = time.Now()
	}
	if r.written() && time.Since(r.turned) < turnMax {
		return false, nil
	}
	return r.turn(ctx)
}

// written reports whether anybody has the reader's file open for writing. At a rotation a runtime creates the new file, writes the
// buffered output to the old file, and then closes the old file. The kernel grants a read lease only on a file that nobody has open
// for writing (fcntl(2), F_SETLEASE). If the kernel grants no leases at all, the file counts as written to for half a second.
func (r *reader) written() bool {
	_, err := unix.FcntlInt(r.file.Fd(), unix.F_SETLEASE, unix.F_RDLCK)
	if err == nil {
		_, _ = unix.FcntlInt(r.file.Fd(), unix.F_SETLEASE, unix.F_UNLCK)
		return false
	}
	return errors.Is(err, unix.EAGAIN) || time.Since(r.turned) < pollMax
}

// turn switches to the new file at the path of the log, after the open file is complete and has been read to its end. It returns
// false if there is no new file yet.
func (r *reader) turn(ctx context.Context) (bool, error) {
	f, err := hostfs.OpenUntrusted(r.path, crispec.LogDepth)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil // the log was rotated once more; the next call of again finds the newest file
	}
	if err != nil {
		return false, fmt.Errorf("open log: %w", err)
	}
	if _, err := r.drain(ctx); err != nil {
		_ = f.Close()
		return false, err
	}
	if err := r.finish(); err != nil {
		_ = f.Close()
		return false, err
	}
	_ = r.file.Close()
	r.file, r.turned = f, time.Time{}
	r.restart()
	return true, nil
}

// restart drops the line that was being read.
func (r *reader) restart() { r.start, r.end, r.inside, r.skip = 0, 0, false, false }

// finish writes a last line that has no newline.
func (r *reader) finish() error {
	if r.start == r.end {
		return nil
	}
	err := r.piece(r.buf[r.start:r.end])
	r.start, r.end = 0, 0
	return err
}

// consume writes every complete line of the buffer. If a line is longer than the buffer, it writes the part in the buffer.
func (r *reader) consume() error {
	for r.start < r.end {
		data := r.buf[r.start:r.end]
		i := bytes.IndexByte(data, '\n')
		if i < 0 && len(data) < len(r.buf) {
			break
		}
		if i >= 0 {
			data = data[:i+1]
		}
		r.start += len(data)
		if err := r.piece(data); err != nil {
			return err
		}
	}
	r.end = copy(r.buf, r.buf[r.start:r.end])
	r.start = 0
	return nil
}

// piece writes a line, or a part of a long one.
func (r *reader) piece(data []byte) error {
	content, ends := data, data[len(data)-1] == '\n'
	if !r.inside {
		h, c, ok := parseHead(data)
		if !ok {
			r.strange++
		} else {
			r.lines++
		}
		r.skip = !ok || !r.opts.wants(h.stream) || h.at.Before(r.opts.Since)
		r.partial, content = h.partial, c
		if !r.skip && r.opts.Timestamps && !r.midline {
			if err := r.write(append(h.at.AppendFormat(make([]byte, 0, len(timeFormat)+1), timeFormat), ' ')); err != nil {
				return err
			}
		}
	}
	r.inside = !ends
	if r.skip {
		return nil
	}
	if ends && r.partial {
		content = content[:len(content)-1]
	}
	r.midline = !ends || r.partial
	return r.write(content)
}

func (r *reader) write(b []byte) error {
	cut := int64(len(b)) >= r.left
	if cut {
		b = b[:r.left]
	}
	r.left -= int64(len(b))
	if _, err := r.out.Write(b); err != nil {
		return fmt.Errorf("write log: %w", err)
	}
	if cut {
		return errLimit
	}
	return nil
}

func (r *reader) flush() error {
	if err := r.out.Flush(); err != nil {
		return fmt.Errorf("write log: %w", err)
	}
	if r.opts.Flush != nil {
		r.opts.Flush()
	}
	return nil
}

// wait flushes the written output and waits at the end of the file.
func (r *reader) wait(ctx context.Context, d time.Duration) error {
	if err := r.flush(); err != nil {
		return err
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

func (r *reader) close() {
	if r.file != nil {
		_ = r.file.Close()
	}
}
