package oom

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// kernelLog is a log of which each Read returns one record or one error.
type kernelLog struct {
	records chan any
	closed  chan struct{}
}

func newLog(records ...any) *kernelLog {
	l := &kernelLog{records: make(chan any, len(records)), closed: make(chan struct{})}
	for _, r := range records {
		l.records <- r
	}
	return l
}

func (l *kernelLog) Read(b []byte) (int, error) {
	select {
	case r := <-l.records:
		if err, ok := r.(error); ok {
			return 0, err
		}
		return copy(b, r.(string)), nil
	case <-l.closed:
		return 0, io.ErrClosedPipe
	}
}

func (l *kernelLog) Close() error {
	select {
	case <-l.closed:
	default:
		close(l.closed)
	}
	return nil
}

func TestRunContinuesAfterLostAndLongRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		log := newLog(limitOf, syscall.EPIPE, limit, syscall.EINVAL, system)
		var got []int
		go func() {
			_ = Run(ctx, Config{Open: func() (io.ReadCloser, error) { return log, nil }, OnKill: func(k Kill) { got = append(got, k.PID) }, Log: slog.New(slog.DiscardHandler)})
		}()
		synctest.Wait()
		if len(got) != 2 || got[0] != 4242 || got[1] != 77 {
			t.Errorf("kills of processes %v, want 4242 and 77", got)
		}
	})
}

func TestALogThatCannotBeReadIsLoggedOnceAndTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var (
			said  strings.Builder
			opens int
			pids  []int
		)
		open := func() (io.ReadCloser, error) {
			switch opens++; opens {
			case 1:
				return nil, syscall.EPERM
			case 2:
				return newLog(errors.New("input/output error")), nil
			}
			return newLog(system), nil
		}
		go func() {
			_ = Run(ctx, Config{Open: open, OnKill: func(k Kill) { pids = append(pids, k.PID) }, Log: slog.New(slog.NewTextHandler(&said, nil))})
		}()
		time.Sleep(3 * tryAgain)
		synctest.Wait()
		if n := strings.Count(said.String(), "level=WARN"); n != 1 || !strings.Contains(said.String(), "operation not permitted") {
			t.Errorf("%d lines, want one with the first error: %s", n, said.String())
		}
		if len(pids) != 1 {
			t.Errorf("kills of processes %v after the log could be read, want one", pids)
		}
	})
}
