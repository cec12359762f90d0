package cgroup

import (
	"path"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	podsRoot  = "kubepods"
	podPrefix = "pod"
	slice     = ".slice"
)

// naming converts a cgroup's position in the tree (a list of plain names) to the path of its directory.
type naming struct {
	systemd bool
	root    []string
}

func split(p string) []string {
	return strings.FieldsFunc(p, func(r rune) bool { return r == '/' })
}

// path returns the path of a cgroup below the root. The cgroupfs driver joins names with slashes. The systemd driver names each
// slice after all its ancestors, joined by dashes. So a dash within a name becomes an underscore.
func (n naming) path(names ...string) string {
	all := append(append([]string{}, n.root...), names...)
	if !n.systemd {
		return "/" + path.Join(all...)
	}
	dir, prefix := "/", ""
	for _, name := range all {
		prefix += strings.ReplaceAll(name, "-", "_")
		dir = path.Join(dir, prefix+slice)
		prefix += "-"
	}
	return dir
}

// existing returns the path of a cgroup that another program has created, from its name in the configuration. With the systemd driver the last
// element of the name is the name of a slice, with or without its suffix, as for upstream's kubelet: /system.slice, system, or
// /kube.slice/kube-reserved.slice. Each dash in it is a step in the tree.
func (n naming) existing(name string) string {
	names := split(name)
	if n.systemd && len(names) > 0 {
		names = strings.Split(strings.TrimSuffix(names[len(names)-1], slice), "-")
	}
	return naming{systemd: n.systemd}.path(names...)
}

func qosNames(class v1.PodQOSClass) []string {
	switch class {
	case v1.PodQOSBurstable, v1.PodQOSBestEffort:
		return []string{podsRoot, strings.ToLower(string(class))}
	}
	return []string{podsRoot}
}

func (n naming) qos(class v1.PodQOSClass) string { return n.path(qosNames(class)...) }

func (n naming) pod(class v1.PodQOSClass, uid types.UID) string {
	return n.path(append(qosNames(class), podPrefix+string(uid))...)
}

// uid returns a pod's UID from the base name of a directory in the cgroup of a class.
func (n naming) uid(class v1.PodQOSClass, base string) (types.UID, bool) {
	if !n.systemd {
		uid, ok := strings.CutPrefix(base, podPrefix)
		return types.UID(uid), ok && uid != ""
	}
	parent := strings.TrimSuffix(path.Base(n.qos(class)), slice)
	uid, ok := strings.CutPrefix(base, parent+"-"+podPrefix)
	if !ok || !strings.HasSuffix(uid, slice) {
		return "", false
	}
	uid = strings.ReplaceAll(strings.TrimSuffix(uid, slice), "_", "-")
	return types.UID(uid), uid != ""
}

// Owner returns the pod that a cgroup belongs to, and the ID of the container or sandbox to which the cgroup belongs. group is a path
// as the kernel writes it, from the root of its hierarchy. Owner returns "" for each result that it does not find in the path.
func (c *Cgroups) Owner(group string) (uid types.UID, container string) {
	names := split(group)
	for i := 1; i < len(names); i++ {
		for _, class := range classes() {
			uid, ok := c.names.uid(class, names[i])
			if !ok || !isName(uid) || names[i-1] != path.Base(c.names.qos(class)) {
				continue
			}
			if i+1 < len(names) {
				container = strings.TrimSuffix(names[i+1], ".scope") // the directory is named cri-containerd-ID.scope, crio-ID.scope, or ID
				container = container[strings.LastIndex(container, "-")+1:]
			}
			return uid, container
		}
	}
	return "", ""
}
