package volume

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/core/inorder"
)

// Operation is an operation on a volume that has ended.
type Operation struct {
	// Plugin is the name of upstream's plugin for the volume's kind, for example kubernetes.io/secret. The name of a registered CSI driver
	// follows the name of the plugin: kubernetes.io/csi:disks.example.com. See UnknownPlugin.
	Plugin string
	// Name is upstream's name of the operation: volume_mount, volume_unmount, map_volume, unmap_volume, unmount_device or unmap_device.
	Name string
	// Migrated: the volume has a source of a former in-tree plugin.
	Migrated bool
	// Took includes the waits of the operation, for example for the attachment of the volume.
	Took time.Duration
	// Overall is the time from the beginning of the first try to mount the volume, with all tries that failed and the waits between them. It
	// is 0 unless the operation is a volume_mount that succeeded.
	Overall time.Duration
	Err     error
}

// UnknownPlugin is the plugin of a volume whose claim is not bound to a persistent volume, so that the kind of the volume is not known.
const UnknownPlugin = "N/A"

// pluginOf returns the name of the plugin for a kind of volume. It leaves out the name of a CSI driver that is not registered: a pod can
// name any driver, and each name would be a metric for as long as the agent lives.
func (v *Volumes) pluginOf(k kind, driver string) string {
	switch {
	case k == kindCSI && v.cfg.Driver(driver) != nil:
		return "kubernetes.io/csi:" + driver
	case k == kindClaim || k == kindInTree:
		return UnknownPlugin
	}
	return "kubernetes.io/" + string(k)
}

// pluginOfVolume returns the plugin of a pod's volume, and whether containers get the volume as a device.
func (v *Volumes) pluginOfVolume(uid types.UID, vol *v1.Volume) (plugin string, block bool) {
	k, err := kindOf(vol)
	switch {
	case err != nil || checkName("volume name", vol.Name) != nil:
		return UnknownPlugin, false
	case k == kindCSI:
		return v.pluginOf(kindCSI, vol.CSI.Driver), false
	case k == kindClaim, k == kindInTree:
		b, err := v.readRecord(uid, vol.Name)
		if err != nil {
			return UnknownPlugin, false
		}
		return v.pluginOf(b.Kind, b.Driver), b.Block
	}
	return v.pluginOf(k, ""), false
}

// mounted tells Config.Operated that the set-up of a volume has ended. If ctx has ended, the set-up has no result, because the agent gave it
// up; then mounted only remembers when the first try began.
func (v *Volumes) mounted(ctx context.Context, p *v1.Pod, vol *v1.Volume, began time.Time, err error) {
	if ctx.Err() != nil {
		v.tries.failed(p.UID, vol.Name, began)
		return
	}
	took := time.Since(began)
	k, _ := kindOf(vol)
	op := Operation{Name: "volume_mount", Migrated: k == kindInTree, Took: took, Err: err}
	var block bool
	if op.Plugin, block = v.pluginOfVolume(p.UID, vol); block {
		op.Name = "map_volume"
	}
	if err != nil {
		v.tries.failed(p.UID, vol.Name, began)
	} else if first := v.tries.succeeded(p.UID, vol.Name, began); !block {
		op.Overall = time.Since(first)
	}
	v.cfg.Operated(op)
}

// unmounted tells Config.Operated that the volume of kind k has been taken down, or that this failed. It does nothing if the agent gave the
// take-down up (ctx has ended), or if k is no kind of volume: TearDown also removes directories that somebody else made beside the volumes,
// and takes the name of the directory as the kind.
func (v *Volumes) unmounted(ctx context.Context, k kind, driver string, block bool, began time.Time, err error) {
	name := "volume_unmount"
	if block {
		name = "unmap_volume"
	}
	v.undone(ctx, k, driver, name, began, err)
}

// unstaged tells Config.Operated that a volume has been unstaged, or that this failed. It does nothing if ctx has ended, like unmounted.
func (v *Volumes) unstaged(ctx context.Context, b *bound, began time.Time, err error) {
	name := "unmount_device"
	if b.Block {
		name = "unmap_device"
	}
	v.undone(ctx, b.Kind, b.Driver, name, began, err)
}

func (v *Volumes) undone(ctx context.Context, k kind, driver, operation string, began time.Time, err error) {
	if ctx.Err() != nil || !k.hasDirectory() {
		return
	}
	v.cfg.Operated(Operation{Plugin: v.pluginOf(k, driver), Name: operation, Took: time.Since(began), Err: err})
}

// Count is a number of volumes with the same plugin.
type Count struct {
	Plugin          string
	Desired, Actual int
}

// Counts counts the volumes that the containers of these pods mount (Desired), and the volumes of all pods of the node that have been set up
// (Actual), by plugin. It reads the disk. A volume without a directory, such as a hostPath, counts as set up if its pod has a directory.
func (v *Volumes) Counts(pods []*v1.Pod) []Count {
	byPlugin := map[string]*Count{}
	of := func(plugin string) *Count {
		c := byPlugin[plugin]
		if c == nil {
			c = &Count{Plugin: plugin}
			byPlugin[plugin] = c
		}
		return c
	}
	present, err := v.Orphans(func(types.UID) bool { return false })
	if err != nil {
		v.cfg.Log.Debug("volumes are counted in part only", "err", err)
	}
	for _, p := range pods {
		here := slices.Contains(present, p.UID)
		for _, vol := range usedVolumes(p) {
			plugin, block := v.pluginOfVolume(p.UID, vol)
			of(plugin).Desired++
			if here && (block || plugin == v.pluginOf(kindHostPath, "") || plugin == v.pluginOf(kindImage, "")) {
				of(plugin).Actual++
			}
		}
	}
	for _, uid := range present {
		if err := v.countDirs(uid, of); err != nil {
			v.cfg.Log.Debug("volumes are counted in part only", "pod", uid, "err", err)
		}
	}
	out := make([]Count, 0, len(byPlugin))
	for _, c := range byPlugin {
		out = append(out, *c)
	}
	inorder.Sort(out, func(a, b Count) int { return cmp.Compare(a.Plugin, b.Plugin) })
	return out
}

// countDirs counts the directories of the volumes of a pod.
func (v *Volumes) countDirs(uid types.UID, of func(plugin string) *Count) error {
	kinds, err := v.cfg.Disk.ReadDir(v.layout.volumes(uid))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("list volumes: %w", err)
	}
	for _, dir := range kinds {
		k := kind(strings.TrimPrefix(dir.Name(), pluginPrefix))
		if !k.hasDirectory() {
			continue
		}
		if k == kindCSI {
			all, err := v.csiOf(uid)
			if err != nil {
				return err
			}
			for _, b := range all {
				if !b.Block {
					of(v.pluginOf(kindCSI, b.Driver)).Actual++
				}
			}
			continue
		}
		volumes, err := v.cfg.Disk.ReadDir(filepath.Join(v.layout.volumes(uid), dir.Name()))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("list volumes: %w", err)
		}
		of(v.pluginOf(k, "")).Actual += len(volumes)
	}
	return nil
}
