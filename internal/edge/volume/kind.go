package volume

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/internal/core/csispec"
)

// kind is the kind of a volume, as it appears in the path of the volume's directory.
type kind string

// The kinds that this agent supports.
const (
	kindEmptyDir    kind = "empty-dir"
	kindConfigMap   kind = "configmap"
	kindSecret      kind = "secret"
	kindDownwardAPI kind = "downward-api"
	kindProjected   kind = "projected"
	kindHostPath    kind = "host-path" // has no directory
	kindImage       kind = "image"     // the agent makes no directory, because the runtime mounts the image
	kindLocal       kind = "local-volume"
	kindNFS         kind = "nfs"
	kindISCSI       kind = "iscsi"
	kindFC          kind = "fc"
	kindCSI         kind = "csi" // the mount point is a directory in the volume's directory
	// kindClaim is a volume with a PersistentVolumeClaim. The record that the agent writes of such a volume (see bound) has the
	// kind of the persistent volume instead, for example kindCSI or kindLocal.
	kindClaim kind = "claim"
	// kindInTree is a volume of a former in-tree plugin. The record that the agent writes of such a volume has kindCSI.
	kindInTree kind = "in-tree"
)

// pluginPrefix begins the names of the directories of volume kinds.
const pluginPrefix = "kubernetes.io~"

func (k kind) dir() string { return pluginPrefix + string(k) }

// files reports whether the volume's content comes from the API; such volumes are read-only for containers.
func (k kind) files() bool {
	switch k {
	case kindConfigMap, kindSecret, kindDownwardAPI, kindProjected:
		return true
	case kindEmptyDir, kindHostPath, kindImage, kindLocal, kindNFS, kindISCSI, kindFC, kindCSI, kindClaim, kindInTree:
		return false
	}
	return false
}

// hasDirectory reports whether the agent makes a directory for each volume of this kind, below the directory of the pod. It is false for
// the names of directories that the agent did not make.
func (k kind) hasDirectory() bool {
	switch k {
	case kindEmptyDir, kindConfigMap, kindSecret, kindDownwardAPI, kindProjected, kindLocal, kindNFS, kindISCSI, kindFC, kindCSI:
		return true
	case kindHostPath, kindImage, kindClaim, kindInTree:
		return false
	}
	return false
}

// ErrUnsupported means that this agent does not support the kind of a volume.
var ErrUnsupported = errors.New("volume kind is not supported")

// kindOf names the kind of a volume. A volume without a source is an emptyDir, as the API server defaults it.
func kindOf(vol *v1.Volume) (kind, error) {
	s := &vol.VolumeSource
	switch {
	case s.EmptyDir != nil || *s == (v1.VolumeSource{}):
		return kindEmptyDir, nil
	case s.ConfigMap != nil:
		return kindConfigMap, nil
	case s.Secret != nil:
		return kindSecret, nil
	case s.DownwardAPI != nil:
		return kindDownwardAPI, nil
	case s.Projected != nil:
		return kindProjected, nil
	case s.HostPath != nil:
		return kindHostPath, nil
	case s.Image != nil:
		return kindImage, nil
	case s.PersistentVolumeClaim != nil, s.Ephemeral != nil:
		return kindClaim, nil
	case s.CSI != nil:
		return kindCSI, nil
	case s.NFS != nil:
		return kindNFS, nil
	case s.ISCSI != nil:
		return kindISCSI, nil
	case s.FC != nil:
		return kindFC, nil
	case csispec.InTree(vol):
		return kindInTree, nil
	}
	return "", fmt.Errorf("%w: %s (what this node agent supports is in the table of its README; "+
		"use emptyDir, hostPath, configMap, secret, downwardAPI, projected, image, nfs, iscsi, fc, csi or persistentVolumeClaim, or another node)", ErrUnsupported, sourceName(s))
}

// sourceName returns the name of the volume's source field, for the error about an unsupported kind.
func sourceName(s *v1.VolumeSource) string {
	for _, f := range []struct {
		name string
		set  bool
	}{
		{"rbd", s.RBD != nil},
		{"cephfs", s.CephFS != nil}, {"glusterfs", s.Glusterfs != nil}, {"cinder", s.Cinder != nil},
		{"gitRepo", s.GitRepo != nil}, {"flexVolume", s.FlexVolume != nil}, {"flocker", s.Flocker != nil},
		{"awsElasticBlockStore", s.AWSElasticBlockStore != nil}, {"gcePersistentDisk", s.GCEPersistentDisk != nil},
		{"azureDisk", s.AzureDisk != nil}, {"azureFile", s.AzureFile != nil}, {"vsphereVolume", s.VsphereVolume != nil},
		{"quobyte", s.Quobyte != nil}, {"photonPersistentDisk", s.PhotonPersistentDisk != nil},
		{"portworxVolume", s.PortworxVolume != nil}, {"scaleIO", s.ScaleIO != nil}, {"storageos", s.StorageOS != nil},
	} {
		if f.set {
			return f.name
		}
	}
	return "a kind newer than this agent"
}

func (v *Volumes) setUpVolume(ctx context.Context, p Pod, vol *v1.Volume) error {
	if err := checkName("volume name", vol.Name); err != nil {
		return err
	}
	k, err := kindOf(vol)
	if err != nil {
		return err
	}
	switch {
	case k == kindHostPath:
		return v.setUpHostPath(ctx, vol.HostPath)
	case k == kindEmptyDir:
		return v.setUpEmptyDir(p, vol)
	case k == kindClaim:
		return v.setUpClaim(ctx, p, vol)
	case k == kindCSI:
		return v.setUpInline(ctx, p, vol)
	case k == kindNFS:
		return v.setUpNFS(ctx, vol.NFS, v.layout.volume(p.Pod.UID, k, vol.Name), nil)
	case k.san():
		return v.setUpSAN(ctx, p.Pod, vol)
	case k == kindInTree:
		return v.setUpInTree(ctx, p, vol)
	case k.files():
		return v.setUpFiles(ctx, p, vol, k)
	}
	return nil // the runtime mounts an image volume
}

// setUpFiles makes a volume of files from the API, or brings it up to date.
func (v *Volumes) setUpFiles(ctx context.Context, p Pod, vol *v1.Volume, k kind) error {
	dir := v.layout.volume(p.Pod.UID, k, vol.Name)
	files, err := (&resolver{ctx: ctx, objects: v.cfg.Objects, credentials: v.cfg.Credentials, pod: p, present: presentIn(dir)}).volume(vol)
	if err != nil {
		return err
	}
	group := fsGroup(p.Pod)
	if k == kindConfigMap {
		err = ensureDir(dir)
	} else { // files of Secrets, tokens and pod metadata are in a tmpfs, so that they are not written to disk
		err = v.ensureTmpfs(dir, memorySize(p, nil), group, secretFlags(vol))
	}
	if err != nil {
		return err
	}
	w := writer{dir: dir, group: group, remove: func(path string) error { return v.cfg.Host.RemoveTree(ctx, path) },
		inUse: func(data string) (bool, error) { return v.mountedFrom(p.Pod.UID, vol.Name, data) }}
	changed, err := w.write(files, nestedMountPoints(p.Pod, vol.Name))
	if err != nil {
		return err
	}
	if changed {
		v.cfg.Log.Debug("wrote volume", "pod", p.Pod.Namespace+"/"+p.Pod.Name, "volume", vol.Name, "kind", string(k), "files", len(files))
	}
	return nil
}

// ensureDir makes a volume's directory. Everybody may read the directory, because the agent does not know the users of the
// containers.
func ensureDir(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make volume directory: %w", err)
	}
	return nil
}

// secretFlags returns the mount flags of a volume that containers only read: nodev, nosuid and noexec. If the pod gives a file an
// execute bit, noexec is left out, because some pods run scripts from a Secret. Without an execute bit, noexec changes nothing for
// a container.
func secretFlags(vol *v1.Volume) uintptr {
	flags := uintptr(unix.MS_NOSUID | unix.MS_NODEV)
	for _, mode := range fileModes(vol) {
		if mode != nil && *mode&0o111 != 0 {
			return flags
		}
	}
	return flags | unix.MS_NOEXEC
}

// fileModes returns all modes that a volume of files from the API names.
func fileModes(vol *v1.Volume) (modes []*int32) {
	keys := func(items []v1.KeyToPath) {
		for i := range items {
			modes = append(modes, items[i].Mode)
		}
	}
	fields := func(items []v1.DownwardAPIVolumeFile) {
		for i := range items {
			modes = append(modes, items[i].Mode)
		}
	}
	if s := vol.Secret; s != nil {
		modes = append(modes, s.DefaultMode)
		keys(s.Items)
	}
	if d := vol.DownwardAPI; d != nil {
		modes = append(modes, d.DefaultMode)
		fields(d.Items)
	}
	if vol.Projected == nil {
		return modes
	}
	modes = append(modes, vol.Projected.DefaultMode)
	for i := range vol.Projected.Sources {
		s := &vol.Projected.Sources[i]
		if s.Secret != nil {
			keys(s.Secret.Items)
		}
		if s.ConfigMap != nil {
			keys(s.ConfigMap.Items)
		}
		if s.DownwardAPI != nil {
			fields(s.DownwardAPI.Items)
		}
	}
	return modes
}

// ensureTmpfs mounts a tmpfs on dir unless one is mounted there. The root directory of the tmpfs gets the mode 1777. If group is not
// negative, the directory belongs to this group and also gets the setgid bit.
func (v *Volumes) ensureTmpfs(dir string, size int64, group int, flags uintptr) error {
	if err := ensureDir(dir); err != nil {
		return err
	}
	mounted, err := v.cfg.Host.IsMountPoint(dir)
	if err != nil || mounted {
		return err
	}
	mode := os.ModeSticky | 0o777
	if group >= 0 {
		mode |= os.ModeSetgid
	}
	maySwap, err := v.cfg.Host.MountTmpfs(dir, size, mode, group, flags)
	if maySwap {
		v.swaps.Do(func() {
			v.cfg.Log.Warn("secrets of pods may be written to swap space: this kernel cannot keep a tmpfs out of it (noswap, Linux 6.4)",
				"do", "use a newer kernel, encrypted swap space, or none")
			if v.cfg.MaySwap != nil {
				v.cfg.MaySwap()
			}
		})
	}
	return err
}
