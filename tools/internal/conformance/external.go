package conformance

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"text/template"

	"github.com/wherry-node/wherry/tools/internal/images"
	"github.com/wherry-node/wherry/tools/internal/runtime"
)

// driverImage is the image of the driver examples/csi.
const driverImage = "registry.k8s.io/wherry/csi-driver:1"

// externalSkip is a regular expression of the tests of External.Storage that do not run by default. Some cannot run here: they need the controller of
// snapshots, SELinux, Windows, a feature that is off by default, or a populator of volumes, whose image is not made here. The others are slow, or
// restart a node's agent.
const externalSkip = `\[Feature:(OffByDefault|SELinux|VolumeSnapshotDataSource|VolumeGroupSnapshotDataSource|volumegroupsnapshot|Windows)|any volume data source|` +
	`\[Slow\]|\[Serial\]|\[Disruptive\]`

// externalKinds returns the kinds of the driver examples/csi with which the tests run. Each is a driver of its own to Kubernetes.
func externalKinds() []string { return []string{"disk", "local", "share"} }

// volumesLimit is how many volumes of the kind disk a node says that it can have. One test makes that many volumes and one more; the tests that
// run at the same time must need fewer.
const volumesLimit = 40

// externalDriver returns the image of the driver: its program, and those that it runs, from this machine.
func externalDriver(ctx context.Context, bin string) (images.Image, error) {
	program, err := programs{bin}.file("csi-driver", "csi/driver", 0o755)
	if err != nil {
		return images.Image{}, err
	}
	files, err := images.Dynamic(ctx, "losetup", "mount", "mkfs.xfs", "xfs_growfs", "mkfs.ext4", "resize2fs")
	if err != nil {
		return images.Image{}, fmt.Errorf("%w (Debian packages mount, xfsprogs and e2fsprogs)", err)
	}
	mounts := images.File{Path: "etc/mtab", Mode: os.ModeSymlink | 0o777, Link: "../proc/self/mounts"} // resize2fs asks it whether a device is mounted
	return images.Image{Reference: driverImage, Files: append(files, program, mounts), Entrypoint: []string{"/csi-driver"}, Env: []string{images.SearchPath}}, nil
}

//go:embed external.yaml
var externalManifest string

// sidecar is a container beside the controller of a driver.
type sidecar struct {
	Name, Image string
	Args        []string
}

// externalObjects returns the objects that deploy a kind of the driver, as YAML. dir is the directory of the volumes.
func externalObjects(kind, dir string) (string, error) {
	local := kind == "local"
	with := []sidecar{{Name: "provisioner", Image: sidecars + provisionerImage}, {Name: "resizer", Image: sidecars + resizerImage}}
	limit := 0
	switch {
	case local: // its StorageClass names no file system, but Kubernetes gives the volume to a group only if the volume names one
		with[0].Args = []string{"--default-fstype=xfs", "--enable-capacity", "--capacity-ownerref-level=0", "--capacity-poll-interval=10s"}
	case kind == "disk":
		with = append(with, sidecar{Name: "attacher", Image: sidecars + attacherImage})
		limit = volumesLimit
	}
	manifest, err := template.New("driver").Parse(externalManifest)
	if err != nil {
		return "", err
	}
	var text strings.Builder
	err = manifest.Execute(&text, map[string]any{
		"Kind": kind, "Driver": externalName(kind), "Namespace": externalNamespace(kind), "Dir": dir, "Image": driverImage, "Attach": kind == "disk",
		"Local": local, "Limit": strconv.Itoa(limit), "Sidecars": with,
	})
	return text.String(), err
}

// externalName returns the name of a kind of the driver.
func externalName(kind string) string { return kind + ".wherry.dev" }

// externalNamespace returns the namespace of a kind's pods. Unlike a driver's name, it may not have dots.
func externalNamespace(kind string) string { return "csi-" + kind }

// testDriver returns the path of the file that tells the tests about a kind of the driver.
func (o Options) testDriver(kind string) string {
	return filepath.Join(o.Checkout, "conformance", "external", kind+".yaml")
}

// volumes returns the directory of the volumes of all kinds of the driver.
func (o Options) volumes() string { return o.dir("volumes") }

// deploy makes the drivers, and waits until each has registered on both nodes.
func (k *kubeadmCluster) deploy(ctx context.Context) error {
	const patience = "--timeout=5m"
	for _, kind := range k.kinds {
		objects, err := externalObjects(kind, filepath.Join(k.volumes, kind))
		if err != nil {
			return err
		}
		if _, err := k.Kubectl(ctx, objects, "apply", "-f", "-"); err != nil {
			return err
		}
	}
	for _, kind := range k.kinds {
		name := externalName(kind)
		for _, workload := range []string{"daemonset/node", "deployment/controller"} {
			if _, err := k.Kubectl(ctx, "", "rollout", "status", "-n", externalNamespace(kind), workload, patience); err != nil {
				return err
			}
		}
		if _, err := k.Kubectl(ctx, "", "wait", "csinode", "--all", fmt.Sprintf(`--for=jsonpath={.spec.drivers[?(@.name==%q)].name}=%s`, name, name), patience); err != nil {
			return err
		}
	}
	return nil
}

// removeVolumes removes the volumes that tests have left, and their loop devices. No node may use them any more.
func (o Options) removeVolumes(ctx context.Context) error {
	if err := runtime.DetachLoops(ctx, o.volumes()); err != nil {
		return err
	}
	return os.RemoveAll(o.volumes())
}
