package volume

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wherry-node/wherry/internal/core/pod"
)

// answersWithin is how long the file system of a path on the node may take to answer before the work on a pod gives up, to try again later. Without a bound a pod
// with a hostPath, a local volume or a subPath on a dead disk or file server could not be deleted: its end waits for the work in flight.
const answersWithin = 30 * time.Second

// touch returns an error if the file system of a path that an administrator or a pod has named does not answer in time. What it says otherwise does not matter.
func (v *Volumes) touch(ctx context.Context, path string) error {
	return v.answers(ctx, "path/"+path, func() {
		if v.stat != nil {
			v.stat(path)
			return
		}
		_, _ = os.Stat(path)
	})
}

// deadWithin is how long a file system may take to say that it is dead.
const deadWithin = 5 * time.Second

// ofDead lists the errors with which every call to a dead file system fails.
var ofDead = []error{unix.ENOTCONN, unix.ESTALE, unix.EIO, unix.EHOSTDOWN}

// dead reports whether the file system that is mounted on a path fails every call, as one in user space does whose process has ended. A file system that
// does not answer at all is not known to be dead.
func (v *Volumes) dead(ctx context.Context, path string) bool {
	ctx, cancel := context.WithTimeout(ctx, deadWithin)
	defer cancel()
	err := v.paths.do(ctx, "dead/"+path, func() error {
		_, err := os.Lstat(path)
		return err
	})
	return slices.ContainsFunc(ofDead, func(e error) bool { return errors.Is(err, e) })
}

// answers makes a call to a file system, and returns an error if the call takes longer than answersWithin. The call goes on then, and a later one with the same key
// waits for its end.
func (v *Volumes) answers(ctx context.Context, key string, call func()) error {
	waiting, cancel := context.WithTimeout(ctx, answersWithin)
	defer cancel()
	err := v.paths.do(waiting, key, func() error {
		call()
		return nil
	})
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, context.DeadlineExceeded):
		return &pod.Lacking{What: pod.LackMount, Err: fmt.Errorf("the file system has not answered for %s: see whether its disk or its server works", answersWithin)}
	}
	return err
}
