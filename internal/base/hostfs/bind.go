package hostfs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// OpenDir opens a directory for Bind. It follows links: the path comes from an administrator, not from a pod. If the path is no
// directory, the error is unix.ENOTDIR.
func (Host) OpenDir(path string) (*os.File, error) { return openRoot(path) }

// Mounted reports whether something is mounted on dir. Bind mounts count, too. It only reads the mount table, so it does not hang when the
// mounted file system hangs.
func (Host) Mounted(dir string) (bool, error) {
	real, err := filepath.EvalSymlinks(filepath.Dir(dir)) // the mount table has resolved paths
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("resolve directory of %s: %w", dir, err)
	}
	at := filepath.Join(real, filepath.Base(dir))
	on, err := mountPoints(func(point []byte) bool { return string(point) == at })
	if err != nil {
		return false, fmt.Errorf("read mounts on %s: %w", dir, err)
	}
	return len(on) > 0, nil
}

// MountsOfSame lists the mount points at or below the directory below of the file system that is mounted on dir. It only reads the mount table,
// as Mounted does. It returns none if nothing is mounted on dir.
func (Host) MountsOfSame(dir, below string) (points []string, err error) {
	at, err := filepath.EvalSymlinks(filepath.Dir(dir))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("resolve directory of %s: %w", dir, err)
	}
	at = filepath.Join(at, filepath.Base(dir))
	all, err := mountinfo.GetMounts(nil)
	if err != nil {
		return nil, fmt.Errorf("read mounts on %s: %w", dir, err)
	}
	var here *mountinfo.Info
	for _, m := range all { // the last mount on a path is the one that is seen
		if m.Mountpoint == at {
			here = m
		}
	}
	if here == nil {
		return nil, nil
	}
	for _, m := range all {
		if m.Major == here.Major && m.Minor == here.Minor && strings.HasPrefix(m.Mountpoint+"/", below+"/") {
			points = append(points, m.Mountpoint)
		}
	}
	return points, nil
}

// flagOptions are the options of mount(8) that concern one mount and not its file system: for each option, the flags that it sets
// and the flags that it clears.
var flagOptions = map[string]struct{ set, clear uintptr }{
	"ro": {set: unix.MS_RDONLY}, "rw": {clear: unix.MS_RDONLY},
	"nosuid": {set: unix.MS_NOSUID}, "suid": {clear: unix.MS_NOSUID},
	"nodev": {set: unix.MS_NODEV}, "dev": {clear: unix.MS_NODEV},
	"noexec": {set: unix.MS_NOEXEC}, "exec": {clear: unix.MS_NOEXEC},
	"noatime": {set: unix.MS_NOATIME, clear: unix.MS_RELATIME}, "atime": {clear: unix.MS_NOATIME},
	"nodiratime": {set: unix.MS_NODIRATIME}, "diratime": {clear: unix.MS_NODIRATIME},
	"relatime": {set: unix.MS_RELATIME, clear: unix.MS_NOATIME}, "norelatime": {clear: unix.MS_RELATIME},
	"strictatime": {set: unix.MS_STRICTATIME, clear: unix.MS_NOATIME | unix.MS_RELATIME},
	"bind":        {}, "rbind": {}, "defaults": {},
}

// SetMountOptions applies options of mount(8), in their order, to the mount on target. Other mounts of the same file system do not change.
// Flags that no option names stay as they are. It returns the options that concern a whole file system. They have no effect, because a bind
// mount cannot change them.
func (Host) SetMountOptions(target string, options []string) (without []string, err error) {
	var st unix.Statfs_t
	if err := statfs(target, &st); err != nil {
		return nil, fmt.Errorf("statfs %s: %w", target, err)
	}
	was := mountFlags(st.Flags)
	flags := was
	for _, list := range options {
		for o := range strings.SplitSeq(list, ",") {
			f, known := flagOptions[o]
			if !known && o != "" {
				without = append(without, o)
			}
			flags = flags&^f.clear | f.set
		}
	}
	if flags == was {
		return without, nil
	}
	if err := unix.Mount("", target, "", unix.MS_BIND|unix.MS_REMOUNT|flags, ""); err != nil {
		return without, fmt.Errorf("set options %q of mount %s: %w", options, target, err)
	}
	return without, nil
}

// mountFlags converts the flags of statfs to those of mount.
func mountFlags(st int64) (flags uintptr) {
	for _, f := range []struct {
		st int64
		ms uintptr
	}{
		{unix.ST_RDONLY, unix.MS_RDONLY}, {unix.ST_NOSUID, unix.MS_NOSUID}, {unix.ST_NODEV, unix.MS_NODEV}, {unix.ST_NOEXEC, unix.MS_NOEXEC},
		{unix.ST_NOATIME, unix.MS_NOATIME}, {unix.ST_NODIRATIME, unix.MS_NODIRATIME}, {unix.ST_RELATIME, unix.MS_RELATIME},
	} {
		if st&f.st != 0 {
			flags |= f.ms
		}
	}
	return flags
}
