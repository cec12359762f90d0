package volume

import (
	"path/filepath"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/internal/core/crispec"
)

// fsGroup returns the group that owns the pod's volumes, or -1. The field fsGroupChangePolicy "has no effect on
// ephemeral volume types such as secret, configMap, and emptyDir"; it concerns persistent volumes only.
func fsGroup(p *v1.Pod) int {
	if sc := p.Spec.SecurityContext; sc != nil && sc.FSGroup != nil {
		return int(*sc.FSGroup)
	}
	return -1
}

// tokenOwner returns the ID of the user as which all containers of the pod run; this user owns the token files. It returns -1 if the
// containers run as different or unknown users.
func tokenOwner(p *v1.Pod) int {
	owner := -1
	for c := range crispec.Containers(p) {
		var uid *int64
		if sc := p.Spec.SecurityContext; sc != nil {
			uid = sc.RunAsUser
		}
		if sc := c.SecurityContext; sc != nil && sc.RunAsUser != nil {
			uid = sc.RunAsUser
		}
		if uid == nil || (owner >= 0 && int(*uid) != owner) {
			return -1
		}
		owner = int(*uid)
	}
	return owner
}

// nestedMountPoints returns the directories that a read-only volume must have so that containers can mount other volumes inside
// it, relative to the volume. It returns only the outermost mount points, because the mount points below them are in another volume.
func nestedMountPoints(p *v1.Pod, volume string) []string {
	var found []string
	for c := range crispec.Containers(p) {
		for i := range c.VolumeMounts {
			m := &c.VolumeMounts[i]
			if m.Name != volume {
				continue
			}
			for j := range c.VolumeMounts {
				inside, ok := strings.CutPrefix(absolute(c.VolumeMounts[j].MountPath), strings.TrimSuffix(absolute(m.MountPath), "/")+"/")
				if ok && inside != "" && !strings.HasPrefix(inside, "..") {
					found = append(found, filepath.Join(m.SubPath, inside))
				}
			}
		}
	}
	slices.Sort(found)
	var outermost []string
	for _, dir := range found {
		covered := slices.ContainsFunc(outermost, func(o string) bool { return dir == o || strings.HasPrefix(dir, o+"/") })
		if !covered && !strings.HasPrefix(dir, "..") {
			outermost = append(outermost, dir)
		}
	}
	return outermost
}

// absolute makes a mount path absolute and clean. A path without a leading slash starts at the root.
func absolute(path string) string { return filepath.Clean("/" + path) }

// rooted returns a mount path for the runtime: the path of the spec with a leading slash, not cleaned. The runtime cleans it,
// because it knows the links in the container's file system.
func rooted(path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return "/" + path
}
