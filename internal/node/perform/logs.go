package perform

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/base/hostfs"
	"github.com/wherry-node/wherry/internal/core/crispec"
	"github.com/wherry-node/wherry/internal/core/pod"
)

// LogDirs keeps the directories and links of container logs under the paths that Kubernetes uses.
type LogDirs struct {
	Root string // for example /var/log/pods
	// LinkDir gets one link per container log, with the name that log collectors expect. "": no links are made.
	LinkDir string
	// RemoveTree removes a directory, but nothing that is mounted below it.
	RemoveTree func(dir string) error
}

var _ Logs = (*LogDirs)(nil)

// maxOrphans bounds how many pods one call of Orphans returns. The next call returns others.
const maxOrphans = 1000

// Make creates the log directories of all containers of a pod.
func (d *LogDirs) Make(p *v1.Pod) error {
	logs := crispec.LogDir(d.Root, p)
	for c := range crispec.Containers(p) {
		if err := hostfs.MakeUntrustedDir(filepath.Join(logs, c.Name), crispec.LogDepth-1, 0o755); err != nil {
			return fmt.Errorf("make log directory: %w", err)
		}
	}
	return nil
}

// Link creates the link by which log collectors find the log of one attempt.
func (d *LogDirs) Link(p *v1.Pod, container, id string, attempt uint32) error {
	if d.LinkDir == "" {
		return nil
	}
	if err := os.MkdirAll(d.LinkDir, 0o755); err != nil {
		return fmt.Errorf("make container log directory: %w", err)
	}
	link, target := filepath.Join(d.LinkDir, cutLink(linkPrefix(pod.RefOf(p))+container+"-"+id)+linkEnding), crispec.LogPath(d.Root, p, container, attempt)
	err := os.Symlink(target, link)
	if errors.Is(err, fs.ErrExist) {
		if have, _ := os.Readlink(link); have == "" || have == target {
			return nil
		}
		if err = os.Remove(link); err == nil { // an older attempt has the same name, because both names were cut
			err = os.Symlink(target, link)
		}
	}
	if err != nil {
		return fmt.Errorf("link container log: %w", err)
	}
	return nil
}

const (
	linkEnding = ".log"
	maxLink    = 255 - len(linkEnding) // file systems allow names of 255 bytes
)

// cutLink shortens the name of a link, without its ending, as upstream's kubelet does.
func cutLink(name string) string { return name[:min(len(name), maxLink)] }

// linkPrefix is how the names of a pod's links begin, before they are cut.
func linkPrefix(ref pod.Ref) string { return ref.Name + "_" + ref.Namespace + "_" }

// Remove removes the log of one attempt, its rotated parts and the links to it.
func (d *LogDirs) Remove(ref pod.Ref, container string, attempt uint32) error {
	dir := filepath.Join(crispec.LogDirOf(d.Root, ref), container)
	if err := removeLogs(dir, attempt); err != nil {
		return fmt.Errorf("remove container log: %w", err)
	}
	log := filepath.Join(dir, filepath.Base(crispec.LogName(container, attempt)))
	return d.removeLinks(ref, func(target string) bool { return target == log })
}

// removeLogs removes the log files of one attempt. If dir is not a real directory, for example a link, there is nothing to remove:
// whoever replaced the directory has removed the logs. A directory with the name of a log file stays until the pod's log directory is
// removed.
func removeLogs(dir string, attempt uint32) error {
	logs, err := hostfs.OpenUntrustedDir(dir, crispec.LogDepth-1)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, hostfs.ErrNotRegular) {
		return nil
	}
	if err != nil {
		return err
	}
	defer logs.Close()
	return logs.Each(func(e fs.DirEntry) error {
		n, ok := crispec.ParseLogAttempt(e.Name())
		if !ok || n != attempt || e.IsDir() {
			return nil
		}
		if err := logs.Remove(e.Name()); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	})
}

// RemovePod removes all logs of a pod.
func (d *LogDirs) RemovePod(ref pod.Ref) error {
	if ref.Name == "" { // only the UID is known: look for the pod's log directory
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

// Orphans returns the pods that have left logs and for which known returns false. It also removes links to the logs of pods that are
// gone.
func (d *LogDirs) Orphans(known func(types.UID) bool) ([]types.UID, error) {
	if err := d.sweepLinks(); err != nil {
		return nil, err
	}
	var orphans []types.UID
	err := eachEntry(d.Root, func(_ *hostfs.UntrustedDir, e fs.DirEntry) error {
		parts := strings.SplitN(e.Name(), "_", 3)
		if len(parts) == 3 && parts[2] != "" && pod.PathSegment(parts[2]) && e.IsDir() && !known(types.UID(parts[2])) {
			orphans = append(orphans, types.UID(parts[2]))
		}
		if len(orphans) == maxOrphans {
			return fs.SkipAll
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list log directories: %w", err)
	}
	return orphans, nil
}

// named adds namespace and name to a reference that has only the pod's UID. It takes them from the name of the pod's log directory,
// <namespace>_<name>_<uid>. Namespaces and names contain no '_'.
func (d *LogDirs) named(ref pod.Ref) (pod.Ref, error) {
	err := eachEntry(d.Root, func(_ *hostfs.UntrustedDir, e fs.DirEntry) error {
		if parts := strings.SplitN(e.Name(), "_", 3); len(parts) == 3 && parts[2] == string(ref.UID) && e.IsDir() {
			ref.Namespace, ref.Name = parts[0], parts[1]
		}
		return nil
	})
	if err != nil {
		return ref, fmt.Errorf("list log directories: %w", err)
	}
	return ref, nil
}

// removeLinks removes the pod's links in LinkDir for whose target the function gone returns true. A missing target is not enough to
// remove a link, because during a rotation the log is missing for a moment.
func (d *LogDirs) removeLinks(ref pod.Ref, gone func(target string) bool) error {
	if d.LinkDir == "" || ref.Name == "" {
		return nil
	}
	prefix := cutLink(linkPrefix(ref))
	err := eachEntry(d.LinkDir, func(links *hostfs.UntrustedDir, e fs.DirEntry) error {
		if !strings.HasPrefix(e.Name(), prefix) || !strings.HasSuffix(e.Name(), linkEnding) {
			return nil
		}
		if target, err := links.Readlink(e.Name()); err != nil || !gone(target) {
			return nil
		}
		if err := links.Remove(e.Name()); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("remove container log links: %w", err)
	}
	return nil
}

// sweepLinks removes links to logs of pods that have no log directory. Such links stay when a removal was interrupted, or when
// another program removed the directory.
func (d *LogDirs) sweepLinks() error {
	if d.LinkDir == "" {
		return nil
	}
	var first error // the first error only: very many links may fail
	err := eachEntry(d.LinkDir, func(links *hostfs.UntrustedDir, e fs.DirEntry) error {
		target, err := links.Readlink(e.Name())
		if err != nil || !strings.HasPrefix(target, filepath.Clean(d.Root)+"/") {
			return nil
		}
		if _, err := os.Lstat(filepath.Dir(filepath.Dir(target))); errors.Is(err, fs.ErrNotExist) {
			first = cmp.Or(first, links.Remove(e.Name()))
		}
		return nil
	})
	if err = cmp.Or(err, first); err != nil {
		return fmt.Errorf("sweep container log links: %w", err)
	}
	return nil
}

// eachEntry calls f for each entry of a directory until f returns an error. It returns that error, but nil if the error
// is fs.SkipAll. A missing directory has no entries.
func eachEntry(dir string, f func(*hostfs.UntrustedDir, fs.DirEntry) error) error {
	root, err := hostfs.OpenUntrustedDir(dir, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer root.Close()
	err = root.Each(func(e fs.DirEntry) error { return f(root, e) })
	if errors.Is(err, fs.SkipAll) {
		return nil
	}
	return err
}

// NoLogs is the Logs of simulated nodes, whose containers write no logs.
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
