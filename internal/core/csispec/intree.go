package csispec

import (
	"errors"
	"fmt"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	translation "k8s.io/csi-translation-lib"
)

// MigratedPlugins are the names of the former in-tree volume plugins whose volumes this agent hands to CSI drivers.
const MigratedPlugins = "kubernetes.io/aws-ebs,kubernetes.io/azure-disk,kubernetes.io/azure-file,kubernetes.io/cinder," +
	"kubernetes.io/gce-pd,kubernetes.io/portworx-volume,kubernetes.io/vsphere-volume"

// Translated returns a persistent volume of a former in-tree plugin as a volume of the CSI driver that has replaced the plugin. It returns
// any other persistent volume as it is.
func Translated(pv *v1.PersistentVolume) (*v1.PersistentVolume, error) {
	lib := translation.New()
	if pv == nil || !lib.IsPVMigratable(pv) {
		return pv, nil
	}
	out, err := lib.TranslateInTreePVToCSI(logr.Discard(), pv)
	if err == nil && (out == nil || out.Spec.CSI == nil) {
		err = errors.New("no CSI volume results")
	}
	if err != nil {
		return nil, fmt.Errorf("translate persistentvolume %q to a CSI volume: %w", pv.Name, err)
	}
	return out, nil
}

// InTree reports whether the source of a pod's volume belongs to a former in-tree plugin that a CSI driver has replaced.
func InTree(vol *v1.Volume) bool { return translation.New().IsInlineMigratable(vol) }

// TranslatedInline converts a pod's volume of a former in-tree plugin to a persistent volume of the CSI driver that has replaced the
// plugin. The name of the result is the same on each node.
func TranslatedInline(vol *v1.Volume, namespace string) (*v1.PersistentVolume, error) {
	out, err := translation.New().TranslateInTreeInlineVolumeToCSI(logr.Discard(), vol, namespace)
	if err == nil && (out == nil || out.Spec.CSI == nil) {
		err = errors.New("no CSI volume results")
	}
	if err != nil {
		return nil, fmt.Errorf("translate the volume to a CSI volume: %w", err)
	}
	return out, nil
}
