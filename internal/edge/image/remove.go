package image

import (
	"context"
	"slices"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/wherry-node/wherry/internal/core/pullaccess"
)

// removal is an image that is being removed.
type removal struct {
	img  *runtimeapi.Image
	done chan struct{} // closed when the runtime has answered
}

// isNamed reports whether a name from a spec may mean the image.
func isNamed(img *runtimeapi.Image, name string) bool {
	same := func(full string) bool { return pullaccess.SameImage(name, full) }
	return name == img.GetId() || slices.ContainsFunc(img.GetRepoTags(), same) || slices.ContainsFunc(img.GetRepoDigests(), same)
}

// Remove removes an image, unless it is being pulled: then removed is false. A call of Ensure for the image waits until this has ended.
// It blocks for the time of one call to the runtime.
func (m *Images) Remove(ctx context.Context, img *runtimeapi.Image) (removed bool, err error) {
	r := &removal{img: img, done: make(chan struct{})}
	m.mu.Lock()
	for key := range m.flights {
		if name, _, _ := strings.Cut(key, "\n"); isNamed(img, name) {
			m.mu.Unlock()
			return false, nil
		}
	}
	m.removing = append(m.removing, r)
	m.mu.Unlock()
	defer func() {
		m.mu.Lock()
		m.removing = slices.DeleteFunc(m.removing, func(o *removal) bool { return o == r })
		m.mu.Unlock()
		close(r.done)
	}()
	ctx, cancel := context.WithTimeout(ctx, m.cfg.Timeout)
	defer cancel()
	_, err = m.cfg.Client.RemoveImage(ctx, &runtimeapi.RemoveImageRequest{
		Image: &runtimeapi.ImageSpec{Image: img.GetId(), RuntimeHandler: img.GetSpec().GetRuntimeHandler()},
	})
	return err == nil, err
}

// afterRemoval waits until no removal of the image is under way.
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
