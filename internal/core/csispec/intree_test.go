package csispec_test

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	translation "k8s.io/csi-translation-lib"

	"github.com/wherry-node/wherry/internal/core/csispec"
)

func TestTranslated(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name           string
		src            v1.PersistentVolumeSource
		driver, handle string
	}{
		{"EBS", v1.PersistentVolumeSource{AWSElasticBlockStore: &v1.AWSElasticBlockStoreVolumeSource{VolumeID: "vol-1", FSType: "xfs"}}, "ebs.csi.aws.com", "vol-1"},
		{"Cinder", v1.PersistentVolumeSource{Cinder: &v1.CinderPersistentVolumeSource{VolumeID: "c1"}}, "cinder.csi.openstack.org", "c1"},
		{"Azure disk", v1.PersistentVolumeSource{AzureDisk: &v1.AzureDiskVolumeSource{DiskName: "d", DataDiskURI: "/subscriptions/1/d"}}, "disk.csi.azure.com", "/subscriptions/1/d"},
		{"vSphere", v1.PersistentVolumeSource{VsphereVolume: &v1.VsphereVirtualDiskVolumeSource{VolumePath: "[ds] kubevols/d.vmdk"}}, "csi.vsphere.vmware.com", "[ds] kubevols/d.vmdk"},
	} {
		pv := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}, Spec: v1.PersistentVolumeSpec{PersistentVolumeSource: c.src}}
		got, err := csispec.Translated(pv)
		if err != nil || got.Spec.CSI == nil || got.Spec.CSI.Driver != c.driver || got.Spec.CSI.VolumeHandle != c.handle || got.Name != "pv" {
			t.Errorf("%s: %+v, %v", c.name, got, err)
		}
		if pv.Spec.CSI != nil {
			t.Errorf("%s: the persistent volume itself was changed", c.name)
		}
	}
	own := &v1.PersistentVolume{Spec: v1.PersistentVolumeSpec{PersistentVolumeSource: v1.PersistentVolumeSource{NFS: &v1.NFSVolumeSource{}}}}
	if got, err := csispec.Translated(own); got != own || err != nil {
		t.Errorf("a kind without a CSI driver: %v, %v", got, err)
	}
	bad := &v1.PersistentVolume{Spec: v1.PersistentVolumeSpec{PersistentVolumeSource: v1.PersistentVolumeSource{AzureFile: &v1.AzureFilePersistentVolumeSource{}}},
		ObjectMeta: metav1.ObjectMeta{Name: "pv"}}
	if _, err := csispec.Translated(bad); err != nil && !strings.Contains(err.Error(), `persistentvolume "pv"`) {
		t.Errorf("error %v", err)
	}
}

func TestTranslatedInline(t *testing.T) {
	t.Parallel()
	vol := &v1.Volume{Name: "data", VolumeSource: v1.VolumeSource{AWSElasticBlockStore: &v1.AWSElasticBlockStoreVolumeSource{VolumeID: "vol-1", ReadOnly: true}}}
	if !csispec.InTree(vol) || csispec.InTree(&v1.Volume{VolumeSource: v1.VolumeSource{NFS: &v1.NFSVolumeSource{}}}) {
		t.Error("InTree is wrong")
	}
	pv, err := csispec.TranslatedInline(vol, "ns")
	if err != nil || pv.Spec.CSI.Driver != "ebs.csi.aws.com" || pv.Name != "ebs.csi.aws.com-vol-1" || !pv.Spec.CSI.ReadOnly {
		t.Errorf("%+v, %v", pv, err)
	}
	if _, err := csispec.TranslatedInline(&v1.Volume{}, "ns"); err == nil {
		t.Error("no error for a volume without a source")
	}
}

// TestMigratedPlugins checks that the translation library supports each plugin in MigratedPlugins, the list for the CSINode object.
func TestMigratedPlugins(t *testing.T) {
	t.Parallel()
	for name := range strings.SplitSeq(csispec.MigratedPlugins, ",") {
		if !translation.New().IsMigratableIntreePluginByName(name) {
			t.Errorf("%s is not migratable", name)
		}
	}
}
