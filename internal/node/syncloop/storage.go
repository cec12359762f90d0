package syncloop

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/wherry-node/wherry/internal/base/hostfs"
	"github.com/wherry-node/wherry/internal/base/rounds"
	"github.com/wherry-node/wherry/internal/core/crispec"
	"github.com/wherry-node/wherry/internal/edge/volume"
)

const (
	// storageEvery is how often pods with a storage limit are checked. The Storage function may use an older measurement.
	storageEvery = 10 * time.Second
	// Pods without a limit are checked once in filesEvery rounds, and only the files that the agent made for them are measured.
	filesEvery = 3
	// storageWithin bounds the measurement of one pod, because the other pods wait meanwhile. If the time is over, the part that was
	// measured is used.
	storageWithin = time.Minute
)

// These constants bound the files that the agent makes for containers, in bytes on disk. They apply even if the pod has no limit.
const (
	// maxHosts bounds the hosts file, above the size of the longest published lists of hosts. The agent cannot truncate the file
	// while a container uses it, so it evicts the pod.
	maxHosts = 10 << 20
	// maxMessages bounds the termination messages of a container. The agent truncates them at each check; a container that
	// exceeds the bound writes faster than that, so its pod is evicted.
	maxMessages = 100 << 20
)

// storageRound evicts pods that exceed their storage limits, and returns the time until the next check. A pod without a limit is checked only
// for the files that the agent made for it.
func (l *Loop) storageRound(ctx context.Context) time.Duration {
	look := l.looks
	if l.looks++; look == 0 {
		return storageEvery // the first check comes storageEvery after the loop has begun
	}
	began := time.Now()
	for _, p := range l.admitted("") {
		if ctx.Err() != nil {
			return rounds.Never
		}
		_, limited := storageLimit(p)
		limited = limited || limitsVolumes(p)
		if !limited && (look-1)%filesEvery != 0 {
			continue
		}
		l.lookAtStorage(ctx, p, limited)
	}
	return max(storageEvery-time.Since(began), 0)
}

// lookAtStorage measures one pod and evicts it if it exceeds a limit.
func (l *Loop) lookAtStorage(ctx context.Context, p *v1.Pod, limited bool) {
	var use StorageUse
	var err, filesErr error
	if l.cfg.PodFiles != nil {
		use.Files, filesErr = l.cfg.PodFiles(p.UID)
	}
	if crispec.IsCritical(p) {
		return
	}
	if limited && l.cfg.Storage != nil {
		files := use.Files
		bounded, cancel := context.WithTimeout(ctx, storageWithin)
		use, err = l.cfg.Storage(bounded, p)
		cancel()
		use.Files = files
	}
	if err := errors.Join(filesErr, err); err != nil { // only logged: use has what could be measured
		l.cfg.Log.Debug("storage not measured", "pod", p.Namespace+"/"+p.Name, "err", err)
	}
	signal, why := overFiles(&use.Files)
	switch {
	case why != "" || l.cfg.Storage == nil:
	case errors.Is(err, hostfs.ErrTooDeep):
		signal, why = signalVolume, "The pod's volumes cannot be measured, and it has limits of storage: "+hostfs.ErrTooDeep.Error()+". "
	default:
		signal, why = overLimit(p, &use)
	}
	if why != "" {
		l.evict(p, signal, why)
	}
}

// StorageUse is what a pod uses on the node's disk.
type StorageUse struct {
	Volumes    []volume.Usage
	Containers []ContainerUse
	// Files are the files that the agent makes for containers: hosts files and termination messages.
	Files volume.FilesUsage
	// LayersApart is set if the writable layers are on a file system of their own, so that they do not count against a container's limit.
	LayersApart bool
}

// ContainerUse is what a container uses, in bytes: its writable layer and its logs.
type ContainerUse struct {
	Name        string
	Layer, Logs uint64
}

// limitsVolumes reports whether the pod has an emptyDir on disk with a limit. An emptyDir in memory does not count, because its
// file system enforces the limit.
func limitsVolumes(p *v1.Pod) bool {
	for i := range p.Spec.Volumes {
		if e := p.Spec.Volumes[i].EmptyDir; e != nil && e.SizeLimit != nil && e.SizeLimit.Sign() > 0 && e.Medium == v1.StorageMediumDefault {
			return true
		}
	}
	return false
}

// storageLimit returns the sum of the ephemeral-storage limits of the pod's containers; false: none has a limit.
func storageLimit(p *v1.Pod) (resource.Quantity, bool) {
	limit, ok := resourcehelper.PodLimits(p, resourcehelper.PodResourcesOptions{})[v1.ResourceEphemeralStorage]
	return limit, ok
}

// The eviction signals for storage limits, as the metrics of upstream's kubelet name them.
const (
	signalVolume    = "emptydirfs.limit"
	signalPod       = "ephemeralpodfs.limit"
	signalContainer = "ephemeralcontainerfs.limit"
)

// overLimit returns the first limit that the pod exceeds, in the words of upstream's kubelet; "": none. It checks the limits of volumes
// first, then that of the pod, then those of containers. The documentation says: "if a Pod is using more ephemeral storage than you allow
// it to, the kubelet sets an eviction signal that triggers Pod eviction".
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
	total += use.Files.Bytes()
	if total > uint64(limit.Value()) {
		return signalPod, fmt.Sprintf("Pod ephemeral local storage usage exceeds the total limit of containers %s. ", limit.String())
	}
	for _, c := range use.Containers {
		used := c.Logs + use.Files.Messages[c.Name]
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

// overFiles returns which file that the agent made for containers is too large; "": none.
func overFiles(u *volume.FilesUsage) (signal, why string) {
	if u.Hosts > maxHosts {
		return signalPod, fmt.Sprintf("The pod's hosts file takes %s on disk, more than %s. ", size(u.Hosts), size(maxHosts))
	}
	for _, name := range slices.Sorted(maps.Keys(u.Messages)) {
		if m := u.Messages[name]; m > maxMessages {
			return signalContainer, fmt.Sprintf("Termination messages of container %s take %s on disk, more than %s. ", name, size(m), size(maxMessages))
		}
	}
	return "", ""
}

func size(bytes uint64) string {
	return resource.NewQuantity(int64(min(bytes>>20, 1<<42))<<20, resource.BinarySI).String()
}

// volumeOverLimit returns which emptyDir exceeds its limit: "sizeLimit is the total amount of local storage required for
// this EmptyDir volume".
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

// evict ends a pod that exceeds a limit of its own, without a grace period.
func (l *Loop) evict(p *v1.Pod, signal, message string) {
	l.Evict(p, Eviction{Signal: signal, Message: message, Own: true})
}
