package simstorage

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/sim/simcsi"
)

// These annotations are those of Kubernetes.
const (
	annotationProvisioner = "volume.kubernetes.io/storage-provisioner" // of a claim: who has to make its volume
	annotationOlder       = "volume.beta.kubernetes.io/storage-provisioner"
	annotationNode        = "volume.kubernetes.io/selected-node"      // of a claim: the node that the scheduler has chosen for its pod
	annotationMadeBy      = "pv.kubernetes.io/provisioned-by"         // of a volume
	annotationClass       = "volume.beta.kubernetes.io/storage-class" // of a claim: the older form of spec.storageClassName
)

// provision makes the volume of a claim, if one of the drivers has to.
func (s *Storage) provision(ctx context.Context, c *v1.PersistentVolumeClaim) error {
	driver := cmp.Or(c.Annotations[annotationProvisioner], c.Annotations[annotationOlder])
	if c.Spec.VolumeName != "" || c.DeletionTimestamp != nil || !s.has(driver) {
		return nil
	}
	class, err := s.cfg.API.StorageClasses().Get(ctx, className(c), metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("read the storage class of claim %s/%s: %w", c.Namespace, c.Name, err)
	}
	node := c.Annotations[annotationNode]
	if class.Provisioner != driver || waitsForPod(class) && node == "" {
		return nil
	}
	if ready, err := s.sourced(ctx, c, driver); err != nil || !ready {
		return err
	}
	attributes, wrong := attributesOf(c, class, time.Now())
	if wrong != "" {
		return s.warn(ctx, c, wrong)
	}
	affinity, err := s.affinity(ctx, driver, node, class, c)
	if err != nil {
		return err
	}
	if _, err := s.cfg.API.PersistentVolumes().Create(ctx, volumeFor(c, class, affinity, attributes), metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create the volume of claim %s/%s: %w", c.Namespace, c.Name, err)
	}
	return nil
}

func className(c *v1.PersistentVolumeClaim) string {
	if name := c.Spec.StorageClassName; name != nil {
		return *name
	}
	return c.Annotations[annotationClass]
}

// waitsForPod reports whether a volume of the class is made only when a node has been chosen for a pod with its claim.
func waitsForPod(c *storagev1.StorageClass) bool {
	return c.VolumeBindingMode != nil && *c.VolumeBindingMode == storagev1.VolumeBindingWaitForFirstConsumer
}

// attributesOf returns the attributes of the volume of a claim: its size, and how much of it is used, as the class's parameters used and usedPerSecond say. wrong is
// the error of a parameter, as a text for users.
func attributesOf(c *v1.PersistentVolumeClaim, class *storagev1.StorageClass, now time.Time) (attributes map[string]string, wrong string) {
	size := c.Spec.Resources.Requests[v1.ResourceStorage]
	attributes = map[string]string{simcsi.AttributeSize: strconv.FormatInt(size.Value(), 10)}
	for _, key := range []string{simcsi.AttributeUsed, simcsi.AttributeUsedPerSecond} {
		text, ok := class.Parameters[key]
		if !ok {
			continue
		}
		amount, err := resource.ParseQuantity(text)
		if err != nil || amount.Sign() < 0 {
			return nil, fmt.Sprintf("the storage class %s has the parameter %s: %q: use a number of bytes, such as 2Gi", class.Name, key, text)
		}
		attributes[key] = strconv.FormatInt(amount.Value(), 10)
		attributes[simcsi.AttributeMade] = strconv.FormatInt(now.Unix(), 10)
	}
	return attributes, ""
}

// volumeFor returns the volume for a claim. Its name follows from the claim's UID, so that it is made once.
func volumeFor(c *v1.PersistentVolumeClaim, class *storagev1.StorageClass, affinity *v1.VolumeNodeAffinity, attributes map[string]string) *v1.PersistentVolume {
	size := c.Spec.Resources.Requests[v1.ResourceStorage]
	policy := v1.PersistentVolumeReclaimDelete
	if class.ReclaimPolicy != nil {
		policy = *class.ReclaimPolicy
	}
	name := "pvc-" + string(c.UID)
	return &v1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{annotationMadeBy: class.Provisioner}},
		Spec: v1.PersistentVolumeSpec{
			Capacity: v1.ResourceList{v1.ResourceStorage: size}, AccessModes: c.Spec.AccessModes, VolumeMode: c.Spec.VolumeMode,
			ClaimRef:                      &v1.ObjectReference{Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: c.Namespace, Name: c.Name, UID: c.UID},
			PersistentVolumeReclaimPolicy: policy, StorageClassName: class.Name, MountOptions: class.MountOptions, NodeAffinity: affinity,
			PersistentVolumeSource: v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{
				Driver: class.Provisioner, VolumeHandle: name, VolumeAttributes: attributes,
			}},
		},
	}
}

// grow makes the volume of a claim as large as the claim asks, and tells the node to do its part.
func (s *Storage) grow(ctx context.Context, c *v1.PersistentVolumeClaim) error {
	asked, has := c.Spec.Resources.Requests[v1.ResourceStorage], c.Status.Capacity[v1.ResourceStorage]
	if c.Status.Phase != v1.ClaimBound || asked.Cmp(has) <= 0 {
		return nil
	}
	s.mu.Lock()
	pv := s.volumes[c.Spec.VolumeName]
	s.mu.Unlock()
	if pv == nil { // of another driver, or not seen yet
		return nil
	}
	if size := pv.Spec.Capacity[v1.ResourceStorage]; size.Cmp(asked) < 0 {
		body, err := json.Marshal(map[string]any{"spec": map[string]any{"capacity": v1.ResourceList{v1.ResourceStorage: asked}}})
		if err == nil {
			_, err = s.cfg.API.PersistentVolumes().Patch(ctx, pv.Name, types.MergePatchType, body, metav1.PatchOptions{})
		}
		if err != nil {
			return fmt.Errorf("make the volume %s larger: %w", pv.Name, err)
		}
	}
	if allocated := c.Status.AllocatedResources[v1.ResourceStorage]; allocated.Cmp(asked) == 0 && c.Status.AllocatedResourceStatuses[v1.ResourceStorage] != "" {
		return nil // the node has been told
	}
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": c.UID}, "status": map[string]any{
		"allocatedResources":        v1.ResourceList{v1.ResourceStorage: asked},
		"allocatedResourceStatuses": map[v1.ResourceName]v1.ClaimResourceStatus{v1.ResourceStorage: v1.PersistentVolumeClaimNodeResizePending},
		"conditions": []v1.PersistentVolumeClaimCondition{{
			Type: v1.PersistentVolumeClaimFileSystemResizePending, Status: v1.ConditionTrue, LastTransitionTime: metav1.NewTime(time.Now()),
			Message: "Waiting for the node to grow the file system of the volume.",
		}},
	}})
	if err == nil {
		_, err = s.cfg.API.PersistentVolumeClaims(c.Namespace).Patch(ctx, c.Name, types.StrategicMergePatchType, body, metav1.PatchOptions{}, "status")
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("write the status of claim %s/%s: %w", c.Namespace, c.Name, err)
	}
	return nil
}
