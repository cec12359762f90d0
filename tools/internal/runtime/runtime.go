package runtime

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wherry-node/wherry/tools/internal/proc"
)

// Start starts the instance and waits until it serves CRI. If the instance already runs, Start keeps it.
func Start(ctx context.Context, c Config) error {
	if err := c.validate(); err != nil {
		return err
	}
	if err := c.writeConfig(); err != nil {
		return fmt.Errorf("configure containerd in %s: %w", c.Dir, err)
	}
	for {
		started, err := c.launch(ctx)
		if err != nil {
			return err
		}
		// If the instance ran before and has ended in the meantime, the loop starts a new one.
		if err = c.awaitCRI(ctx); err == nil || started || Running(c) {
			return err
		}
	}
}

// launch starts containerd unless it already runs. started reports whether this call has started it.
func (c Config) launch(ctx context.Context) (started bool, err error) {
	if Running(c) {
		return false, nil
	}
	if err := c.recordMachine(ctx); err != nil {
		return false, err
	}
	path := c.programs() + ":" + c.Bin + ":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	_, err = proc.Start(proc.Spec{
		PIDFile: c.pidFile(), Log: c.logFile(), Path: filepath.Join(c.programs(), "containerd"),
		Args: []string{"--config", c.path("config.toml")}, Env: []string{"PATH=" + path}, Dir: c.Dir,
	})
	return err == nil, err
}

func (c Config) awaitCRI(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		err := c.crictl(ctx, nil, "version")
		if err == nil {
			return nil
		}
		p, running := proc.Find(c.pidFile())
		if !running {
			return fmt.Errorf("start containerd: it ended; last lines of %s:\n%s", c.logFile(), tail(c.logFile(), 8))
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("start containerd (process %d): no answer on %s: %w", p.PID, c.Socket(), err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// Running reports whether the containerd of the instance runs.
func Running(c Config) bool {
	_, ok := proc.Find(c.pidFile())
	return ok
}

// Import imports an archive of images and makes them visible over CRI. It pins the sandbox image, so that it is never removed.
func Import(ctx context.Context, c Config, archive string) error {
	if err := c.run(ctx, nil, "ctr", "--address", c.Socket(), "-n", "k8s.io", "images", "import", "--snapshotter", "overlayfs", archive); err != nil {
		return fmt.Errorf("import images of %s: %w", archive, err)
	}
	return c.run(ctx, nil, "ctr", "--address", c.Socket(), "-n", "k8s.io", "images", "label", c.SandboxImage, "io.cri-containerd.pinned=pinned")
}

// Stop ends the instance and everything that it started. It needs only the files on disk, and may be repeated. Containers are killed
// without a grace period. To end pods gracefully, the node agent has to stop them before.
func Stop(ctx context.Context, c Config) error {
	var errs []error
	if Running(c) {
		bounded, cancel := context.WithTimeout(ctx, 45*time.Second)
		// An error does not matter, because the steps below kill what is left.
		_ = c.crictl(bounded, nil, "rmp", "--all", "--force")
		cancel()
	}
	errs = append(errs, proc.Stop(ctx, c.pidFile(), 15*time.Second))
	errs = append(errs, c.endTasks(ctx))
	errs = append(errs, c.unmount(ctx))
	errs = append(errs, c.removeRules(ctx), c.restoreMachine(ctx))
	c.removeTraces()
	return errors.Join(errs...)
}

// Purge calls Stop and removes the instance's directory.
func Purge(ctx context.Context, c Config) error {
	if err := Stop(ctx, c); err != nil {
		return err
	}
	// Files below a mount that is still there may belong to the machine, so nothing is removed then.
	mounts, err := MountsBelow(c.Dir)
	if err != nil {
		return err
	}
	if len(mounts) > 0 {
		return fmt.Errorf("remove %s: still mounted below it: %s", c.Dir, strings.Join(mounts, " "))
	}
	return os.RemoveAll(c.Dir)
}

// endTasks kills the containers and shims that have outlived containerd.
func (c Config) endTasks(ctx context.Context) error {
	shims, err := proc.Matching(func(args []string) bool {
		return strings.HasPrefix(filepath.Base(args[0]), "containerd-shim") && strings.Contains(strings.Join(args, " "), " -address "+c.Socket())
	})
	if err != nil {
		return err
	}
	var errs []error
	bundles, _ := filepath.Glob(c.path("state/io.containerd.runtime.v2.task/*/*"))
	for _, bundle := range bundles {
		namespace, id := filepath.Base(filepath.Dir(bundle)), filepath.Base(bundle)
		if _, err := os.Stat(filepath.Join(c.path("runc"), namespace, id)); err != nil {
			continue
		}
		errs = append(errs, c.run(ctx, nil, "runc", "--root", filepath.Join(c.path("runc"), namespace), "delete", "--force", id))
	}
	for _, shim := range shims {
		errs = append(errs, shim.Kill(ctx))
	}
	for _, bundle := range bundles {
		removeShimSocket(bundle)
	}
	return errors.Join(errs...)
}

// removeShimSocket removes the socket of a killed shim. A file in the shim's bundle directory has the socket's path.
func removeShimSocket(bundle string) {
	for _, name := range []string{"address", "bootstrap.json"} {
		data, err := os.ReadFile(filepath.Join(bundle, name))
		if err != nil {
			continue
		}
		_, rest, ok := strings.Cut(string(data), "unix://")
		if !ok {
			continue
		}
		path := strings.FieldsFunc(rest, func(r rune) bool { return r == '"' || r == '\n' })
		if len(path) > 0 && strings.HasPrefix(path[0], "/run/containerd/s/") {
			_ = os.Remove(path[0])
		}
	}
}

// unmount unmounts everything below the instance's directory, innermost first. A network namespace disappears with its mount.
func (c Config) unmount(ctx context.Context) error {
	mounts, err := MountsBelow(c.Dir)
	if err != nil {
		return err
	}
	var errs []error
	for _, mount := range mounts {
		if err := unix.Unmount(mount, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) {
			errs = append(errs, fmt.Errorf("unmount %s: %w", mount, err))
		}
	}
	namespaces, _ := filepath.Glob(c.path("state/netns/*"))
	for _, file := range namespaces {
		_ = os.Remove(file)
	}
	return errors.Join(append(errs, ctx.Err())...)
}

// removeTraces removes files that containerd and CNI leave at fixed paths of the machine, if they belong to this instance or are empty.
func (c Config) removeTraces() {
	results, _ := filepath.Glob("/var/lib/cni/results/*")
	for _, file := range results {
		if data, err := os.ReadFile(file); err == nil && bytes.Contains(data, []byte(`":"`+c.Dir+"/")) {
			_ = os.Remove(file)
		}
	}
	// os.Remove does not remove directories that have files.
	for _, dir := range []string{"/var/lib/cni/results", "/var/lib/cni/cache", "/var/lib/cni", "/run/containerd/s", "/run/containerd/io.containerd.sandbox.controller.v1.shim", "/run/containerd", "/run/cni/dhcp"} {
		_ = os.Remove(dir)
	}
	groups, _ := filepath.Glob("/sys/fs/cgroup/*/k8s.io")
	for _, dir := range append(groups, "/sys/fs/cgroup/k8s.io") {
		_ = os.Remove(dir)
	}
}

// network returns the name of the instance's CNI network, which depends on its directory.
func (c Config) network() string {
	sum := sha256.Sum256([]byte(c.Dir))
	return "wherry-" + hex.EncodeToString(sum[:4])
}

func (c Config) crictl(ctx context.Context, out *bytes.Buffer, args ...string) error {
	endpoint := "unix://" + c.Socket()
	return c.run(ctx, out, "crictl", append([]string{"--runtime-endpoint", endpoint, "--image-endpoint", endpoint, "--timeout", "30s"}, args...)...)
}

// run runs one of the instance's programs. crictl is always the one that this project builds, also with Debian's containerd.
func (c Config) run(ctx context.Context, out *bytes.Buffer, program string, args ...string) error {
	path := filepath.Join(c.programs(), program)
	if program == "crictl" {
		path = filepath.Join(c.Bin, program)
	}
	cmd := exec.CommandContext(ctx, path, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if out != nil {
		cmd.Stdout = out
	}
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", program, strings.Join(args, " "), err, bytes.TrimSpace(stderr.Bytes()))
	}
	return nil
}

func tail(path string, lines int) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimSpace(string(data)), "\n")
	return "  " + strings.Join(all[max(0, len(all)-lines):], "\n  ")
}
