package conformance

import (
	"fmt"

	"github.com/wherry-node/wherry/tools/internal/images"
)

// storageSkip is a regular expression of the storage tests that cannot run on this kind of machine, with any kubelet: they need a cloud, a kernel
// module (nfs, iscsi), SELinux, the controller of snapshots, Windows, a feature that is off by default, or the CSI driver csi-hostpath, whose
// sources cannot be had as a Go module.
const storageSkip = `\[Driver: (azure|cinder|csi-hostpath|gcepd|iscsi|nfs|pd\.csi|vsphere)|gce-localssd|` +
	`NFS|GCEPD|vsphere|Windows|DynamicProvisioner External|\[Feature:(Flexvolumes|Kind|OffByDefault|SELinux|StorageProvider|VolumeSnapshotDataSource)\]`

// storageImages returns the images of the CSI drivers that the tests of volumes deploy, under the names of v1.36.3's test/e2e/testing-manifests/storage-csi. The
// sidecars are upstream's, of the versions in tools/csi. The registrar and the driver are the stand-ins of the module conformance.
func storageImages(bin string) ([]images.Image, error) {
	base, err := system(bin)
	if err != nil {
		return nil, err
	}
	var set []images.Image
	for _, one := range [][2]string{
		{"csi-provisioner:v6.1.1", "csi-provisioner"}, {"csi-attacher:v4.11.0", "csi-attacher"}, {"csi-resizer:v2.1.0", "csi-resizer"},
		{"csi-node-driver-registrar:v2.16.0", "csiregistrar"}, {"hostpathplugin:v1.17.1", "hostpathplugin"},
	} {
		program, err := programs{bin}.file(one[1], "csi/"+one[1], 0o755)
		if err != nil {
			return nil, fmt.Errorf("image %s: %w", one[0], err)
		}
		set = append(set, images.Image{
			Reference: "registry.k8s.io/sig-storage/" + one[0], Files: append(base[:len(base):len(base)], program), Entrypoint: []string{"/" + one[1]}, Env: []string{images.SearchPath},
		})
	}
	return append(set, images.Image{Reference: e2eImages + "busybox:1.36.1-1", Files: base, Cmd: []string{"sh"}, Env: []string{images.SearchPath}}), nil
}
