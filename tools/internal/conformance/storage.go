package conformance

import (
	"context"
	"fmt"

	"github.com/wherry-node/wherry/tools/internal/images"
)

// storageSkip is a regular expression of the storage tests that cannot run on this kind of machine, with any kubelet: they need a cloud, a kernel
// module (nfs, iscsi), SELinux, the controller of snapshots, Windows, a feature that is off by default, or the CSI driver csi-hostpath, whose
// sources cannot be had as a Go module.
const storageSkip = `\[Driver: (azure|cinder|csi-hostpath|gcepd|iscsi|nfs|pd\.csi|vsphere)|gce-localssd|` +
	`NFS|GCEPD|vsphere|Windows|DynamicProvisioner External|\[Feature:(Flexvolumes|Kind|OffByDefault|SELinux|StorageProvider|VolumeSnapshotDataSource)\]`

// These are the images of the sidecars in upstream's manifests of v1.36.3 (test/e2e/testing-manifests/storage-csi). The programs are upstream's,
// of the versions in tools/csi.
const (
	sidecars         = "registry.k8s.io/sig-storage/"
	provisionerImage = "csi-provisioner:v6.1.1"
	attacherImage    = "csi-attacher:v4.11.0"
	resizerImage     = "csi-resizer:v2.1.0"
)

// driverImages returns the images of the CSI drivers of the suite: those that the tests of volumes deploy, under the names of v1.36.3's
// test/e2e/testing-manifests/storage-csi, or the driver that Up deploys. The sidecars are upstream's, of the versions in tools/csi. The registrar
// and the driver that the tests deploy are the stand-ins of the module conformance.
func (o Options) driverImages(ctx context.Context) ([]images.Image, error) {
	if o.Suite != SuiteStorage && o.Suite != SuiteExternal {
		return nil, nil
	}
	base, err := system(o.bin(""))
	if err != nil {
		return nil, err
	}
	set := []images.Image{{Reference: e2eImages + "busybox:1.36.1-1", Files: base, Cmd: []string{"sh"}, Env: []string{images.SearchPath}}}
	list := [][2]string{{provisionerImage, "csi-provisioner"}, {attacherImage, "csi-attacher"}, {resizerImage, "csi-resizer"}}
	if o.Suite == SuiteStorage {
		list = append(list, [2]string{"csi-node-driver-registrar:v2.16.0", "csiregistrar"}, [2]string{"hostpathplugin:v1.17.1", "hostpathplugin"})
	}
	for _, one := range list {
		program, err := programs{o.bin("")}.file(one[1], "csi/"+one[1], 0o755)
		if err != nil {
			return nil, fmt.Errorf("image %s: %w", one[0], err)
		}
		set = append(set, images.Image{
			Reference: sidecars + one[0], Files: append(base[:len(base):len(base)], program), Entrypoint: []string{"/" + one[1]}, Env: []string{images.SearchPath},
		})
	}
	if o.Suite == SuiteExternal {
		driver, err := externalDriver(ctx, o.bin(""))
		if err != nil {
			return nil, err
		}
		set = append(set, driver)
	}
	return set, nil
}
