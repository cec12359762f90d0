package vm

import (
	"bytes"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Tools returns the Debian packages that are needed on the host to build an image and run a machine.
func Tools() []string { return []string{"e2fsprogs", "iproute2", "mmdebstrap", "qemu-system-x86"} }

// Image is the guest's system as files of the host: the kernel and the initial file system, which QEMU loads, and the disk.
type Image struct{ Kernel, Initrd, Disk string }

// Recipe is what an image is made of. Equal recipes make equal images, except for the versions of Debian's packages, which change with
// time.
type Recipe struct {
	Suite, Mirror string
	Packages      []string
	// Files are added to the system and replace existing ones. Their paths have no leading slash.
	Files fs.FS
	// Links are additional symbolic links: path to target.
	Links map[string]string
	// DiskMiB is the size of the guest's disk in MiB. Unused space takes no space on the host.
	DiskMiB int
}

//go:embed all:guest
var guest embed.FS

// Debian is a Recipe for Debian 12 with systemd, cgroup v2, the guest agent, and what a Kubernetes node needs besides the container runtime
// and the node agent.
func Debian() Recipe {
	files, err := fs.Sub(guest, "guest")
	if err != nil {
		panic(err) // cannot fail, because the directory guest is compiled in
	}
	return Recipe{
		Suite: "bookworm", Mirror: "http://deb.debian.org/debian", DiskMiB: 6 << 10, Files: files,
		Packages: []string{
			"apparmor", "busybox-static", "ca-certificates", "conntrack", "criu", "dbus", "e2fsprogs", "ethtool", "initramfs-tools", "iproute2", "iptables",
			"kmod", "less", "libseccomp2", "linux-image-cloud-amd64", "nfs-kernel-server", "nftables", "open-iscsi", "procps", "qemu-guest-agent", "socat", "systemd-sysv",
			"tgt", "udev",
		},
		Links: map[string]string{
			"etc/systemd/system/multi-user.target.wants/systemd-networkd.service": "/lib/systemd/system/systemd-networkd.service",
			"etc/systemd/system/multi-user.target.wants/containerd.service":       "/etc/systemd/system/containerd.service",
			"usr/local/bin/crictl": "/opt/payload/bin/crictl",
			"usr/local/bin/ctr":    "/opt/payload/bin/ctr",
		},
	}
}

// recipeVersion is a part of every Key. It has to be increased when a change of Build makes a different image from the same recipe.
const recipeVersion = "1"

// Key returns the name of the recipe's image in the cache. It depends on everything in the recipe.
func (r *Recipe) Key() (string, error) {
	h := sha256.New()
	fmt.Fprintf(h, "%s\n%s\n%s\n%q\n%q\n%d\n", recipeVersion, r.Suite, r.Mirror, r.Packages, r.Links, r.DiskMiB) // fmt sorts the keys of maps
	err := r.each(func(path string, mode fs.FileMode, data []byte) error {
		fmt.Fprintf(h, "%q %o %d\n%s", path, mode, len(data), data)
		return nil
	})
	return hex.EncodeToString(h.Sum(nil))[:16], err
}

// each calls the function do for every file of the recipe.
func (r *Recipe) each(do func(path string, mode fs.FileMode, data []byte) error) error {
	return fs.WalkDir(r.Files, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := fs.ReadFile(r.Files, path)
		if err != nil {
			return err
		}
		return do(path, 0o644, data)
	})
}

func imageIn(dir string) Image {
	return Image{Kernel: filepath.Join(dir, "vmlinuz"), Initrd: filepath.Join(dir, "initrd"), Disk: filepath.Join(dir, "disk.img")}
}

// Build returns the recipe's image from the cache directory. If the image is not there, Build makes it, which needs root. Concurrent calls
// for the same image wait for each other.
func Build(ctx context.Context, cache string, r Recipe, progress io.Writer) (Image, error) {
	key, err := r.Key()
	if err != nil {
		return Image{}, err
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return Image{}, err
	}
	unlock, err := lock(filepath.Join(cache, "lock"))
	if err != nil {
		return Image{}, err
	}
	defer unlock()
	dir := filepath.Join(cache, key)
	if _, err := os.Stat(dir); err == nil {
		return imageIn(dir), nil
	}
	began := time.Now()
	fmt.Fprintf(progress, "building an image of Debian (%s) in %s; it is kept there\n", r.Suite, dir)
	if err := r.build(ctx, dir); err != nil {
		return Image{}, fmt.Errorf("build the image: %w", err)
	}
	fmt.Fprintf(progress, "image built in %.0f s\n", time.Since(began).Seconds())
	return imageIn(dir), nil
}

// build makes the image in a temporary directory, and renames that directory to dir when the image is complete.
func (r *Recipe) build(ctx context.Context, dir string) (err error) {
	work, err := os.MkdirTemp(filepath.Dir(dir), "building-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	root, out := filepath.Join(work, "root"), filepath.Join(work, "out")
	if err := os.Mkdir(out, 0o755); err != nil {
		return err
	}
	args := []string{
		"--variant=minbase", "--mode=root", "--format=directory", "--quiet", "--skip=cleanup/apt/lists",
		"--aptopt=Acquire::Languages \"none\"", "--aptopt=APT::Install-Recommends \"false\"",
		"--dpkgopt=path-exclude=/usr/share/man/*", "--dpkgopt=path-exclude=/usr/share/doc/*", "--dpkgopt=path-exclude=/usr/share/locale/*",
		// The exclusions apply only to packages of the image. Packages that are installed in the guest later are complete.
		`--customize-hook=rm -f "$1/etc/dpkg/dpkg.cfg.d/99mmdebstrap" "$1/etc/apt/apt.conf.d/99mmdebstrap"`,
		"--include=" + strings.Join(r.Packages, ","), r.Suite, root, r.Mirror,
	}
	if err := run(ctx, "mmdebstrap", args...); err != nil {
		return err
	}
	if err := r.overlay(root); err != nil {
		return err
	}
	image := imageIn(out)
	for pattern, to := range map[string]string{"vmlinuz-*": image.Kernel, "initrd.img-*": image.Initrd} {
		found, err := filepath.Glob(filepath.Join(root, "boot", pattern))
		if err != nil || len(found) != 1 {
			return fmt.Errorf("find the kernel: %d files are %s", len(found), pattern)
		}
		if err := os.Rename(found[0], to); err != nil {
			return err
		}
	}
	if err := FileSystem(ctx, image.Disk, root, "root", r.DiskMiB); err != nil {
		return err
	}
	return os.Rename(out, dir)
}

func (r *Recipe) overlay(root string) error {
	err := r.each(func(path string, mode fs.FileMode, data []byte) error {
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		return os.WriteFile(path, data, mode)
	})
	for path, target := range r.Links {
		path = filepath.Join(root, path)
		err = errors.Join(err, os.MkdirAll(filepath.Dir(path), 0o755), os.Symlink(target, path))
	}
	return err
}

// FileSystem makes a file of the size mib (in MiB) with an ext4 file system, which contains the files of the directory dir.
func FileSystem(ctx context.Context, file, dir, label string, mib int) error {
	return run(ctx, "mke2fs", "-q", "-t", "ext4", "-L", label, "-d", dir, "-E", "lazy_itable_init=1,lazy_journal_init=1", file, fmt.Sprintf("%dM", mib))
}

// lock waits until it has locked the file path. unlock releases the lock.
func lock(path string) (unlock func(), err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), file.Close())
	}
	return func() { _ = file.Close() }, nil
}

// run runs a program. If the program fails, the error contains its output.
func run(ctx context.Context, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.WaitDelay = 10 * time.Second
	out, err := cmd.CombinedOutput()
	if err != nil {
		lines := strings.Split(string(bytes.TrimSpace(out)), "\n")
		return fmt.Errorf("%s: %w: %s", name, err, strings.Join(lines[max(0, len(lines)-6):], "; "))
	}
	return nil
}
