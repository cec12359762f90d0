package agent

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubelet "k8s.io/kubelet/config/v1beta1"

	"github.com/wherry-node/wherry/internal/base/hostfs"
	"github.com/wherry-node/wherry/internal/core/evict"
	"github.com/wherry-node/wherry/internal/core/nodestatus"
	"github.com/wherry-node/wherry/internal/core/pressure"
	"github.com/wherry-node/wherry/internal/edge/cgroup"
	"github.com/wherry-node/wherry/internal/edge/stats"
	"github.com/wherry-node/wherry/internal/node/evictor"
	"github.com/wherry-node/wherry/internal/node/imagegc"
)

// memoryRate is how many bytes of memory the processes of a real machine may fill in one second. A few threads that write to huge pages
// reach this rate. The less memory is left, the more often the evictor measures it; with this rate it measures every second as soon as 16
// GiB or less are left.
const memoryRate = int64(16) << 30

// buildEvictor wires the evictor, which frees memory, disk space or process IDs when the node has too little.
func (a *Agent) buildEvictor() error {
	a.evictor = evictor.New(evictor.Config{
		Policy:  a.evictionPolicy(&a.cfg.Kubelet, a.settings.Thresholds),
		Signals: a.platform.signals, Layout: a.diskLayout, Pods: a.loop, Usage: a.podUsage,
		RemoveImages: a.collector.RemoveUnused, Spare: a.sparesImages, NodeEvent: a.events.NodeEvent, Changed: a.pressureChanged, Acted: a.metrics.EvictionMeasured, Log: a.log,
	})
	return nil
}

// evictionPolicy converts the configuration for package evict.
func (a *Agent) evictionPolicy(k *kubelet.KubeletConfiguration, thresholds []pressure.Threshold) evict.Policy {
	p := evict.Policy{
		Thresholds: thresholds, TransitionPeriod: k.EvictionPressureTransitionPeriod.Duration,
		MaxPodGrace: time.Duration(k.EvictionMaxPodGracePeriod) * time.Second,
	}
	if a.deps.Machine.real {
		p.MemoryRate = memoryRate
	}
	return p
}

// imagePolicy converts the configuration for the garbage collection of images.
func imagePolicy(k *kubelet.KubeletConfiguration) evict.ImagePolicy {
	return evict.ImagePolicy{
		HighPercent: int(*k.ImageGCHighThresholdPercent), LowPercent: int(*k.ImageGCLowThresholdPercent),
		MinAge: k.ImageMinimumGCAge.Duration, MaxAge: k.ImageMaximumGCAge.Duration,
	}
}

// collectable gives the garbage collector of images access to the images of the runtime.
type collectable struct{ a *Agent }

// ListImages lists the images of the runtime.
func (c collectable) ListImages(ctx context.Context) ([]*runtimeapi.Image, error) {
	return c.a.cri.ListImages(ctx)
}

// RemoveImage removes an image, unless it is being pulled.
func (c collectable) RemoveImage(ctx context.Context, img *runtimeapi.Image) (bool, error) {
	return c.a.platform.images.Remove(ctx, img)
}

// buildCollector wires the garbage collection of unused images.
func (a *Agent) buildCollector() error {
	cfg := imagegc.Config{
		Policy: imagePolicy(&a.cfg.Kubelet), Images: collectable{a}, Observed: a.pleg.List, Desired: a.pods.List, Disk: a.imageDisk,
		Keep:      func(name string) bool { return a.keptImages.Load().Has(name) },
		Ready:     a.sparesImages,
		NodeEvent: a.events.NodeEvent, Collected: a.metrics.ImageCollected, Log: a.log,
	}
	if a.deps.Machine.real {
		cfg.File = filepath.Join(a.cfg.RootDir, "wherry_image_use.json")
	}
	if a.cfg.Owner != "" { // the node does not know which images the other nodes use, so it removes none
		cfg.Ready = func() bool { return false }
	}
	a.collector = imagegc.New(cfg)
	return nil
}

// awaitsPods is how long the agent waits for all sources of pods before it removes images that only a pod of a silent source may need.
const awaitsPods = time.Minute

// sparesImages reports whether the node can spare the images that no container uses and that no known pod needs. That is so once all sources of
// pods have answered. If one is silent for long, as the API server is in an outage, a disk that is short does not wait for it: the images of all
// containers are kept, also of those whose pods are not known, and such a pod pulls another image again when it needs it.
func (a *Agent) sparesImages() bool {
	return a.pleg.Synced() && (a.pods.Ready() || a.pods.Awaits() && time.Since(a.began) > awaitsPods)
}

// imageDisk returns the size of the file system of images and its free space.
func (a *Agent) imageDisk(ctx context.Context) (pressure.Observation, bool) {
	o, ok := a.platform.signals(ctx)[pressure.ImagefsAvailable]
	return o, ok
}

// pressureChanged makes the heartbeat send the node's status, because its pressure conditions have changed.
func (a *Agent) pressureChanged() {
	if a.heartbeat != nil {
		a.heartbeat.Now()
	}
}

// diskLayout says which file systems the node has.
func (a *Agent) diskLayout() evict.Layout {
	if !a.deps.Machine.real {
		return evict.Layout{}
	}
	apart, withPods, known := a.stats.DiskLayout()
	return evict.Layout{ImagesApart: apart, LayersWithPods: withPods, Unknown: !known}
}

// podUsage measures what pods use: either disks, or memory and processes. A pod without running containers uses nothing.
func (a *Agent) podUsage(ctx context.Context, pods []*v1.Pod, use evict.Use) map[types.UID]*evict.Usage {
	out := make(map[types.UID]*evict.Usage, len(pods))
	if use == evict.DiskUse {
		a.diskUsage(ctx, pods, out)
		return out
	}
	uses, err := a.stats.PodUses(ctx)
	if err != nil {
		a.log.Warn("what pods use is measured in part only", "err", err)
	}
	for _, p := range pods {
		have, ok := uses[p.UID]
		if have.Unknown || !ok && err != nil {
			continue
		}
		u := &evict.Usage{Memory: have.Memory, Processes: have.Processes}
		for _, c := range have.Containers {
			u.Containers = append(u.Containers, evict.ContainerUsage{Name: c.Name, Memory: new(c.Memory)})
		}
		out[p.UID] = u
	}
	return out
}

// These constants bound the measurement of volumes. measuring is how many pods are measured at the same time. leastTime is the time that each
// pod gets at least, even if not enough is left for all pods.
const (
	measuring = 4
	leastTime = 5 * time.Second
)

// diskUsage measures what pods have on disk. If ctx has a deadline, the pods share the time that is left, so that a pod with very many files
// does not use up the time of the others.
func (a *Agent) diskUsage(ctx context.Context, pods []*v1.Pod, out map[types.UID]*evict.Usage) {
	disks, err := a.stats.PodDisks(ctx, "")
	if err != nil {
		a.log.Warn("what containers have on disk is measured in part only", "err", err)
	}
	uses := make([]*evict.Usage, len(pods))
	next := make(chan int)
	var measurers sync.WaitGroup
	for range measuring {
		measurers.Go(func() {
			for i := range next {
				bounded, cancel := share(ctx, len(pods)-i)
				uses[i] = a.diskUsageOf(bounded, pods[i], disks[pods[i].UID])
				cancel()
			}
		})
	}
	for i := range pods {
		next <- i
	}
	close(next)
	measurers.Wait()
	for i, p := range pods {
		out[p.UID] = uses[i]
	}
}

// share bounds the measurement of one of the pods that are left to an equal part of the time until the deadline of ctx.
func share(ctx context.Context, left int) (context.Context, context.CancelFunc) {
	deadline, bounded := ctx.Deadline()
	if !bounded {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, max(time.Until(deadline)*measuring/time.Duration(left), leastTime))
}

// diskUsageOf measures what one pod has on disk. d is the usage of its containers.
func (a *Agent) diskUsageOf(ctx context.Context, p *v1.Pod, d stats.PodDisk) *evict.Usage {
	u := &evict.Usage{Layers: evict.Disk(d.Layers), Logs: evict.Disk(d.Logs), NoLayers: d.NoLayers, NoLogs: d.NoLogs, LayersAt: d.LayersAt}
	for _, c := range d.Containers {
		u.Containers = append(u.Containers, evict.ContainerUsage{Name: c.Name, Disk: new(c.Layer + c.Logs)})
	}
	volumes, err := a.platform.volumes.UsageNow(ctx, p)
	for _, v := range volumes {
		if !v.Memory {
			u.Volumes.Bytes, u.Volumes.Inodes = u.Volumes.Bytes+v.UsedBytes, u.Volumes.Inodes+v.InodesUsed
		}
	}
	files, filesErr := a.platform.volumes.FilesUsage(p.UID)
	u.Volumes.Bytes, u.Volumes.Inodes = u.Volumes.Bytes+files.Bytes(), u.Volumes.Inodes+files.Inodes
	if err = errors.Join(err, filesErr); err != nil {
		u.NoVolumes, u.Evades = true, errors.Is(err, hostfs.ErrTooDeep) || errors.Is(err, hostfs.ErrMoved)
	}
	a.partly.note(p, forEviction, errors.Join(err, d.Err))
	return u
}

// podsWanted returns how much of a limit of the pods' memory has to be available so that no threshold is met, in bytes.
func (a *Agent) podsWanted(limit int64) (most int64) {
	for _, t := range a.node.Settings().Thresholds {
		if t.Signal == pressure.AllocatableMemoryAvailable {
			most = max(most, t.Wanted(limit))
		}
	}
	return most
}

// podsMemory returns how much memory all pods together may use, in bytes; 0: not known yet.
func (a *Agent) podsMemory() int64 {
	if n := a.podsLimit.Load(); n > 0 {
		return n
	}
	m, err := a.node.ReadMachine()
	if err != nil {
		return 0
	}
	capacity := nodestatus.Capacity(&a.settings, &nodestatus.Facts{Machine: m})
	if groups, ok := a.platform.cgroups.(*cgroup.Cgroups); ok {
		capacity = groups.Allocatable(capacity)
	}
	n := capacity.Memory().Value()
	a.podsLimit.Store(n)
	return n
}
