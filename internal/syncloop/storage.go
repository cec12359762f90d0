package syncloop

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/wherry-node/wherry/internal/admit"
	"github.com/wherry-node/wherry/internal/crispec"
	"github.com/wherry-node/wherry/internal/decide"
	"github.com/wherry-node/wherry/internal/volume"
)

// storageEvery is how often pods with a limit are looked at. How often a volume is measured is up to who measures.
const storageEvery = 10 * time.Second

// watchStorage ends pods that take more of the disk than their emptyDirs and containers may, until ctx ends: one timer for
// the node, and only pods with such a limit are measured.
func (l *Loop) watchStorage(ctx context.Context) {
	t := time.NewTicker(storageEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		for _, p := range l.admitted("") {
			if ctx.Err() != nil {
				return
			}
			if _, limited := storageLimit(p); !limited && !limitsVolumes(p) || crispec.IsCritical(p) {
				continue
			}
			use, err := l.cfg.Storage(ctx, p)
			if err != nil { // the rest was measured
				l.cfg.Log.Debug("storage not measured", "pod", p.Namespace+"/"+p.Name, "err", err)
			}
			if signal, why := overLimit(p, &use); why != "" {
				l.evict(p, signal, why)
			}
		}
	}
}

// StorageUse is what a pod takes on the node's disk.
type StorageUse struct {
	Volumes    []volume.Usage
	Containers []ContainerUse
	// LayersApart: writable layers have a file system of their own, and do not count against the limit of a container.
	LayersApart bool
}

// ContainerUse is what a container takes, in bytes: its writable layer, and its logs.
type ContainerUse struct {
	Name        string
	Layer, Logs uint64
}

// limitsVolumes reports whether the pod has an emptyDir on disk with a limit. One in memory is bounded by its file system.
func limitsVolumes(p *v1.Pod) bool {
	for i := range p.Spec.Volumes {
		if e := p.Spec.Volumes[i].EmptyDir; e != nil && e.SizeLimit != nil && e.SizeLimit.Sign() > 0 && e.Medium == v1.StorageMediumDefault {
			return true
		}
	}
	return false
}

// storageLimit is the sum of its containers' limits of ephemeral storage; false if none has one.
func storageLimit(p *v1.Pod) (resource.Quantity, bool) {
	limit, ok := resourcehelper.PodLimits(p, resourcehelper.PodResourcesOptions{})[v1.ResourceEphemeralStorage]
	return limit, ok
}

// The signals that ask for evictions of this kind, as the field's metrics name them.
const (
	signalVolume    = "emptydirfs.limit"
	signalPod       = "ephemeralpodfs.limit"
	signalContainer = "ephemeralcontainerfs.limit"
)

// overLimit says which limit the pod has exceeded, in the words of the field; "" when none: "if a Pod is using more ephemeral
// storage than you allow it to, the kubelet sets an eviction signal that triggers Pod eviction". A volume's limit goes
// first, then the pod's, then a container's.
func overLimit(p *v1.Pod, use *StorageUse) (signal, why string) {
	if why := volumeOverLimit(p, use.Volumes); why != "" {
		return signalVolume, why
	}
	limit, ok := storageLimit(p)
	if !ok {
		return "", ""
	}
	var total uint64
	for _, u := range use.Volumes {
		if !u.Memory {
			total += u.UsedBytes
		}
	}
	for _, c := range use.Containers {
		total += c.Layer + c.Logs
	}
	if total > uint64(limit.Value()) {
		return signalPod, fmt.Sprintf("Pod ephemeral local storage usage exceeds the total limit of containers %s. ", limit.String())
	}
	for _, c := range use.Containers {
		used := c.Logs
		if !use.LayersApart {
			used += c.Layer
		}
		for i := range p.Spec.Containers {
			limit := p.Spec.Containers[i].Resources.Limits.StorageEphemeral()
			if p.Spec.Containers[i].Name == c.Name && limit.Sign() > 0 && used > uint64(limit.Value()) {
				return signalContainer, fmt.Sprintf("Container %s exceeded its local ephemeral storage limit %q. ", c.Name, limit.String())
			}
		}
	}
	return "", ""
}

// volumeOverLimit: "sizeLimit is the total amount of local storage required for this EmptyDir volume".
func volumeOverLimit(p *v1.Pod, usage []volume.Usage) string {
	for _, u := range usage {
		for i := range p.Spec.Volumes {
			vol := &p.Spec.Volumes[i]
			if vol.Name != u.Name || vol.EmptyDir == nil || vol.EmptyDir.SizeLimit == nil || u.Memory {
				continue
			}
			if limit := vol.EmptyDir.SizeLimit; limit.Sign() > 0 && u.UsedBytes > uint64(limit.Value()) {
				return fmt.Sprintf("Usage of EmptyDir volume %q exceeds the limit %q. ", vol.Name, limit.String())
			}
		}
	}
	return ""
}

// evict ends a pod at once, and once.
func (l *Loop) evict(p *v1.Pod, signal, message string) {
	l.mu.Lock()
	m := l.workers[p.UID]
	if m == nil || m.ended || m.told {
		l.mu.Unlock()
		return
	}
	m.told = true
	l.mu.Unlock()
	l.cfg.Recorder.Event(p, "", v1.EventTypeWarning, admit.ReasonEvicted, message)
	l.cfg.Meter.Evicted(signal)
	m.Stop(&decide.Stop{Reason: admit.ReasonEvicted, Message: message, Grace: new(time.Duration), Since: time.Now()})
}
