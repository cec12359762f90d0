package debian

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// Needed returns the Debian packages that the development environment needs to build and run.
func Needed() []string {
	return []string{
		"busybox-static", "ca-certificates", "conntrack", "ethtool", "gcc", "iproute2", "iptables", "libc6-dev", "libseccomp-dev",
		"make", "nftables", "pkg-config", "socat", "xfsprogs",
	}
}

// Browser returns the Debian packages of the browser that the tests of the console use. Without it these tests are skipped.
func Browser() []string { return []string{"chromium"} }

// Missing returns those of the packages that are not installed. On a machine without dpkg it returns none.
func Missing(ctx context.Context, packages []string) ([]string, error) {
	if _, err := exec.LookPath("dpkg-query"); err != nil {
		return nil, nil
	}
	var missing []string
	for _, name := range packages {
		out, err := exec.CommandContext(ctx, "dpkg-query", "-W", "-f", "${db:Status-Status}\n", name).Output()
		if err != nil || !slices.Contains(strings.Fields(string(out)), "installed") {
			missing = append(missing, name)
		}
	}
	return missing, ctx.Err()
}

// Install installs those of the packages that are missing. If it needs root and does not have it, it returns an error that names the
// packages.
func Install(ctx context.Context, packages []string, progress io.Writer) error {
	missing, err := Missing(ctx, packages)
	if err != nil || len(missing) == 0 {
		return err
	}
	if os.Geteuid() != 0 {
		return fmt.Errorf("missing Debian packages: %s; as root: apt-get install %[1]s", strings.Join(missing, " "))
	}
	fmt.Fprintf(progress, "installing Debian packages: %s\n", strings.Join(missing, " "))
	if err := apt(ctx, "", "update", "-q"); err != nil {
		return err
	}
	return apt(ctx, "", append([]string{"install", "-q", "-y", "--no-install-recommends"}, missing...)...)
}

// Runtime downloads Debian's containerd and runc, extracts the programs below dir, and returns their directory. If they are already there,
// it does nothing.
func Runtime(ctx context.Context, dir string, progress io.Writer) (string, error) {
	bin := filepath.Join(dir, "bin")
	if _, err := os.Stat(filepath.Join(bin, "runc")); err == nil {
		return bin, nil
	}
	packages := filepath.Join(dir, "packages")
	for _, d := range []string{packages, bin} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return "", err
		}
	}
	fmt.Fprintln(progress, "downloading Debian's containerd and runc")
	if err := apt(ctx, packages, "download", "-q", "containerd", "runc"); err != nil {
		if os.Geteuid() != 0 {
			return "", err
		}
		if err := errors.Join(apt(ctx, "", "update", "-q"), apt(ctx, packages, "download", "-q", "containerd", "runc")); err != nil {
			return "", err
		}
	}
	files, _ := filepath.Glob(filepath.Join(packages, "*.deb"))
	for _, file := range files {
		if out, err := exec.CommandContext(ctx, "dpkg-deb", "-x", file, packages).CombinedOutput(); err != nil {
			return "", fmt.Errorf("extract %s: %w: %s", file, err, bytes.TrimSpace(out))
		}
	}
	// runc is moved last: if runc exists, all programs exist.
	for _, program := range []string{"bin/containerd", "bin/containerd-shim-runc-v2", "bin/ctr", "sbin/runc"} {
		if err := os.Rename(filepath.Join(packages, "usr", program), filepath.Join(bin, filepath.Base(program))); err != nil {
			return "", fmt.Errorf("extract Debian's containerd: %w", err)
		}
	}
	return bin, os.RemoveAll(packages)
}

// Program extracts one file of a Debian package to the path to, without installing the package. If that path exists, it does nothing.
func Program(ctx context.Context, name, file, to string) error {
	if _, err := os.Stat(to); err == nil {
		return nil
	}
	dir, err := os.MkdirTemp(filepath.Dir(to), "package-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := apt(ctx, dir, "download", "-q", name); err != nil {
		if os.Geteuid() != 0 {
			return err
		}
		if err := errors.Join(apt(ctx, "", "update", "-q"), apt(ctx, dir, "download", "-q", name)); err != nil {
			return err
		}
	}
	packages, _ := filepath.Glob(filepath.Join(dir, "*.deb"))
	for _, p := range packages {
		if out, err := exec.CommandContext(ctx, "dpkg-deb", "-x", p, dir).CombinedOutput(); err != nil {
			return fmt.Errorf("extract %s: %w: %s", p, err, bytes.TrimSpace(out))
		}
	}
	return os.Rename(filepath.Join(dir, file), to)
}

func apt(ctx context.Context, dir string, args ...string) error {
	cmd := exec.CommandContext(ctx, "apt-get", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
	if out, err := cmd.CombinedOutput(); err != nil {
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		return fmt.Errorf("apt-get %s: %w: %s", strings.Join(args, " "), err, strings.Join(lines[max(0, len(lines)-5):], "; "))
	}
	return nil
}
