package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// subPath is one volumeMount with a subPath.
type subPath struct {
	in     *MountInput
	index  int
	volume *v1.Volume
	dir    string // name of the directory of the volume's subPaths: that of the persistent volume, if there is one
	kind   kind
	root   string // path of the volume on the node
	path   string // path below root, already checked by subPathOf
}

// bindSubPath opens a subPath so that no link leads out of the volume, and bind-mounts the opened file or directory at a path
// that no container can reach. The runtime gets that path, so a container cannot replace the mounted file or directory. The error
// for users contains nothing of the host's file system.
func (v *Volumes) bindSubPath(ctx context.Context, s subPath) (string, error) {
	for field, name := range map[string]string{"container name": s.in.Container.Name, "volume name": s.dir} {
		if err := checkName(field, name); err != nil {
			return "", err
		}
	}
	target := v.layout.subpath(s.in.Pod.UID, s.dir, s.in.Container.Name, s.index)
	if !s.kind.files() && s.kind != kindEmptyDir { // those are the agent's own
		err := v.answers(ctx, "subpath/"+target, func() {
			if f, err := v.cfg.Host.OpenBeneath(s.root, s.path); err == nil {
				_ = f.Close()
			}
		})
		if err != nil {
			return "", fmt.Errorf("subPath %q: %w", s.path, err)
		}
	}
	for range bindTries {
		switch done, err := v.bindTo(s, target); {
		case err != nil:
			return "", err
		case done:
			return target, nil
		}
	}
	return "", fmt.Errorf("the files of the volume change all the time: subPath %q cannot be mounted", s.path)
}

// bindTries is how often a subPath of files from the API is mounted at most, because the files have changed meanwhile.
const bindTries = 5

// bindTo mounts a subPath on target. It returns false if the files of the volume have been replaced since it opened them: they may have been removed before they
// were mounted. If they are replaced later, the writer sees that they are in use.
func (v *Volumes) bindTo(s subPath, target string) (done bool, err error) {
	f, err := v.openSubPath(s)
	if err != nil {
		return false, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return false, fmt.Errorf("stat subPath %q: %w", s.path, err)
	}
	if have, err := os.Lstat(target); err == nil && os.SameFile(have, info) {
		return true, nil // the mount of the previous attempt still exists
	}
	// If there is a mount, it shows an older file or directory, which has been replaced since then, or its file system is dead.
	if err := v.cfg.Host.Unmount(target); err != nil {
		return false, fmt.Errorf("unmount old subPath %q: %w", s.path, err)
	}
	if err := makeTarget(target, info.IsDir()); err != nil {
		return false, err
	}
	err = v.cfg.Host.Bind(f, target)
	switch {
	case s.kind.files() && errors.Is(err, fs.ErrNotExist): // the kernel mounts no directory that was removed
		return false, nil
	case err != nil:
		return false, fmt.Errorf("prepare subPath %q: %w", s.path, err)
	case !s.kind.files():
		return true, nil
	}
	again, err := v.openSubPath(s)
	if err != nil {
		return false, err
	}
	defer again.Close()
	now, err := again.Stat()
	if err != nil {
		return false, fmt.Errorf("stat subPath %q: %w", s.path, err)
	}
	return os.SameFile(now, info), nil
}

// mountedFrom reports whether a container of a pod has mounted, as a subPath of a volume, a directory below the directory dir. A file that is mounted keeps its
// content also after it was removed.
func (v *Volumes) mountedFrom(uid types.UID, volume, dir string) (bool, error) {
	parent := filepath.Join(v.layout.pod(uid), subpathsDir, volume)
	containers, err := readDir(parent)
	if err != nil {
		return false, err
	}
	var mounted []fs.FileInfo
	for _, container := range containers {
		targets, err := readDir(filepath.Join(parent, container.Name()))
		if err != nil {
			return false, err
		}
		for _, target := range targets {
			info, err := os.Lstat(filepath.Join(parent, container.Name(), target.Name()))
			if err != nil {
				return false, err
			}
			if info.IsDir() {
				mounted = append(mounted, info)
			}
		}
	}
	if len(mounted) == 0 {
		return false, nil
	}
	found := false
	err = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil && slices.ContainsFunc(mounted, func(m fs.FileInfo) bool { return os.SameFile(m, info) }) {
			found = true
			return fs.SkipAll
		}
		return err
	})
	return found, err
}

// openSubPath opens the subPath. If the subPath is missing, it makes a directory with the volume's own mode. The runtime would make
// a directory with a mode of its own. In a volume of files from the API, a missing subPath is an error unless a source is
// optional.
func (v *Volumes) openSubPath(s subPath) (*os.File, error) {
	f, err := v.cfg.Host.OpenBeneath(s.root, s.path)
	switch {
	case err == nil:
		return f, nil
	case !errors.Is(err, fs.ErrNotExist):
		return nil, v.hideHost(s, err)
	case s.kind.files() && !optionalSource(s.volume):
		return nil, fmt.Errorf("subPath %q does not exist: no source of this %s volume gives such a file", s.path, s.kind)
	}
	root, err := os.Stat(s.root)
	if err != nil {
		return nil, v.hideHost(s, err)
	}
	f, err = v.cfg.Host.MkdirBeneath(s.root, s.path, root.Mode()&(fs.ModePerm|fs.ModeSetgid|fs.ModeSetuid|fs.ModeSticky))
	if err != nil {
		return nil, v.hideHost(s, err)
	}
	return f, nil
}

// hideHost logs the details of an error and removes them from the error, because they could show the host's file system to a pod. The error says what is wrong
// with the file system of the volume, if that is the reason.
func (v *Volumes) hideHost(s subPath, err error) error {
	v.cfg.Log.Warn("cannot open subPath", "pod", s.in.Pod.Namespace+"/"+s.in.Pod.Name, "container", s.in.Container.Name,
		"volume", s.volume.Name, "subPath", s.path, "err", err)
	why := "it must name a file or directory inside of the volume, and no symbolic link may lead outside"
	var errno unix.Errno
	if errors.As(err, &errno) && slices.Contains(ofFileSystem, errno) {
		why = errno.Error()
	}
	return fmt.Errorf("failed to prepare subPath %q: %s (details are in the node's log)", s.path, why)
}

// ofFileSystem lists the errors that say something about the file system of a volume, and nothing about the host.
var ofFileSystem = []unix.Errno{unix.EROFS, unix.ENOSPC, unix.EDQUOT, unix.EIO, unix.ESTALE, unix.ENOTCONN, unix.EACCES, unix.EPERM, unix.EMLINK}

// makeTarget makes the empty file or directory that the bind mount covers. Only the agent writes to the directories
// above it.
func makeTarget(target string, dir bool) error {
	if err := os.MkdirAll(filepath.Dir(target), 0o750); err != nil {
		return fmt.Errorf("make subPath directory: %w", err)
	}
	have, err := os.Lstat(target)
	if err == nil && have.IsDir() != dir {
		if err := os.Remove(target); err != nil {
			return fmt.Errorf("replace subPath target: %w", err)
		}
	}
	if dir {
		err = os.Mkdir(target, 0o750)
	} else {
		var f *os.File
		if f, err = os.OpenFile(target, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o640); err == nil {
			err = f.Close()
		}
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("make subPath target: %w", err)
	}
	return nil
}

// optionalSource reports whether a volume of files has an optional source. If so, a missing subPath becomes an empty directory.
func optionalSource(vol *v1.Volume) bool {
	switch {
	case vol.ConfigMap != nil:
		return isTrue(vol.ConfigMap.Optional)
	case vol.Secret != nil:
		return isTrue(vol.Secret.Optional)
	case vol.Projected != nil:
		for _, s := range vol.Projected.Sources {
			if (s.ConfigMap != nil && isTrue(s.ConfigMap.Optional)) || (s.Secret != nil && isTrue(s.Secret.Optional)) {
				return true
			}
		}
	}
	return false
}
