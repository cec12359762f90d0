package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	v1 "k8s.io/api/core/v1"
)

// setUpHostPath does what checkHostPath does, and waits for a file system that does not answer only so long.
func (v *Volumes) setUpHostPath(ctx context.Context, src *v1.HostPathVolumeSource) error {
	if src.Type != nil && *src.Type != v1.HostPathUnset {
		if err := v.touch(ctx, src.Path); err != nil {
			return fmt.Errorf("hostPath type check failed: %s: %w", src.Path, err)
		}
	}
	return checkHostPath(src)
}

// checkHostPath checks that the path has the type that the hostPath names; it follows links. An empty type checks
// nothing. The two ...OrCreate types make a missing directory (0755) or file (0644), owned by root.
func checkHostPath(src *v1.HostPathVolumeSource) error {
	if src.Path == "" {
		return errors.New("hostPath.path is empty: name a path of the node")
	}
	want := v1.HostPathUnset
	if src.Type != nil {
		want = *src.Type
	}
	if want == v1.HostPathUnset {
		return nil
	}
	info, err := os.Stat(src.Path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("hostPath type check failed: %w", err)
	}
	if missing := err != nil; missing {
		switch want {
		case v1.HostPathDirectoryOrCreate:
			if err := os.MkdirAll(src.Path, 0o755); err != nil {
				return fmt.Errorf("make hostPath directory: %w", err)
			}
			return nil
		case v1.HostPathFileOrCreate:
			return makeFile(src.Path)
		}
	}
	var ok bool
	var what string
	switch want {
	case v1.HostPathDirectory, v1.HostPathDirectoryOrCreate:
		ok, what = info != nil && info.IsDir(), "a directory"
	case v1.HostPathFile, v1.HostPathFileOrCreate:
		ok, what = info != nil && info.Mode().IsRegular(), "a file"
	case v1.HostPathSocket:
		ok, what = hasType(info, fs.ModeSocket), "a socket file"
	case v1.HostPathCharDev:
		ok, what = hasType(info, fs.ModeDevice|fs.ModeCharDevice), "a character device"
	case v1.HostPathBlockDev:
		ok, what = hasType(info, fs.ModeDevice), "a block device"
	default:
		return fmt.Errorf("hostPath.type %q is unknown: use Directory, DirectoryOrCreate, File, FileOrCreate, Socket, CharDevice, BlockDevice or none", want)
	}
	if !ok {
		return fmt.Errorf("hostPath type check failed: %s is not %s%s", src.Path, what, whatItIs(info))
	}
	return nil
}

func hasType(info fs.FileInfo, want fs.FileMode) bool {
	return info != nil && info.Mode().Type() == want
}

func whatItIs(info fs.FileInfo) string {
	if info == nil {
		return " (it does not exist on this node)"
	}
	switch t := info.Mode().Type(); t {
	case 0:
		return " (it is a file)"
	case fs.ModeDir:
		return " (it is a directory)"
	case fs.ModeSocket:
		return " (it is a socket)"
	case fs.ModeDevice:
		return " (it is a block device)"
	case fs.ModeDevice | fs.ModeCharDevice:
		return " (it is a character device)"
	case fs.ModeNamedPipe:
		return " (it is a named pipe)"
	default:
		return ""
	}
}

func makeFile(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("make hostPath file: %w (FileOrCreate makes no parent directory: create it, or mount it as DirectoryOrCreate first)", err)
	}
	if err != nil {
		return fmt.Errorf("make hostPath file: %w", err)
	}
	return f.Close()
}
