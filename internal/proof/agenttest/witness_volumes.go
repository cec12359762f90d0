package agenttest

import (
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/core/csispec"
	"github.com/wherry-node/wherry/internal/edge/csi"
)

// volumesSeen has the mounts of the machine, and what the Node's status in the API says about its volumes.
type volumesSeen struct {
	mounted  []mountSeen             // in mount order
	inUse    []v1.UniqueVolumeName   // volumesInUse of the Node
	attached map[string]bool         // whether the volumes of a driver have to be attached, by the name of the driver
	claims   map[string]*claimedSeen // the CSI volumes of the PersistentVolumes, by handle
	alone    map[string]bool         // the ReadWriteOncePod claims, by namespace/name
}

// claimedSeen is a CSI volume of a PersistentVolume.
type claimedSeen struct {
	driver string
	claim  string // namespace/name
}

// mountSeen is a mount.
type mountSeen struct {
	point  string
	volume string // the handle of the CSI volume; "": something else is mounted
}

// uid returns the pod to which the mount belongs; "": none.
func (m mountSeen) uid() types.UID {
	_, rest, _ := strings.Cut(m.point, "/pods/")
	uid, _, _ := strings.Cut(rest, "/")
	return types.UID(uid)
}

// mountPoints lists the mount points at or below dir, in mount order.
func (w *Witness) mountPoints(dir string) (points []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, m := range w.mounted {
		if strings.HasPrefix(m.point+"/", dir+"/") {
			points = append(points, m.point)
		}
	}
	return points
}

// mounts records a mount. volume is the handle of the CSI volume; "": something else is mounted.
func (w *Witness) mounts(point, volume string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	m := mountSeen{point, volume}
	if volume != "" {
		w.checkInUse(m)
		if m.uid() != "" {
			w.checkPublished(m)
		}
	}
	w.mounted = append(w.mounted, m)
}

// checkPublished checks that a CSI volume may be published to a pod: the pod is not over, and no other pod has the volume if only one may.
func (w *Witness) checkPublished(m mountSeen) {
	uid := m.uid()
	s := w.pods[uid]
	w.count(RuleVolumeOver, "")
	switch {
	case s == nil:
		w.broken(RuleVolumeOver, "volume %s is published to a pod %s that the API never had", m.volume, uid)
	case s.gone && !s.forced && s.finalAt.IsZero(): // the API server removes a pod that has failed or succeeded as soon as a user deletes it
		w.broken(RuleVolumeOver, "volume %s is published to pod %s, which has left the API", m.volume, s.pod.Name)
	default:
		// A call that was in flight when the agent learned of the end may still take effect, until its timeout.
		over := s.finalAt
		if known := w.lastAgent.endOf(uid); over.IsZero() || !known.IsZero() && known.Before(over) {
			over = known
		}
		if !over.IsZero() && time.Since(over) > csi.Timeout {
			w.broken(RuleVolumeOver, "volume %s is published to pod %s, which the agent knows to be over since %s", m.volume, s.pod.Name, over.Format("15:04:05"))
		}
	}
	if c := w.claims[m.volume]; c == nil || !w.alone[c.claim] {
		return
	}
	w.count(RuleVolumeAlone, "")
	for _, o := range w.mounted {
		if o.volume == m.volume && o.uid() != "" && o.uid() != uid {
			w.broken(RuleVolumeAlone, "volume %s is published to pod %s while pod %s has it", m.volume, uid, o.uid())
		}
	}
}

// checkInUse checks that the Node's status lists a mounted CSI volume, if the volumes of its driver have to be attached.
func (w *Witness) checkInUse(m mountSeen) {
	c := w.claims[m.volume]
	if c == nil || !w.attached[c.driver] {
		return
	}
	w.count(RuleVolumeInUse, "")
	if !slices.Contains(w.inUse, csispec.UniqueName(c.driver, m.volume)) {
		w.broken(RuleVolumeInUse, "volume %s is mounted on %s, and volumesInUse is %v", m.volume, m.point, w.inUse)
	}
}

// volumeObject records a new version of an object about volumes in the API. It ignores other objects. The caller holds w.mu.
func (w *Witness) volumeObject(obj runtime.Object) {
	switch o := obj.(type) {
	case *v1.Node:
		w.nodeUses(o.Status.VolumesInUse)
	case *storagev1.CSIDriver:
		w.attached[o.Name] = o.Spec.AttachRequired == nil || *o.Spec.AttachRequired
	case *v1.PersistentVolumeClaim:
		w.alone[o.Namespace+"/"+o.Name] = slices.Contains(o.Spec.AccessModes, v1.ReadWriteOncePod)
	case *v1.PersistentVolume:
		if src, ref := o.Spec.CSI, o.Spec.ClaimRef; src != nil && ref != nil {
			w.claims[src.VolumeHandle] = &claimedSeen{src.Driver, ref.Namespace + "/" + ref.Name}
		}
	}
}

// nodeUses records the list volumesInUse in a new status of the Node.
func (w *Witness) nodeUses(names []v1.UniqueVolumeName) {
	if slices.Equal(names, w.inUse) {
		return
	}
	w.inUse = names
	for _, m := range w.mounted {
		if m.volume != "" {
			w.checkInUse(m)
		}
	}
}

// detached records that a CSI volume is detached from the node, and checks that it is not mounted.
func (w *Witness) detached(volume string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.count(RuleVolumeInUse, "")
	for _, m := range w.mounted {
		if m.volume == volume {
			w.broken(RuleVolumeInUse, "volume %s is detached while it is mounted on %s", volume, m.point)
		}
	}
}

// isPublished reports whether a CSI volume is published to any pod.
func (w *Witness) isPublished(volume string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.ContainsFunc(w.mounted, func(m mountSeen) bool { return m.volume == volume && m.uid() != "" })
}

// publishedTo returns the mounts of the CSI volumes of a container's pod.
func (w *Witness) publishedTo(container string) (all []mountSeen) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.containers[container]
	for _, m := range w.mounted {
		if c != nil && m.volume != "" && m.uid() == c.UID {
			all = append(all, m)
		}
	}
	return all
}

// podOfSandbox returns the UID of the pod of a sandbox; "": there is no such sandbox.
func (w *Witness) podOfSandbox(id string) types.UID {
	w.mu.Lock()
	defer w.mu.Unlock()
	if s := w.sandboxes[id]; s != nil {
		return s.uid
	}
	return ""
}

// unmounts removes the newest mount on point. It returns the handle of the CSI volume that was mounted there; "": none was.
func (w *Witness) unmounts(point string) (volume string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, m := range slices.Backward(w.mounted) {
		if m.point != point {
			continue
		}
		w.mounted = slices.Delete(w.mounted, i, i+1)
		if m.volume == "" || m.uid() == "" {
			return m.volume
		}
		w.count(RuleVolumeRuns, "")
		for _, c := range w.containers {
			if c.Running && c.UID == m.uid() {
				w.broken(RuleVolumeRuns, "volume %s is unmounted from pod %s while its container %s runs", m.volume, c.Pod, c.Name)
			}
		}
		return m.volume
	}
	return ""
}

// startsWithVolumes checks that the CSI volumes of a pod's claims are mounted when one of its containers starts. The caller holds w.mu.
func (w *Witness) startsWithVolumes(in *Instance) {
	s := w.pods[in.UID]
	if s == nil {
		return
	}
	for handle, c := range w.claims {
		if !slices.ContainsFunc(s.pod.Spec.Volumes, func(v v1.Volume) bool {
			return v.PersistentVolumeClaim != nil && s.pod.Namespace+"/"+v.PersistentVolumeClaim.ClaimName == c.claim
		}) {
			continue
		}
		w.count(RuleVolumeRuns, "")
		if !slices.ContainsFunc(w.mounted, func(m mountSeen) bool { return m.volume == handle && m.uid() == in.UID }) {
			w.broken(RuleVolumeRuns, "container %s of pod %s starts, and its volume %s is not mounted", in.Name, in.Pod, handle)
		}
	}
}
