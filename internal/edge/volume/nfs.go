package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// An NFS volume is mounted for each pod at <root>/pods/<uid>/volumes/kubernetes.io~nfs/<name>, where upstream's kubelet mounts it too.
// <name> is the name of the persistent volume, or of the pod's volume if the pod names the server itself. The mount tools of the
// machine mount and unmount the volume. Each tool runs in a process of its own for a limited time, and no lock is held meanwhile. So a
// server that does not answer delays only the pods that use it.

// nfsSource returns the source of an NFS mount as mount.nfs(8) takes it.
func nfsSource(src *v1.NFSVolumeSource) (string, error) {
	server := src.Server
	switch {
	case server == "" || strings.HasPrefix(server, "-") || strings.ContainsAny(server, "/ \t\n\x00"):
		return "", fmt.Errorf("nfs.server %q is not a host name or an address", server)
	case !strings.HasPrefix(src.Path, "/") || strings.ContainsAny(src.Path, "\n\x00"):
		return "", fmt.Errorf("nfs.path %q is not an absolute path of the server", src.Path)
	case strings.Contains(server, ":") && !strings.HasPrefix(server, "["): // an IPv6 address
		server = "[" + server + "]"
	}
	return server + ":" + src.Path, nil
}

// mountArgs returns the command line of mount(8).
func mountArgs(fstype, source, dir string, options []string) []string {
	argv := []string{"mount", "-t", fstype}
	if len(options) > 0 {
		argv = append(argv, "-o", strings.Join(options, ","))
	}
	return append(argv, source, dir)
}

// setUpNFS mounts an NFS volume on dir, unless it is mounted there.
func (v *Volumes) setUpNFS(ctx context.Context, src *v1.NFSVolumeSource, dir string, options []string) error {
	source, err := nfsSource(src)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o750); err != nil {
		return fmt.Errorf("make volume directory: %w", err)
	}
	mounted, err := v.cfg.Host.Mounted(dir)
	if err != nil || mounted {
		return err
	}
	if err := os.Mkdir(dir, 0o750); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("make volume directory: %w", err)
	}
	if src.ReadOnly {
		options = append(options[:len(options):len(options)], "ro")
	}
	if _, err := v.runTool(ctx, dir, mountWithin, mountArgs("nfs", source, dir, options)...); err != nil {
		return fmt.Errorf("mount NFS volume %s: %w", source, err)
	}
	return nil
}

// takeDownNFS unmounts the NFS volumes of a pod whose containers have ended. It unmounts all of them concurrently.
func (v *Volumes) takeDownNFS(ctx context.Context, uid types.UID) error {
	parent := filepath.Join(v.layout.volumes(uid), kindNFS.dir())
	entries, err := v.cfg.Disk.ReadDir(parent)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list NFS volumes: %w", err)
	}
	return together(entries, func(e fs.DirEntry) error {
		began := time.Now()
		err := v.unmountNetwork(ctx, filepath.Join(parent, e.Name()))
		v.unmounted(ctx, kindNFS, "", false, began, err)
		return err
	})
}

// unmountNetwork unmounts a network file system in up to three tries. The first is an ordinary unmount. If it fails or takes too long,
// the second forces the unmount, which ends the requests to a server that does not answer. If a program of the machine still uses the
// mount, the third detaches it lazily, as the agent does with every other volume of a pod that has ended.
func (v *Volumes) unmountNetwork(ctx context.Context, dir string) error {
	var err error
	for _, argv := range [][]string{
		{"umount", "-c", dir}, // -c: umount does not resolve the path, for which it would have to ask the server
		{"umount", "-c", "-f", dir},
		{"umount", "-c", "-f", "-l", dir},
	} {
		mounted, readErr := v.cfg.Host.Mounted(dir)
		if readErr != nil {
			return readErr
		}
		if !mounted {
			return nil
		}
		if _, err = v.runTool(ctx, dir, unmountWithin, argv...); ctx.Err() != nil {
			break
		}
	}
	if mounted, readErr := v.cfg.Host.Mounted(dir); readErr != nil || !mounted {
		return readErr
	}
	if err == nil {
		err = errors.New("something is mounted there again and again")
	}
	return fmt.Errorf("unmount NFS volume %s: %w", filepath.Base(dir), err)
}
