package volume_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/edge/volume"
	"github.com/wherry-node/wherry/internal/sim/simcsi"
)

// The CSI driver that has replaced an in-tree volume plugin (here that of AWS EBS) serves the volumes of the plugin: a persistent volume
// with a claim, and a volume that the pod itself names.
func TestInTreeVolumes(t *testing.T) {
	t.Parallel()
	f := newCSI(t, simcsi.Config{Stage: true})
	f.serves = "ebs.csi.aws.com"
	f.claims.drivers[f.serves] = &storagev1.CSIDriver{Spec: storagev1.CSIDriverSpec{AttachRequired: ptr(false)}}
	f.claims.bind("d", v1.PersistentVolumeSource{AWSElasticBlockStore: &v1.AWSElasticBlockStoreVolumeSource{VolumeID: "vol-1", FSType: "ext4"}}, v1.ReadWriteOnce)
	inline := v1.VolumeSource{AWSElasticBlockStore: &v1.AWSElasticBlockStoreVolumeSource{VolumeID: "vol-2", ReadOnly: true}}
	for _, c := range []struct {
		name, handle, dir string
		vol               v1.Volume
		readOnly          bool
	}{
		{"a", "vol-1", "pv-d", claim("v", "d", false), false},
		{"b", "vol-2", "ebs.csi.aws.com-vol-2", vol("v", inline), true},
	} {
		p := podOf(types.UID(c.name), c.vol)
		setUp(t, f.fixture, p)
		r := f.driver.LastPublish()
		if want := filepath.Join(f.root, "pods", string(p.UID), "volumes/kubernetes.io~csi", c.dir, "mount"); r.TargetPath != want || r.VolumeId != c.handle || r.StagingTargetPath == "" || r.Readonly != c.readOnly {
			t.Errorf("%s: the request to publish: %v", c.name, r)
		}
		mounts, err := f.Mounts(t.Context(), volume.MountInput{Pod: p, Container: &p.Spec.Containers[0]})
		if err != nil || mounts[0].HostPath != r.TargetPath || mounts[0].Readonly != c.readOnly {
			t.Errorf("%s: %v, %v", c.name, mounts, err)
		}
		f.Volumes = f.restart()
		setUp(t, f.fixture, p)
		if err := f.TearDown(t.Context(), pod.RefOf(p)); err != nil {
			t.Fatal(err)
		}
		if staged, published := f.driver.Holds(); staged+published != 0 {
			t.Errorf("%s: %d staged, %d published volumes are left", c.name, staged, published)
		}
	}
	p := podOf("c", vol("v", v1.VolumeSource{Cinder: &v1.CinderVolumeSource{VolumeID: "c"}}))
	wantError(t, f.SetUp(t.Context(), volume.Pod{Pod: p}), "v", "waits for CSI driver cinder.csi.openstack.org to register on this node")
}

// The name of an inline vSphere volume has the path of the volume, which contains '/'. The directory has '~' in its place, as with upstream's kubelet.
func TestInlineVSphereVolume(t *testing.T) {
	t.Parallel()
	f := newCSI(t, simcsi.Config{Stage: true})
	f.serves = "csi.vsphere.vmware.com"
	f.claims.drivers[f.serves] = &storagev1.CSIDriver{Spec: storagev1.CSIDriverSpec{AttachRequired: ptr(false)}}
	for _, path := range []string{"[Store] kubevols/disk.vmdk", "[Store] ../../disk.vmdk"} {
		p := podOf("a", vol("v", v1.VolumeSource{VsphereVolume: &v1.VsphereVirtualDiskVolumeSource{VolumePath: path}}))
		setUp(t, f.fixture, p)
		r := f.driver.LastPublish()
		want := filepath.Join(f.root, "pods/a/volumes/kubernetes.io~csi", f.serves+"-"+strings.ReplaceAll(path, "/", "~"), "mount")
		if r.VolumeId != path || r.TargetPath != want || dir(t, f.fixture, p, "v") != want {
			t.Errorf("%s: the request to publish: %v, want %s", path, r, want)
		}
		f.Volumes = f.restart()
		setUp(t, f.fixture, p)
		if err := f.TearDown(t.Context(), pod.RefOf(p)); err != nil {
			t.Fatal(err)
		}
		if staged, published := f.driver.Holds(); staged+published != 0 {
			t.Errorf("%s: %d staged, %d published volumes are left", path, staged, published)
		}
	}
}

// The author of a pod names the disk of an inline volume. The volume's directory, which has this name, is never that of another volume: a name that a
// persistent volume may have, and one with '~', which stands for '/', are refused before the driver is called.
func TestInlineDiskWithTheDirectoryOfAnotherVolume(t *testing.T) {
	t.Parallel()
	f := newCSI(t, simcsi.Config{Stage: true})
	f.disk("d", v1.ReadWriteOnce)
	for driver, c := range map[string]struct {
		source v1.VolumeSource
		want   string
	}{
		"disk.csi.azure.com":     {v1.VolumeSource{AzureDisk: &v1.AzureDiskVolumeSource{DiskName: "x", DataDiskURI: "pv-d"}}, `"pv-d" is no name of a disk`},
		"csi.vsphere.vmware.com": {v1.VolumeSource{VsphereVolume: &v1.VsphereVirtualDiskVolumeSource{VolumePath: "[Store] a~b"}}, "must not contain '~'"},
	} {
		f.serves = driver
		f.claims.drivers[driver] = &storagev1.CSIDriver{Spec: storagev1.CSIDriverSpec{AttachRequired: ptr(false)}}
		p := podOf("a", claim("v", "d", false), vol("w", c.source))
		wantError(t, f.SetUp(t.Context(), volume.Pod{Pod: p}), "w", c.want)
		if staged, published := f.driver.Holds(); staged != 1 || published != 1 {
			t.Errorf("%s: %d staged, %d published volumes, want only that of the claim", driver, staged, published)
		}
		if err := f.TearDown(t.Context(), pod.RefOf(p)); err != nil {
			t.Error(err)
		}
		if staged, published := f.driver.Holds(); staged+published != 0 {
			t.Errorf("%s: %d staged, %d published volumes are left", driver, staged, published)
		}
	}
}

// The CSI driver answers that it has published an inline volume, but has made nothing at the target path. Then the volume is an empty
// directory, as with upstream's kubelet. TearDown removes the directory with what a container has written into it.
func TestInlineVolumeForWhichTheDriverMakesNothing(t *testing.T) {
	t.Parallel()
	f := newCSI(t, simcsi.Config{})
	f.driver.SetFault("NodePublishVolume", &simcsi.Fault{Lie: true})
	p := podOf("a", vol("v", v1.VolumeSource{CSI: &v1.CSIVolumeSource{Driver: driverName}}))
	setUp(t, f.fixture, p)
	at := filepath.Join(f.root, "pods/a/volumes/kubernetes.io~csi/v/mount")
	if info, err := os.Stat(at); err != nil || !info.IsDir() {
		t.Errorf("%v, %v", info, err)
	}
	if err := os.WriteFile(filepath.Join(at, "file"), []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := f.TearDown(t.Context(), pod.RefOf(p)); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Dir(at)); !os.IsNotExist(err) {
		t.Errorf("left: %v", err)
	}
}
