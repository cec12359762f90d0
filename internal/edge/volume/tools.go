package volume

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/wherry-node/wherry/internal/base/hostfs"
	"github.com/wherry-node/wherry/internal/core/pod"
)

// Tools runs the mount tools of the machine.
type Tools interface {
	// RunTool runs a program until it ends or ctx ends. The error is nil if the program ended with exit code 0; otherwise it contains the
	// program's own message.
	RunTool(ctx context.Context, argv []string) (hostfs.Ran, error)
}

const (
	// mountWithin is how long a mount of a network file system may take. It is longer than the two minutes for which mount.nfs tries, so
	// that mount.nfs can say what is wrong.
	mountWithin = 125 * time.Second
	// unmountWithin is how long an unmount may take before it is forced, and how long the forced one may take.
	unmountWithin = time.Minute
)

// hangs has the tools that could not be killed, by the directory on which they work. As long as such a tool runs, no other one is started for
// this directory, so that processes do not pile up.
type hangs struct {
	mu    sync.Mutex
	tools map[string]hang
}

type hang struct {
	program string
	since   time.Time
	ended   <-chan struct{}
}

// runTool runs a tool on a directory for at most the time within.
func (v *Volumes) runTool(ctx context.Context, dir string, within time.Duration, argv ...string) (hostfs.Ran, error) {
	if err := v.hangs.check(dir); err != nil {
		return hostfs.Ran{Code: -1}, err
	}
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	ran, err := v.cfg.Host.RunTool(ctx, argv)
	if ran.Ended != nil {
		v.hangs.add(dir, hang{argv[0], began, ran.Ended})
		v.cfg.Log.Warn("a mount tool hangs in the kernel", "program", argv[0], "dir", dir, "err", err)
	}
	// mount.nfs says "Connection timed out" when it gives up after two minutes.
	if err != nil && (ran.Ended != nil || errors.Is(err, context.DeadlineExceeded) || strings.Contains(err.Error(), "timed out")) {
		err = &pod.Lacking{What: pod.LackMount, Err: err}
	}
	return ran, err
}

func (h *hangs) add(dir string, one hang) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.tools == nil {
		h.tools = map[string]hang{}
	}
	h.tools[dir] = one
}

// check returns an error if a tool still works on a directory.
func (h *hangs) check(dir string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	one, ok := h.tools[dir]
	if !ok {
		return nil
	}
	select {
	case <-one.ended:
		delete(h.tools, dir)
		return nil
	default:
		return &pod.Lacking{What: pod.LackMount, Err: fmt.Errorf("%s has hung in the kernel since %s: see whether the server of the volume answers",
			one.program, one.since.UTC().Format(time.RFC3339))}
	}
}

// together calls do for all elements at once, and returns all errors.
func together[T any](all []T, do func(T) error) error {
	errs := make([]error, len(all))
	var wg sync.WaitGroup
	for i, one := range all {
		wg.Go(func() { errs[i] = do(one) })
	}
	wg.Wait()
	if errs = slices.DeleteFunc(errs, func(err error) bool { return err == nil }); len(errs) > 0 {
		return several(errs)
	}
	return nil
}
