package perform

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/crispec"
	"github.com/wherry-node/wherry/internal/pod"
)

// LogDirs keeps the directories and links of container logs where node agents keep them. The log files
// themselves are the runtime's.
type LogDirs struct {
	Root string // for example /var/log/pods
	// LinkDir gets one link per container log, named as log collectors expect; "": none.
	LinkDir string
	// RemoveTree removes a directory and never what is mounted below it.
	RemoveTree func(dir string) error
}

var _ Logs = (*LogDirs)(nil)

// Make makes the log directories of all containers of a pod.
func (d *LogDirs) Make(p *v1.Pod) error {
	logs := crispec.LogDir(d.Root, p)
	for c := range crispec.Containers(p) {
		if err := os.MkdirAll(filepath.Join(logs, c.Name), 0o755); err != nil {
			return fmt.Errorf("make log directory: %w", err)
		}
	}
	return nil
}

// Link gives an attempt's log the name that log collectors look for.
func (d *LogDirs) Link(p *v1.Pod, container, id string, attempt uint32) error {
	if d.LinkDir == "" {
		return nil
	}
	if err := os.MkdirAll(d.LinkDir, 0o755); err != nil {
		return fmt.Errorf("make container log directory: %w", err)
	}
	link := filepath.Join(d.LinkDir, fmt.Sprintf("%s_%s_%s-%s.log", p.Name, p.Namespace, container, id))
	err := os.Symlink(crispec.LogPath(d.Root, p, container, attempt), link)
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("link container log: %w", err)
	}
	return nil
}

// Remove removes the log of one attempt, its rotated parts and the links to it.
func (d *LogDirs) Remove(ref pod.Ref, container string, attempt uint32) error {
	dir := filepath.Join(crispec.LogDirOf(d.Root, ref), container)
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read log directory: %w", err)
	}
	for _, e := range entries {
		if n, ok := crispec.ParseLogAttempt(e.Name()); ok && n == attempt {
			if err := os.Remove(filepath.Join(dir, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("remove container log: %w", err)
			}
		}
	}
	log := filepath.Join(dir, filepath.Base(crispec.LogName(container, attempt)))
	return d.removeLinks(ref, func(target string) bool { return target == log })
}

// RemovePod removes all logs of a pod.
func (d *LogDirs) RemovePod(ref pod.Ref) error {
	if ref.Name == "" { // found by its UID alone, by what it left
		var err error
		if ref, err = d.named(ref); err != nil || ref.Name == "" {
			return err
		}
	}
	if err := d.RemoveTree(crispec.LogDirOf(d.Root, ref)); err != nil {
		return fmt.Errorf("remove log directory: %w", err)
	}
	dir := crispec.LogDirOf(d.Root, ref) + "/"
	return d.removeLinks(ref, func(target string) bool { return strings.HasPrefix(target, dir) })
}

// Orphans lists the pods that left logs and that known does not know, and removes links that lead to no pod's logs.
func (d *LogDirs) Orphans(known func(types.UID) bool) ([]types.UID, error) {
	entries, err := os.ReadDir(d.Root)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list log directories: %w", err)
	}
	if err := d.sweepLinks(); err != nil {
		return nil, err
	}
	var orphans []types.UID
	for _, e := range entries {
		parts := strings.SplitN(e.Name(), "_", 3)
		if len(parts) == 3 && parts[2] != "" && e.IsDir() && !known(types.UID(parts[2])) {
			orphans = append(orphans, types.UID(parts[2]))
		}
	}
	return orphans, nil
}

// named finds the name of a pod in that of its log directory, <namespace>_<name>_<uid>; neither part has a '_'.
func (d *LogDirs) named(ref pod.Ref) (pod.Ref, error) {
	entries, err := os.ReadDir(d.Root)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return ref, fmt.Errorf("list log directories: %w", err)
	}
	for _, e := range entries {
		if parts := strings.SplitN(e.Name(), "_", 3); len(parts) == 3 && parts[2] == string(ref.UID) && e.IsDir() {
			ref.Namespace, ref.Name = parts[0], parts[1]
		}
	}
	return ref, nil
}

// removeLinks removes the pod's links in LinkDir to logs that are gone for good. That a log is missing is no sign: one that
// is being rotated is, for a moment.
func (d *LogDirs) removeLinks(ref pod.Ref, gone func(target string) bool) error {
	if d.LinkDir == "" || ref.Name == "" {
		return nil
	}
	links, err := filepath.Glob(filepath.Join(d.LinkDir, ref.Name+"_"+ref.Namespace+"_*.log"))
	if err != nil {
		return fmt.Errorf("list container log links: %w", err)
	}
	for _, l := range links {
		if target, err := os.Readlink(l); err != nil || !gone(target) {
			continue
		}
		if err := os.Remove(l); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove container log link: %w", err)
		}
	}
	return nil
}

// sweepLinks removes links to logs of pods that left no log directory: their removal was cut short, or somebody else's.
func (d *LogDirs) sweepLinks() error {
	if d.LinkDir == "" {
		return nil
	}
	links, err := os.ReadDir(d.LinkDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("list container log links: %w", err)
	}
	var errs []error
	for _, l := range links {
		path := filepath.Join(d.LinkDir, l.Name())
		target, err := os.Readlink(path)
		if err != nil || !strings.HasPrefix(target, filepath.Clean(d.Root)+"/") {
			continue
		}
		if _, err := os.Stat(filepath.Dir(filepath.Dir(target))); errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, os.Remove(path))
		}
	}
	return errors.Join(errs...)
}

// NoLogs is for simulated nodes, whose containers write none.
type NoLogs struct{}

var _ Logs = NoLogs{}

// Make does nothing.
func (NoLogs) Make(*v1.Pod) error { return nil }

// Link does nothing.
func (NoLogs) Link(*v1.Pod, string, string, uint32) error { return nil }

// Remove does nothing.
func (NoLogs) Remove(pod.Ref, string, uint32) error { return nil }

// RemovePod does nothing.
func (NoLogs) RemovePod(pod.Ref) error { return nil }
