package evict

import (
	"cmp"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/wherry-node/wherry/internal/core/crispec"
	"github.com/wherry-node/wherry/internal/core/inorder"
	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/core/pressure"
)

// part is a kind of data that a pod keeps on disk.
type part uint8

// These are the kinds of data. Usage measures each of them in a field of its own.
const (
	volumes part = 1 << iota
	logs
	layers
)

// parts returns which parts of a pod's data are on the file system of a signal.
func (l Layout) parts(s pressure.Signal) part {
	switch s {
	case pressure.NodefsAvailable, pressure.NodefsInodesFree:
		if l.ImagesApart && !l.LayersWithPods {
			return volumes | logs
		}
	case pressure.ImagefsAvailable, pressure.ImagefsInodesFree:
		switch {
		case l.ImagesApart && l.LayersWithPods:
			return 0 // the file system has only images
		case l.ImagesApart:
			return layers
		}
	case pressure.ContainerfsAvailable, pressure.ContainerfsInodesFree:
		if l.ImagesApart && !l.LayersWithPods {
			return layers
		}
	case pressure.MemoryAvailable, pressure.AllocatableMemoryAvailable, pressure.PIDAvailable:
		return 0
	}
	return volumes | logs | layers
}

// steps returns what can be removed from the file system of a signal. "If nodefs meets the eviction thresholds, the kubelet
// garbage collects dead pods and their containers. If imagefs meets the eviction thresholds, the kubelet deletes all unused
// images." If there is only one file system, both are removed. For memory and process IDs there is nothing to remove.
func (l Layout) steps(s pressure.Signal) Step {
	images := !l.ImagesApart
	switch s {
	case pressure.MemoryAvailable, pressure.AllocatableMemoryAvailable, pressure.PIDAvailable:
		return 0
	case pressure.ImagefsAvailable, pressure.ImagefsInodesFree:
		if l.ImagesApart && l.LayersWithPods {
			return UnusedImages
		}
		images = true
	case pressure.ContainerfsAvailable, pressure.ContainerfsInodesFree:
		images = images || !l.LayersWithPods
	case pressure.NodefsAvailable, pressure.NodefsInodesFree:
	}
	if images {
		return DeadContainers | UnusedImages
	}
	return DeadContainers
}

// claim holds the values that decide the place of one pod in the order of eviction.
type claim struct {
	pod      *Pod
	used     int64 // what the pod uses of the scarce resource: bytes, inodes or processes
	request  int64 // what the pod requests of it; 0 for inodes and processes, which cannot be requested
	exceeds  bool
	partly   bool // used is too small, because a part of the pod's data could not be measured
	evades   bool // used is too small, and the pod itself prevents a complete measurement
	priority int32
}

// mayExceed reports whether the pod possibly uses more than it requests: what was found of its data is not more, and there is data that could
// not be measured. A pod of which nothing was found does not count, because its end might free nothing.
func (c *claim) mayExceed() bool { return !c.exceeds && c.partly && c.used > 0 }

// over returns how much more the pod uses than it requests. The result is negative if it uses less.
func (c *claim) over() int64 { return c.used - c.request }

// claims returns the pods that may be evicted. Static pods are not evicted, because nothing would start them again. Pods of a
// system-critical priority are not evicted, because the node needs them. A pod whose grace period is over cannot be made to end
// sooner.
func claims(pods []Pod, s pressure.Signal, l Layout, now time.Time) []claim {
	out := make([]claim, 0, len(pods))
	for i := range pods {
		p := &pods[i]
		if crispec.IsCritical(p.Pod) || pod.IsMirror(p.Pod) || ended(p.Pod) || !p.EndsBy.IsZero() && !p.EndsBy.After(now) {
			continue
		}
		out = append(out, claimOf(p, s, l))
	}
	return out
}

func ended(p *v1.Pod) bool {
	return p.Status.Phase == v1.PodFailed || p.Status.Phase == v1.PodSucceeded
}

func claimOf(p *Pod, s pressure.Signal, l Layout) claim {
	c := claim{pod: p}
	if p.Pod.Spec.Priority != nil {
		c.priority = *p.Pod.Spec.Priority
	}
	if p.Usage != nil {
		c.used = p.Usage.of(s, l)
	}
	switch name := s.Resource(); name {
	case v1.ResourceMemory, v1.ResourceEphemeralStorage:
		q := resourcehelper.PodRequests(p.Pod, resourcehelper.PodResourcesOptions{})[name]
		c.request = max(q.Value(), 0)
	}
	// For process IDs, it does not matter whether a pod uses more than it requests: "Pods are ranked for process IDs by priority".
	c.exceeds = c.used > c.request && s != pressure.PIDAvailable
	c.partly = p.Usage != nil && p.Usage.unknown(s, l) != 0
	if c.evades = p.Usage != nil && p.Usage.Evades && p.Usage.unknown(s, l)&volumes != 0; c.evades {
		c.exceeds = true
	}
	return c
}

// unknown returns which parts of a pod's data on the file system of a signal could not be measured completely.
func (u *Usage) unknown(s pressure.Signal, l Layout) (missing part) {
	if u.NoVolumes {
		missing |= volumes
	}
	if u.NoLogs {
		missing |= logs
	}
	if u.NoLayers {
		missing |= layers
	}
	return missing & l.parts(s)
}

// before reports whether layers that count for a signal were measured before a time, so that they may have grown since then.
func (u *Usage) before(t time.Time, s pressure.Signal, l Layout) bool {
	return l.parts(s)&layers != 0 && !u.LayersAt.IsZero() && u.LayersAt.Before(t)
}

// of returns how much a pod uses of the resource that a signal measures.
func (u *Usage) of(s pressure.Signal, l Layout) int64 {
	switch s {
	case pressure.MemoryAvailable, pressure.AllocatableMemoryAvailable:
		return amount(u.Memory)
	case pressure.PIDAvailable:
		return amount(u.Processes)
	case pressure.NodefsAvailable, pressure.ImagefsAvailable, pressure.ContainerfsAvailable,
		pressure.NodefsInodesFree, pressure.ImagefsInodesFree, pressure.ContainerfsInodesFree:
	}
	var total int64
	for p, d := range map[part]Disk{volumes: u.Volumes, logs: u.Logs, layers: u.Layers} {
		if l.parts(s)&p == 0 {
			continue
		}
		n := amount(d.Bytes)
		if s.Resource() != v1.ResourceEphemeralStorage {
			n = amount(d.Inodes)
		}
		total = min(total+n, maxAmount)
	}
	return total
}

// maxAmount bounds each reported amount, so that sums fit into 64 bits.
const maxAmount = int64(1) << 60

func amount(n uint64) int64 { return int64(min(n, uint64(maxAmount))) }

// rank returns the pods that may be evicted for a signal, in the order in which they are to be evicted. "The kubelet uses the
// following parameters to determine the Pod eviction order: whether the Pod's resource usage exceeds requests, Pod Priority, the
// Pod's resource usage relative to requests." For process IDs only the priority and the number of processes count. A pod that
// could not be measured counts as if it used nothing, because its end might free nothing. A pod that evades the measurement of its volumes
// counts as if it used the most: otherwise it could fill the disk, and the other pods would be evicted. A pod of which only a part could be
// measured uses at least what was found: it comes after the pods that surely use more than they request, and before those of its priority that surely
// do not. The priority counts first, because a failure of the node may be why the pod was measured in part. Of equal pods the one that was
// measured in part comes first, and then the youngest.
func rank(pods []Pod, s pressure.Signal, l Layout, now time.Time) []claim {
	all := claims(pods, s, l, now)
	inorder.Sort(all, func(a, b claim) int { return a.compare(&b) })
	return all
}

// compare returns a negative number if a is evicted before b.
func (c *claim) compare(b *claim) int {
	return cmp.Or(
		ahead(c.exceeds, b.exceeds),
		cmp.Compare(c.priority, b.priority),
		ahead(c.mayExceed(), b.mayExceed()),
		ahead(c.evades, b.evades),
		cmp.Compare(b.over(), c.over()),
		ahead(c.partly, b.partly),
		-c.pod.Pod.CreationTimestamp.Time.Compare(b.pod.Pod.CreationTimestamp.Time),
		strings.Compare(string(c.pod.Pod.UID), string(b.pod.Pod.UID)),
	)
}

// ahead returns a negative number if only a is true, and a positive number if only b is true.
func ahead(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}
