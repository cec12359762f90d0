package oom

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"syscall"
	"time"
)

// Config configures Run.
type Config struct {
	// Open opens the kernel's log after its newest record. Each Read returns one record. nil: Run opens /dev/kmsg.
	Open func() (io.ReadCloser, error)
	// OnKill gets each kill, in order. It must not block.
	OnKill func(Kill)
	Log    *slog.Logger
}

const (
	recordMost = 8 << 10         // CONSOLE_EXT_LOG_MAX: the kernel's longest record
	tryAgain   = 5 * time.Minute // time between two attempts to read a log that cannot be read
)

// Run reads the kernel's log until ctx ends. If the log cannot be read, Run writes one line to the agent's log and tries again; the node
// stays healthy.
func Run(ctx context.Context, cfg Config) error {
	if cfg.Open == nil {
		cfg.Open = openKmsg
	}
	said := false
	for {
		err := read(ctx, &cfg)
		if ctx.Err() != nil {
			return nil
		}
		if !said {
			cfg.Log.Warn("the kernel's log cannot be read: processes that the kernel kills when memory runs out are not reported as events; trying again", "err", err, "every", tryAgain)
			said = true
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(tryAgain):
		}
	}
}

// openKmsg opens /dev/kmsg and skips the records that are already in it. The file is non-blocking, so that Close ends a Read.
func openKmsg() (io.ReadCloser, error) {
	f, err := os.OpenFile("/dev/kmsg", os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	if _, err := f.Seek(0, io.SeekEnd); err != nil {
		_ = f.Close() // nothing was written, so the error does not matter
		return nil, err
	}
	return f, nil
}

// read reports kills until ctx ends or the log cannot be read any more.
func read(ctx context.Context, cfg *Config) error {
	log, err := cfg.Open()
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = log.Close() })()
	defer log.Close()
	var (
		lines  parser
		record [recordMost]byte
	)
	for {
		n, err := log.Read(record[:])
		switch {
		case err == nil:
			if k, ok := lines.line(string(record[:n])); ok {
				cfg.OnKill(k)
			}
		case errors.Is(err, syscall.EPIPE): // the kernel has overwritten records; the next Read returns the oldest record that is left
		case errors.Is(err, syscall.EINVAL): // the record is too long for the buffer, so it does not report a kill; Read has skipped it
		default:
			return fmt.Errorf("read the kernel's log: %w", err)
		}
	}
}
