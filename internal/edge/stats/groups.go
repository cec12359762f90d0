package stats

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// tree is the control group hierarchy of a host.
type tree struct {
	host string
	v2   bool
}

const mountPoint = "sys/fs/cgroup"

func openTree(host string) tree {
	_, err := os.Stat(filepath.Join(host, mountPoint, "cgroup.controllers"))
	return tree{host: host, v2: err == nil}
}

// dir returns the directory of a group. With v1, each controller has a hierarchy of its own.
func (t tree) dir(controller, group string) string {
	if t.v2 {
		return filepath.Join(t.host, mountPoint, group)
	}
	return filepath.Join(t.host, mountPoint, controller, group)
}

// found is the result of find: the control groups below the control group of all pods.
type found struct {
	pods       map[types.UID]string // control group of each pod
	containers map[string]string    // control group of each container or sandbox, by its ID
	classes    []string             // the control groups of the QoS classes, which lie between the group of all pods and the pods
}

// find walks from the group of all pods down to the containers. It reads one directory per class and pod.
func (t tree) find(podsGroup string) (found, error) {
	out := found{pods: map[types.UID]string{}, containers: map[string]string{}}
	if podsGroup == "" {
		return out, nil
	}
	err := t.walk(podsGroup, &out, true)
	if errors.Is(err, fs.ErrNotExist) {
		return out, nil // the group of all pods does not exist, because no pod has run yet
	}
	return out, err
}

func (t tree) walk(group string, out *found, top bool) error {
	entries, err := os.ReadDir(t.dir("memory", group))
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		below := filepath.Join(group, e.Name())
		if uid, ok := podUID(e.Name()); ok {
			out.pods[uid] = below
			t.containers(below, out)
		} else if top && isClass(e.Name()) {
			out.classes = append(out.classes, below)
			if err := t.walk(below, out, false); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	return nil
}

func (t tree) containers(podGroup string, out *found) {
	entries, err := os.ReadDir(t.dir("memory", podGroup))
	if err != nil {
		return // the pod was removed after its directory was listed
	}
	for _, e := range entries {
		if !e.IsDir() || strings.Contains(e.Name(), "conmon") { // a runtime's monitor is not a container
			continue
		}
		out.containers[containerID(e.Name())] = filepath.Join(podGroup, e.Name())
	}
}

// containerID returns the ID in the name of a container's group: cri-containerd-ID.scope, crio-ID.scope, or ID.
func containerID(name string) string {
	name = strings.TrimSuffix(name, ".scope")
	return name[strings.LastIndex(name, "-")+1:]
}

// isClass reports whether a directory is the group of a QoS class: burstable, besteffort, kubepods-burstable.slice, and the names
// of these below a configured cgroupRoot.
func isClass(name string) bool {
	name = strings.TrimSuffix(name, ".slice")
	return strings.HasSuffix(name, "burstable") || strings.HasSuffix(name, "besteffort")
}

// podUID returns the UID in the name of a pod's group: pod<uid>, or kubepods-burstable-pod<uid>.slice, in which systemd
// needs _ instead of -.
func podUID(name string) (types.UID, bool) {
	if base, ok := strings.CutSuffix(name, ".slice"); ok {
		i := strings.LastIndex(base, "-pod")
		if i < 0 {
			return "", false
		}
		return types.UID(strings.ReplaceAll(base[i+len("-pod"):], "_", "-")), true
	}
	uid, ok := strings.CutPrefix(name, "pod")
	return types.UID(uid), ok && uid != ""
}
