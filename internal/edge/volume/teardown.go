package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/core/pod"
)

// unmountRounds is how often the mount table is read at most to unmount a directory. Each mount of a stack of mounts on one directory takes one round.
const unmountRounds = 16

// TearDown unmounts and deletes the volumes of a pod whose containers have all ended. It finds them on disk and in the mount
// table, so it needs no pod object. Termination messages and the hosts file stay until Remove.
func (v *Volumes) TearDown(ctx context.Context, ref pod.Ref) error {
	return v.clear(ctx, ref, subpathsDir, volumesDir, devicesDir, pluginsDir, claimsDir) // records last: they show which volumes are in use
}

// Remove deletes everything of the pod, also what TearDown keeps.
func (v *Volumes) Remove(ctx context.Context, ref pod.Ref) error {
	return v.clear(ctx, ref, "")
}

// clear unmounts everything below the pod's directory and deletes the given parts of the directory; "" stands for all of it.
func (v *Volumes) clear(ctx context.Context, ref pod.Ref, parts ...string) error {
	if err := checkName("pod UID", string(ref.UID)); err != nil {
		return failedTearDown(ref, err)
	}
	v.walks.forget(ref.UID)
	v.measures.forget(ref.UID)
	v.waits.forget(ref.UID)
	v.tries.forget(ref.UID)
	v.visits.forget(ref.UID)
	dir := v.layout.pod(ref.UID)
	if !v.cfg.Disk.Exists(dir) {
		return nil
	}
	records, err := v.records(ref.UID)
	if err != nil {
		return failedTearDown(ref, err)
	}
	if err := v.unmountBelow(ctx, filepath.Join(dir, subpathsDir)); err != nil { // first: a subPath keeps its volume busy
		return failedTearDown(ref, err)
	}
	if err := v.unmountOthers(ctx, ref.UID); err != nil {
		return failedTearDown(ref, err)
	}
	if err := v.releaseLocal(ctx, ref.UID); err != nil {
		return failedTearDown(ref, err)
	}
	if err := errors.Join(v.takeDownNFS(ctx, ref.UID), v.takeDownSAN(ctx, ref.UID), v.takeDownCSI(ctx, ref.UID)); err != nil {
		return failedTearDown(ref, err)
	}
	if err := v.unmountBelow(ctx, dir); err != nil {
		return failedTearDown(ref, err)
	}
	for _, part := range parts {
		if err := v.cfg.Host.RemoveTree(ctx, filepath.Join(dir, part)); err != nil {
			return failedTearDown(ref, err)
		}
	}
	for _, b := range records {
		v.wake(b.key())
	}
	return nil
}

func failedTearDown(ref pod.Ref, err error) error {
	return &Error{
		Reason: "FailedUnmount", Err: err,
		Message: fmt.Sprintf("cannot clear the volumes of pod %s, will try again: %v", ref, err),
	}
}

// unmountOthers unmounts all volumes of a pod except those of a driver, a server or a storage area network. It runs before those are unmounted,
// so that a driver or a server that hangs or fails keeps only its own volumes mounted.
func (v *Volumes) unmountOthers(ctx context.Context, uid types.UID) error {
	entries, err := v.cfg.Disk.ReadDir(v.layout.volumes(uid))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list volumes: %w", err)
	}
	for _, e := range entries {
		switch e.Name() {
		case kindCSI.dir(), kindNFS.dir(), kindISCSI.dir(), kindFC.dir():
			continue
		}
		began := time.Now()
		err := v.unmountBelow(ctx, filepath.Join(v.layout.volumes(uid), e.Name()))
		v.unmounted(ctx, kind(strings.TrimPrefix(e.Name(), pluginPrefix)), "", false, began, err)
		if err != nil {
			return err
		}
	}
	return nil
}

// unmountBelow unmounts everything at or below dir, the newest mount first, until no mount is left.
func (v *Volumes) unmountBelow(ctx context.Context, dir string) error {
	// The mount table contains resolved paths.
	real, err := v.cfg.Disk.Resolve(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("resolve pod directory: %w", err)
	}
	for range unmountRounds {
		points, err := v.cfg.Host.MountPoints(real)
		if err != nil {
			return err
		}
		if len(points) == 0 {
			return nil
		}
		for i := len(points) - 1; i >= 0; i-- {
			if !strings.HasPrefix(points[i]+"/", real+"/") {
				return fmt.Errorf("mount table names %s, which is not below %s", points[i], real)
			}
			if err := v.cfg.Host.Unmount(points[i]); err != nil {
				return err
			}
			if err := ctx.Err(); err != nil {
				return fmt.Errorf("unmount below pod directory: %w", err)
			}
		}
	}
	return fmt.Errorf("something keeps mounting below %s: find it with `findmnt -R %s`", dir, dir)
}

// unmountAll calls unmount until nothing is mounted on the directory or file at a path.
func (v *Volumes) unmountAll(path string, unmount func(path string) error) error {
	for range unmountRounds {
		mounted, err := v.cfg.Host.Mounted(path)
		if err != nil || !mounted {
			return err
		}
		if err := unmount(path); err != nil {
			return err
		}
	}
	return fmt.Errorf("something keeps mounting on %s", path)
}

// Orphans lists the pods that have a directory and for which known returns false.
func (v *Volumes) Orphans(known func(types.UID) bool) ([]types.UID, error) {
	entries, err := v.cfg.Disk.ReadDir(v.layout.pods())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list pod directories: %w", err)
	}
	var orphans []types.UID
	for _, e := range entries {
		if uid := types.UID(e.Name()); e.IsDir() && !known(uid) {
			orphans = append(orphans, uid)
		}
	}
	return orphans, nil
}
