package simstorage

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// remove deletes a volume whose claim is gone, unless its policy keeps it, or it is still attached to a node.
func (s *Storage) remove(ctx context.Context, pv *v1.PersistentVolume) error {
	if pv.Status.Phase != v1.VolumeReleased || pv.Spec.PersistentVolumeReclaimPolicy != v1.PersistentVolumeReclaimDelete ||
		pv.DeletionTimestamp != nil || !s.has(pv.Annotations[annotationMadeBy]) || s.isAttached(pv.Name) {
		return nil
	}
	err := s.cfg.API.PersistentVolumes().Delete(ctx, pv.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(pv.UID))})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete the volume %s: %w", pv.Name, err)
	}
	return nil
}

func (s *Storage) isAttached(volume string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.attachments {
		if name := a.Spec.Source.PersistentVolumeName; name != nil && *name == volume {
			return true
		}
	}
	return false
}

// attach says that a volume is attached.
func (s *Storage) attach(ctx context.Context, a *storagev1.VolumeAttachment) error {
	if a.Status.Attached || a.DeletionTimestamp != nil {
		return nil
	}
	body := fmt.Appendf(nil, `{"metadata":{"uid":%q},"status":{"attached":true}}`, a.UID)
	_, err := s.cfg.API.VolumeAttachments().Patch(ctx, a.Name, types.MergePatchType, body, metav1.PatchOptions{}, "status")
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("write the status of the VolumeAttachment %s: %w", a.Name, err)
	}
	return nil
}
