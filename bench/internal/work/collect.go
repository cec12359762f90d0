package work

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/wherry-node/wherry/bench/internal/rig"
)

// collected is how many unused images the node removes. Each takes about 2 MiB of the disk: a layer and its compressed content. filled is
// how much of the disk is taken at once, in bytes, and short is how much of that is too much. The images have more than that.
const (
	collected = 200
	filled    = 200 << 20
	short     = 100 << 20
)

// collect measures how an agent gets a disk out of a shortage by the removal of unused images: how long it takes from the moment at which the
// disk is short until the last image is gone, and until the Node has no DiskPressure any more; the processor time; and the CRI calls. A pod
// runs meanwhile, and must not be evicted.
func (s *Session) collect(ctx context.Context) (err error) {
	registry, err := s.Rig.SmallImages(ctx)
	if err != nil {
		return err
	}
	defer func() {
		ctx := context.WithoutCancel(ctx)
		s.Agent.Configure("")
		_, left := s.CRI.imagesOf(ctx, registry, true)
		err = errors.Join(err, left, s.anew(ctx))
	}()
	if err := s.CRI.pullMany(ctx, registry, collected); err != nil {
		return err
	}
	name := fmt.Sprintf("stays-%d", s.round) // it also keeps the image of all other pods
	if err := s.create(ctx, name, nil); err != nil {
		return err
	}
	if _, err := rig.Within(ctx, time.Minute, func(ctx context.Context) (map[string]time.Time, error) { return s.watch.Ready(ctx, []string{name}) }); err != nil {
		return err
	}
	if err := s.stop(ctx); err != nil {
		return err
	}
	space, err := s.Rig.Space()
	if err != nil {
		return err
	}
	s.Agent.Configure(fmt.Sprintf("evictionHard: {nodefs.available: \"%d\"}\nevictionPressureTransitionPeriod: 1s\nimageMinimumGCAge: 1s\n", space-filled+short))
	if s.count, err = s.Rig.Count(); err != nil {
		return err
	}
	if _, err := s.start(ctx, s.count.Socket); err != nil {
		return err
	}
	if err := rig.Sleep(ctx, 15*time.Second); err != nil { // the agent has measured the disk, and the work of its start is done
		return err
	}
	if err := s.relieve(ctx, registry); err != nil {
		return err
	}
	p, err := s.Rig.Client.CoreV1().Pods(rig.Namespace).Get(ctx, name, metav1.GetOptions{})
	if err == nil && p.Status.Phase != v1.PodRunning {
		err = fmt.Errorf("the pod %s is %s (%s), although the images were enough", name, p.Status.Phase, p.Status.Reason)
	}
	return err
}

// relieve takes space of the disk, so that it is short, and measures the relief.
func (s *Session) relieve(ctx context.Context, registry *rig.Registry) (err error) {
	s.count.Calls()
	used, err := meter(s.Rig, s.Agent.PID())
	if err != nil {
		return err
	}
	free, err := s.Rig.Fill(filled)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, free()) }()
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	pressed := make(chan error, 1)
	var over time.Time
	go func() {
		var err error
		over, err = s.pressureEnds(ctx)
		pressed <- err
	}()
	gone, err := s.CRI.noneOf(ctx, registry)
	if err := errors.Join(err, <-pressed); err != nil {
		return err
	}
	what := fmt.Sprintf("a disk is short, %d images are removed", collected)
	s.Samples.took(what+", to the last image", gone.Sub(began))
	s.Samples.took(what+", to no DiskPressure", over.Sub(began))
	calls := 0
	for _, n := range s.count.Calls() {
		calls += n
	}
	s.Samples.add(what+", CRI calls", float64(calls))
	return used(s.Samples, what+", CPU", 1)
}

// pressureEnds waits until the Node of the agent has had DiskPressure and has it no more, and returns when that was.
func (s *Session) pressureEnds(ctx context.Context) (time.Time, error) {
	for was := false; ; {
		n, err := s.Rig.Client.CoreV1().Nodes().Get(ctx, s.Node, metav1.GetOptions{})
		if err != nil {
			return time.Time{}, fmt.Errorf("wait for the end of DiskPressure (it began: %t): %w", was, err)
		}
		for _, c := range n.Status.Conditions {
			if c.Type == v1.NodeDiskPressure {
				switch {
				case c.Status == v1.ConditionTrue:
					was = true
				case was:
					return time.Now(), nil
				}
			}
		}
		if err := rig.Sleep(ctx, 100*time.Millisecond); err != nil {
			return time.Time{}, fmt.Errorf("wait for the end of DiskPressure (it began: %t): %w", was, err)
		}
	}
}

// pullMany pulls n new images of a registry, one after another.
func (c *CRI) pullMany(ctx context.Context, registry *rig.Registry, n int) error {
	for range n {
		name, err := registry.Next()
		if err != nil {
			return err
		}
		if _, err := c.images.PullImage(ctx, &runtimeapi.PullImageRequest{Image: &runtimeapi.ImageSpec{Image: name}}); err != nil {
			return fmt.Errorf("pull image %s: %w", name, err)
		}
	}
	return nil
}

// imagesOf returns how many images of a registry the runtime has. If remove is set, it removes them.
func (c *CRI) imagesOf(ctx context.Context, registry *rig.Registry, remove bool) (n int, err error) {
	list, err := c.images.ListImages(ctx, &runtimeapi.ListImagesRequest{})
	if err != nil {
		return 0, fmt.Errorf("list images: %w", err)
	}
	for _, img := range list.GetImages() {
		for _, tag := range img.GetRepoTags() {
			if !registry.Has(tag) {
				continue
			}
			n++
			if remove {
				err = errors.Join(err, c.RemoveImage(ctx, tag))
			}
		}
	}
	return n, err
}

// noneOf waits until the runtime has no image of a registry, and returns when that was. It asks four times a second, because the list of all
// images costs the runtime time.
func (c *CRI) noneOf(ctx context.Context, registry *rig.Registry) (time.Time, error) {
	for {
		n, err := c.imagesOf(ctx, registry, false)
		if err != nil {
			return time.Time{}, err
		}
		if n == 0 {
			return time.Now(), nil
		}
		if err := rig.Sleep(ctx, 250*time.Millisecond); err != nil {
			return time.Time{}, fmt.Errorf("%d images are left: %w", n, err)
		}
	}
}
