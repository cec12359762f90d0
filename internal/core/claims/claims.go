package claims

import (
	"errors"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/component-helpers/storage/ephemeral"

	"github.com/wherry-node/wherry/internal/core/crispec"
	"github.com/wherry-node/wherry/internal/core/pod"
)

// protection is the finalizer that keeps a claim while pods use it.
const protection = "kubernetes.io/pvc-protection"

// Name returns the name of the claim that a volume of a pod refers to, in the pod's namespace. It returns "" if the volume refers
// to none.
func Name(p *v1.Pod, vol *v1.Volume) string {
	switch {
	case vol.PersistentVolumeClaim != nil:
		return vol.PersistentVolumeClaim.ClaimName
	case vol.Ephemeral != nil:
		return ephemeral.VolumeClaimName(p, vol)
	}
	return ""
}

// ReadOnly reports whether all containers of the pod may only read the volume.
func ReadOnly(vol *v1.Volume) bool {
	return vol.PersistentVolumeClaim != nil && vol.PersistentVolumeClaim.ReadOnly
}

// Missing is the error for a claim that does not exist.
func Missing(p *v1.Pod, vol *v1.Volume) error {
	if vol.Ephemeral != nil {
		return lacks(pod.LackClaim, "waits for the control plane to create persistentvolumeclaim %q of this ephemeral volume", Name(p, vol))
	}
	return lacks(pod.LackClaim, "persistentvolumeclaim %q not found: create it in namespace %q", Name(p, vol), p.Namespace)
}

func lacks(what pod.Lack, format string, args ...any) error {
	return &pod.Lacking{What: what, Err: fmt.Errorf(format, args...)}
}

// Check returns the name of the persistent volume that a claim is bound to. The error says why the pod cannot use the claim yet.
func Check(p *v1.Pod, vol *v1.Volume, claim *v1.PersistentVolumeClaim) (volume string, err error) {
	if vol.Ephemeral != nil {
		if err := ephemeral.VolumeIsForPod(p, claim); err != nil {
			return "", fmt.Errorf("persistentvolumeclaim %q has the name of this ephemeral volume's claim, but it was not made for this pod: "+
				"delete that claim, or rename the pod or the volume", claim.Name)
		}
	}
	switch {
	case claim.DeletionTimestamp != nil && !slices.Contains(claim.Finalizers, protection):
		// While a deleted claim still has the finalizer, pods that already use the claim may go on using it, so only a claim without
		// the finalizer is an error.
		return "", fmt.Errorf("persistentvolumeclaim %q is being deleted", claim.Name)
	case claim.Status.Phase == v1.ClaimLost:
		return "", fmt.Errorf("persistentvolumeclaim %q has lost its persistentvolume %q: that was deleted, so the claim's data is gone; "+
			"delete the claim and create it again", claim.Name, claim.Spec.VolumeName)
	case claim.Status.Phase != v1.ClaimBound || claim.Spec.VolumeName == "":
		return "", lacks(pod.LackBinding, "waits for persistentvolumeclaim %q to be bound%s", claim.Name, className(claim))
	}
	return claim.Spec.VolumeName, nil
}

func className(claim *v1.PersistentVolumeClaim) string {
	if c := claim.Spec.StorageClassName; c != nil && *c != "" {
		return fmt.Sprintf(" (storage class %q)", *c)
	}
	return " (it names no storage class: it needs a persistentvolume without one)"
}

// CheckVolume returns an error if the pod cannot use the persistent volume that its claim is bound to on this node.
func CheckVolume(p *v1.Pod, vol *v1.Volume, claim *v1.PersistentVolumeClaim, pv *v1.PersistentVolume, node *v1.Node) error {
	ref := pv.Spec.ClaimRef
	switch {
	case pv.Name != claim.Spec.VolumeName:
		return fmt.Errorf("asked for persistentvolume %q and got %q", claim.Spec.VolumeName, pv.Name)
	case ref == nil:
		return lacks(pod.LackBinding, "waits for persistentvolume %q to be bound to persistentvolumeclaim %q", pv.Name, claim.Name)
	case ref.UID != claim.UID || ref.Namespace != claim.Namespace || ref.Name != claim.Name:
		return fmt.Errorf("persistentvolume %q is bound to another claim, %s/%s (UID %s), not to %s/%s (UID %s)",
			pv.Name, ref.Namespace, ref.Name, ref.UID, claim.Namespace, claim.Name, claim.UID)
	}
	if err := checkAffinity(pv, node); err != nil {
		return err
	}
	return checkMode(p, vol.Name, pv)
}

func checkAffinity(pv *v1.PersistentVolume, node *v1.Node) error {
	if pv.Spec.NodeAffinity == nil || pv.Spec.NodeAffinity.Required == nil {
		return nil
	}
	terms, err := nodeaffinity.NewNodeSelector(pv.Spec.NodeAffinity.Required)
	if err != nil {
		return fmt.Errorf("persistentvolume %q: its nodeAffinity cannot be read: %w", pv.Name, err)
	}
	if !terms.Match(node) {
		return fmt.Errorf("persistentvolume %q cannot be used on this node: its nodeAffinity excludes the node; bind the pod to another node, "+
			"or leave that to the scheduler", pv.Name)
	}
	return nil
}

// checkMode returns an error unless containers use the volume as its mode says: as files (volumeMounts) or as a device
// (volumeDevices).
func checkMode(p *v1.Pod, name string, pv *v1.PersistentVolume) error {
	mode := v1.PersistentVolumeFilesystem
	if Block(pv) {
		mode = v1.PersistentVolumeBlock
	}
	for c := range crispec.Containers(p) {
		mounted := slices.ContainsFunc(c.VolumeMounts, func(m v1.VolumeMount) bool { return m.Name == name })
		device := slices.ContainsFunc(c.VolumeDevices, func(d v1.VolumeDevice) bool { return d.Name == name })
		switch {
		case mounted && mode != v1.PersistentVolumeFilesystem:
			return fmt.Errorf("container %q has the volume in volumeMounts, but persistentvolume %q has volumeMode %s: use volumeDevices", c.Name, pv.Name, mode)
		case device && mode != v1.PersistentVolumeBlock:
			return fmt.Errorf("container %q has the volume in volumeDevices, but persistentvolume %q has volumeMode %s: use volumeMounts", c.Name, pv.Name, mode)
		}
	}
	if s := &pv.Spec; Block(pv) && s.CSI == nil && s.Local == nil && s.ISCSI == nil && s.FC == nil {
		return ErrBlock
	}
	return nil
}

// Block reports whether a persistent volume is a block device, and not a file system.
func Block(pv *v1.PersistentVolume) bool {
	return pv.Spec.VolumeMode != nil && *pv.Spec.VolumeMode == v1.PersistentVolumeBlock
}

// ErrBlock is the error for a volume with volumeMode Block of a kind that this agent cannot give to containers as a block device.
var ErrBlock = errors.New("volumeMode Block is supported for csi, local, iscsi and fc volumes only: use volumeMode Filesystem, or another node")

// Exclusive reports whether only one pod of the cluster may use the claim at a time.
func Exclusive(claim *v1.PersistentVolumeClaim) bool {
	return slices.Contains(claim.Spec.AccessModes, v1.ReadWriteOncePod)
}

// InUse is the error for an exclusive claim that another pod of this node still uses. People and upstream's tests look for the words of upstream's
// kubelet in the event, so the error has those too.
func InUse(claim string, other string) error {
	return lacks(pod.LackTurn, "persistentvolumeclaim %q: volume uses the ReadWriteOncePod access mode and is already in use by another pod: pod %s of this node still uses it, "+
		"and has to end first", claim, other)
}
