package stats

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/wherry-node/wherry/internal/core/crispec"
	"github.com/wherry-node/wherry/internal/core/pod"
)

// ContainerDisk is the disk usage of a container, in bytes.
type ContainerDisk struct {
	Name string
	// Layer counts what it has written to its root file system. Logs counts the logs of all its attempts that still
	// exist.
	Layer, Logs uint64
}

// ContainerDisks measures the running containers of a pod: it asks the runtime once, and walks through the logs. A
// value that it could not measure is 0, and the error says so.
func (s *Stats) ContainerDisks(ctx context.Context, uid types.UID) ([]ContainerDisk, error) {
	if s.cfg.Disk == nil || s.cfg.Runtime == nil {
		return nil, nil
	}
	var p podReading
	for _, o := range s.cfg.Pods.Observed() {
		if o.Ref.UID == uid {
			p, _ = s.running(&reading{}, o)
		}
	}
	if len(p.containers) == 0 {
		return nil, nil
	}
	bounded, cancel := context.WithTimeout(ctx, runtimeWithin)
	defer cancel()
	var errs []error
	resp, err := s.cfg.Runtime.ListContainerStats(bounded, &runtimeapi.ListContainerStatsRequest{
		Filter: &runtimeapi.ContainerStatsFilter{LabelSelector: map[string]string{pod.LabelPodUID: string(uid)}},
	})
	if err != nil {
		errs = append(errs, fmt.Errorf("ask the runtime for stats of containers: %w", err))
	}
	layers := map[string]uint64{}
	for _, st := range resp.GetStats() {
		layers[st.GetAttributes().GetId()] = st.GetWritableLayer().GetUsedBytes().GetValue()
	}
	out := make([]ContainerDisk, 0, len(p.containers))
	for i := range p.containers {
		c := &p.containers[i]
		one := ContainerDisk{Name: c.name, Layer: layers[c.id]}
		if s.cfg.LogDir != "" {
			if one.Logs, _, err = s.cfg.Disk.UntrustedDiskUsage(ctx, c.logDir, crispec.LogDepth-1); err != nil && !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, err)
			}
		}
		out = append(out, one)
	}
	return out, errors.Join(errs...)
}

// LayersApart reports whether images and writable layers lie on another file system than the agent's directory. If so,
// the limit of a container does not count its layer.
func (s *Stats) LayersApart(ctx context.Context) bool {
	_, layers := s.imageMounts(ctx)
	var root, there unix.Stat_t
	if layers == "" || unix.Stat(s.cfg.RootDir, &root) != nil || unix.Stat(layers, &there) != nil {
		return false
	}
	return root.Dev != there.Dev
}

// DiskLayout reports whether images lie on another file system than the agent's directory, and if so, whether the writable layers of
// containers lie with the agent's directory all the same.
func (s *Stats) DiskLayout(ctx context.Context) (imagesApart, layersWithPods bool) {
	images, layers := s.imageMounts(ctx)
	var root, i, l unix.Stat_t
	if images == "" || unix.Stat(s.cfg.RootDir, &root) != nil || unix.Stat(images, &i) != nil || root.Dev == i.Dev {
		return false, false
	}
	return true, layers != "" && unix.Stat(layers, &l) == nil && l.Dev == root.Dev
}

// LayerDir returns where writable layers lie; "": not known yet.
func (s *Stats) LayerDir(ctx context.Context) string {
	_, layers := s.imageMounts(ctx)
	return layers
}

// mountsWithin bounds the question where images lie: what asks it must not wait for a runtime that hangs.
const mountsWithin = 2 * time.Second

// imageMounts returns where images and writable layers lie. It caches the answer, because a runtime does not move them
// while it runs.
func (s *Stats) imageMounts(ctx context.Context) (images, containers string) {
	if m := s.mounts.Load(); m != nil {
		return m.images, m.containers
	}
	ctx, cancel := context.WithTimeout(ctx, mountsWithin)
	defer cancel()
	i, c := s.imageFs(ctx)
	if i == nil {
		return "", ""
	}
	m := &mounts{images: i.GetFsId().GetMountpoint(), containers: c.GetFsId().GetMountpoint()}
	s.mounts.Store(m)
	return m.images, m.containers
}

type mounts struct{ images, containers string }
