package volume

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/wherry-node/wherry/internal/core/crispec"
	"github.com/wherry-node/wherry/internal/core/strict"
)

// setUpEmptyDir makes an emptyDir. An existing one stays as it is: its modes and content belong to the pod.
func (v *Volumes) setUpEmptyDir(p Pod, vol *v1.Volume) error {
	dir := v.layout.volume(p.Pod.UID, kindEmptyDir, vol.Name)
	group := fsGroup(p.Pod)
	src := vol.EmptyDir
	if src == nil {
		src = &v1.EmptyDirVolumeSource{}
	}
	switch {
	case src.Medium == v1.StorageMediumDefault:
		return makeOpenDir(dir, group)
	case src.Medium == v1.StorageMediumMemory:
		return v.ensureTmpfs(dir, memorySize(p, src.SizeLimit), group, 0) // no noexec, because pods may run programs from it
	case strings.HasPrefix(string(src.Medium), string(v1.StorageMediumHugePages)):
		return v.setUpHugePages(dir, p.Pod, src.Medium, group)
	}
	return fmt.Errorf("unknown storage medium %q: use \"\" (disk), %q or %q", src.Medium, v1.StorageMediumMemory, v1.StorageMediumHugePages)
}

// makeOpenDir makes a directory with mode 0777 (with a group: mode 2777 and that group) under another name, and then renames it to
// dir. So dir is complete if it exists, even if an earlier call was interrupted.
func makeOpenDir(dir string, group int) error {
	info, err := os.Lstat(dir)
	switch {
	case err == nil && info.IsDir():
		return nil
	case err == nil:
		return fmt.Errorf("volume directory %s is a %s: remove it", dir, info.Mode().Type())
	case !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("stat volume directory: %w", err)
	}
	tmp := dir + ".making" // no name of a volume has a dot, so this name is free
	if err := ensureDir(tmp); err != nil {
		return err
	}
	if err := openDir(tmp, group); err != nil {
		return err
	}
	if err := os.Rename(tmp, dir); err != nil {
		return fmt.Errorf("name volume directory: %w", err)
	}
	return nil
}

func openDir(dir string, group int) error {
	mode := fs.FileMode(0o777)
	if group >= 0 {
		mode |= fs.ModeSetgid
		if err := os.Lchown(dir, -1, group); err != nil {
			return fmt.Errorf("change group: %w", err)
		}
	}
	if err := os.Chmod(dir, mode); err != nil {
		return fmt.Errorf("change mode: %w", err)
	}
	return nil
}

// setUpHugePages mounts a hugetlbfs of the page size that the medium names or, for plain "HugePages", that the
// containers ask for.
func (v *Volumes) setUpHugePages(dir string, p *v1.Pod, medium v1.StorageMedium, group int) error {
	size, err := pageSize(p, medium)
	if err != nil {
		return err
	}
	if err := ensureDir(dir); err != nil {
		return err
	}
	mounted, err := v.cfg.Host.IsMountPoint(dir)
	if err != nil || mounted {
		return err
	}
	options := fmt.Sprintf("pagesize=%d,mode=0777", size.Value())
	if group >= 0 {
		options = fmt.Sprintf("pagesize=%d,mode=2777,gid=%d", size.Value(), group)
	}
	if err := v.cfg.Host.Mount("nodev", dir, "hugetlbfs", options); err != nil {
		return fmt.Errorf("huge pages of %s cannot be mounted (does the node have them? see /sys/kernel/mm/hugepages): %w", size.String(), err)
	}
	return nil
}

// pageSize returns the page size for a HugePages medium: the size in the medium's name, or the only size that the containers ask for.
func pageSize(p *v1.Pod, medium v1.StorageMedium) (resource.Quantity, error) {
	requested := map[string]resource.Quantity{}
	add := func(list v1.ResourceList) error {
		for name := range list {
			if s, ok := strings.CutPrefix(string(name), v1.ResourceHugePagesPrefix); ok {
				q, err := strict.ParseQuantity(s)
				if err != nil {
					return fmt.Errorf("resource %s: %w", name, err)
				}
				requested[q.String()] = q
			}
		}
		return nil
	}
	if p.Spec.Resources != nil {
		if err := add(p.Spec.Resources.Requests); err != nil {
			return resource.Quantity{}, err
		}
	}
	for c := range crispec.Containers(p) {
		if err := add(c.Resources.Requests); err != nil {
			return resource.Quantity{}, err
		}
	}
	if s, ok := strings.CutPrefix(string(medium), string(v1.StorageMediumHugePagesPrefix)); ok {
		q, err := strict.ParseQuantity(s)
		if err != nil || q.Sign() <= 0 {
			return q, fmt.Errorf("medium %q names no page size: write it as HugePages-2Mi", medium)
		}
		if _, ok := requested[q.String()]; !ok {
			return q, fmt.Errorf("medium %q, but no container requests hugepages-%s: add the request", medium, q.String())
		}
		return q, nil
	}
	if len(requested) != 1 {
		return resource.Quantity{}, fmt.Errorf("medium %q needs containers that request huge pages of exactly one size, not %d: request one, or name the size as HugePages-2Mi", medium, len(requested))
	}
	for _, q := range requested {
		return q, nil
	}
	return resource.Quantity{}, nil
}

// memorySize returns the size limit of a memory-backed volume: the least of the volume's own limit, the pod's memory
// limit and the node's allocatable memory. 0 means no limit.
func memorySize(p Pod, limit *resource.Quantity) int64 {
	size := p.NodeAllocatable.Memory().Value()
	if l := crispec.PodSize(p.Pod).MemoryLimit; l > 0 && (size == 0 || l < size) {
		size = l
	}
	if limit != nil && limit.Value() > 0 && (size == 0 || limit.Value() < size) {
		size = limit.Value()
	}
	return size
}
