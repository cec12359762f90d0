package volume

import (
	"context"
	"fmt"
	"sync"
)

// inflight makes system calls that may wait for ever, because a disk does not answer. Nothing can end such a call, and each one holds a thread of the
// process, of which there is a limit. So at most one call with the same key waits. The zero value is ready.
type inflight struct {
	mu    sync.Mutex
	calls map[string]*systemCall
}

type systemCall struct {
	done chan struct{} // closed when the call has ended
	err  error         // set before that
}

// do makes a system call and returns its error. If ctx ends first, do returns at once, and the call goes on. If an earlier call with this key goes on, do
// waits for the result of that call instead.
func (f *inflight) do(ctx context.Context, key string, call func() error) error {
	f.mu.Lock()
	one := f.calls[key]
	if one == nil {
		one = &systemCall{done: make(chan struct{})}
		if f.calls == nil {
			f.calls = map[string]*systemCall{}
		}
		f.calls[key] = one
		go func() {
			one.err = call()
			f.mu.Lock()
			delete(f.calls, key)
			f.mu.Unlock()
			close(one.done)
		}()
	}
	f.mu.Unlock()
	select {
	case <-one.done:
		return one.err
	case <-ctx.Done():
		return fmt.Errorf("the kernel has not finished in time: %w", ctx.Err())
	}
}
