package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/wherry-node/wherry/internal/sim/simstorage"
)

// These are the paths of the objects that openStorage creates.
const (
	classesPath = "/apis/storage.k8s.io/v1/storageclasses"
	driversPath = "/apis/storage.k8s.io/v1/csidrivers"
)

// storageKinds are the kinds of the objects that openStorage creates, in the order in which they are removed.
var storageKinds = []accessKind{{"storage classes", classesPath, ""}, {"CSI drivers", driversPath, ""}}

// driverNames returns the names of the CSI drivers of all groups, sorted.
func driverNames(groups []Group) (names []string) {
	for i := range groups {
		for _, d := range groups[i].CSIDrivers {
			names = append(names, d.Name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// openStorage creates, for each CSI driver, the CSIDriver object and a storage class of the same name, unless they exist. It does nothing without
// Config.Storage.
func (f *Fleet) openStorage(ctx context.Context) error {
	if f.storage == nil {
		return nil
	}
	yes, waits := true, storagev1.VolumeBindingWaitForFirstConsumer
	for _, name := range driverNames(f.cfg.Groups) {
		meta := metav1.ObjectMeta{Name: name, Labels: map[string]string{LabelFleet: f.cfg.Name}}
		for _, o := range []struct {
			path   string
			object any
		}{
			{driversPath, storagev1.CSIDriver{
				TypeMeta: metav1.TypeMeta{APIVersion: "storage.k8s.io/v1", Kind: "CSIDriver"}, ObjectMeta: meta, Spec: storagev1.CSIDriverSpec{AttachRequired: &yes},
			}},
			{classesPath, storagev1.StorageClass{
				TypeMeta: metav1.TypeMeta{APIVersion: "storage.k8s.io/v1", Kind: "StorageClass"}, ObjectMeta: meta, Provisioner: name,
				VolumeBindingMode: &waits, AllowVolumeExpansion: &yes,
			}},
		} {
			body, err := json.Marshal(o.object)
			if err == nil {
				err = f.api.CreateJSON(ctx, o.path, body)
			}
			if err != nil && !apierrors.IsAlreadyExists(err) {
				return fmt.Errorf("create the storage class of driver %s: %w", name, err)
			}
		}
	}
	return nil
}

// closeStorage removes what openStorage has created, unless the fleet leaves its objects in the cluster.
func (f *Fleet) closeStorage(ctx context.Context) error {
	if f.storage == nil || f.cfg.Keep {
		return nil
	}
	var errs []error
	for _, k := range storageKinds {
		errs = append(errs, k.removeAll(ctx, f.api, f.selector()))
	}
	return errors.Join(errs...)
}

// newStorage returns what makes and attaches the volumes of the fleet's CSI drivers; nil: somebody else does.
func newStorage(f *Fleet) *simstorage.Storage {
	names := driverNames(f.cfg.Groups)
	if !f.cfg.Storage || len(names) == 0 {
		return nil
	}
	return simstorage.New(simstorage.Config{API: f.api, Drivers: names, Log: f.cfg.Log})
}
