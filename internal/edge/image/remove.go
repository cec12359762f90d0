package image

import (
	"context"
	"errors"
	"slices"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/wherry-node/wherry/internal/core/pullaccess"
)

// removal is an image that is being removed.
type removal struct {
	img  *runtimeapi.Image
	done chan struct{} // closed when err is set, because the runtime has answered
	err  error
}

// isNamed reports whether a name from a pod's spec may refer to the image: as its ID, or as one of its tags or digests.
func isNamed(img *runtimeapi.Image, name string) bool {
	same := func(full string) bool { return pullaccess.SameImage(name, full) }
	return name == img.GetId() || slices.ContainsFunc(img.GetRepoTags(), same) || slices.ContainsFunc(img.GetRepoDigests(), same)
}

// Remove removes an image. If the image is being pulled, it stays, and removed is false. Remove blocks until the runtime has
// answered, or ctx ends. The runtime may continue after that, so a call of Ensure for the image always waits for the answer, but
// at most for Timeout.
func (m *Images) Remove(ctx context.Context, img *runtimeapi.Image) (removed bool, err error) {
	r := &removal{img: img, done: make(chan struct{})}
	m.mu.Lock()
	for key := range m.flights {
		if name, _, _ := strings.Cut(key, "\n"); isNamed(img, name) {
			m.mu.Unlock()
			return false, nil
		}
	}
	if slices.ContainsFunc(m.removing, func(o *removal) bool {
		return o.img.GetId() == img.GetId() && o.img.GetSpec().GetRuntimeHandler() == img.GetSpec().GetRuntimeHandler()
	}) {
		m.mu.Unlock()
		return false, errRemoving
	}
	m.removing = append(m.removing, r)
	m.mu.Unlock()
	go m.remove(context.WithoutCancel(ctx), r)
	select {
	case <-r.done:
		return r.err == nil, r.err
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

// errRemoving says that an earlier Remove of the same image has not been answered.
var errRemoving = errors.New("the runtime has not answered yet whether it has removed the image")

// remove calls the runtime, and closes done when it has answered.
func (m *Images) remove(ctx context.Context, r *removal) {
	ctx, cancel := context.WithTimeout(ctx, m.cfg.Timeout)
	defer cancel()
	_, r.err = m.cfg.Client.RemoveImage(ctx, &runtimeapi.RemoveImageRequest{
		Image: &runtimeapi.ImageSpec{Image: r.img.GetId(), RuntimeHandler: r.img.GetSpec().GetRuntimeHandler()},
	})
	m.mu.Lock()
	m.removing = slices.DeleteFunc(m.removing, func(o *removal) bool { return o == r })
	m.mu.Unlock()
	close(r.done)
}

// afterRemoval waits until no removal of the image with this name is in flight, or ctx ends.
func (m *Images) afterRemoval(ctx context.Context, name string) {
	for {
		m.mu.Lock()
		i := slices.IndexFunc(m.removing, func(r *removal) bool { return isNamed(r.img, name) })
		var done chan struct{}
		if i >= 0 {
			done = m.removing[i].done
		}
		m.mu.Unlock()
		if done == nil {
			return
		}
		select {
		case <-done:
		case <-ctx.Done():
			return
		}
	}
}
