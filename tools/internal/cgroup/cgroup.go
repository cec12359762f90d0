package cgroup

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Name returns the name of the cgroup for an environment whose files are in dir.
func Name(dir string) string {
	sum := sha256.Sum256([]byte(dir))
	return "/wherry-" + hex.EncodeToString(sum[:4])
}

// roots returns the directories of the cgroup hierarchies: one on cgroup v2, one per controller on v1, all of these on a hybrid
// machine.
func roots() []string {
	const top = "/sys/fs/cgroup"
	if _, err := os.Stat(top + "/cgroup.controllers"); err == nil {
		return []string{top}
	}
	dirs, _ := os.ReadDir(top)
	var found []string
	for _, dir := range dirs {
		if dir.IsDir() { // links lead to hierarchies that are in the list already
			found = append(found, filepath.Join(top, dir.Name()))
		}
	}
	return found
}

// Remove kills all processes in the cgroup parent and below it, and removes these cgroups from every hierarchy.
func Remove(ctx context.Context, parent string) error {
	deadline := time.Now().Add(20 * time.Second)
	for {
		var left []string
		for _, root := range roots() {
			left = append(left, removeTree(root+parent)...)
		}
		if len(left) == 0 {
			return nil
		}
		if time.Now().After(deadline) || ctx.Err() != nil {
			return fmt.Errorf("remove cgroups: left: %s", strings.Join(left, " "))
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// removeTree kills all processes in the cgroup top and below it, removes these cgroups, and returns those that could not be removed.
func removeTree(top string) (left []string) {
	var dirs []string
	_ = filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			dirs = append(dirs, path)
		}
		return nil // a cgroup that has just disappeared is no error
	})
	slices.Reverse(dirs)
	for _, dir := range dirs {
		if data, err := os.ReadFile(filepath.Join(dir, "cgroup.procs")); err == nil {
			for pid := range strings.FieldsSeq(string(data)) {
				var n int
				if _, err := fmt.Sscan(pid, &n); err == nil && n > 1 && n != os.Getpid() {
					_ = unix.Kill(n, unix.SIGKILL)
				}
			}
		}
		if err := unix.Rmdir(dir); err != nil && !errors.Is(err, unix.ENOENT) {
			left = append(left, dir)
		}
	}
	return left
}

// Make creates the cgroup parent in every hierarchy. The node creates its cgroups below it.
func Make(parent string) error {
	for _, root := range roots() {
		dir := root + parent
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("make cgroup: %w", err)
		}
		// A new cpuset (cgroup v1) has no CPUs and no memory nodes, and no process can join it until it has some.
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
			above, err := os.ReadFile(filepath.Join(root, file))
			if err != nil || !strings.HasSuffix(root, "cpuset") {
				continue
			}
			if err := os.WriteFile(filepath.Join(dir, file), above, 0o644); err != nil {
				return fmt.Errorf("make cgroup: %w", err)
			}
		}
	}
	return nil
}
