package volume

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// This file has the names that the attach-detach controller gives to disks of a storage area network. Such a name consists of what a volume says about
// its disk, word for word. A disk without a record, which another agent has connected, has only the path of its directory. Several names lead to the same
// path: the portal of an iSCSI disk may have a port or not, and the path of a Fibre Channel disk does not show where one identifier ends. If the Node's
// status did not list the disk as in use by its right name, the controller could attach the disk to another node while its file system is mounted here.
// So the node reports all names that may be the right one. A name that no volume has is harmless.

// unique returns the name of a disk in the status of nodes.
func (k kind) unique(handle string) v1.UniqueVolumeName {
	return v1.UniqueVolumeName(k.plugin() + handle)
}

func (k kind) plugin() string { return "kubernetes.io/" + string(k) + "/" }

// boundOfDisk returns what a record would have of a disk without a record. name stands for the name of the persistent volume.
func (v *Volumes) boundOfDisk(name string, k kind, disk string, block bool) *bound {
	return &bound{
		PersistentVolume: name, Kind: k, Disk: disk, Handle: handlesOf(k, disk)[0], Guessed: true, Attach: v.cfg.Claims != nil, Block: block, Done: true,
	}
}

// handlesOf returns the most likely names of a disk, from the path of its directory.
func handlesOf(k kind, disk string) []string {
	if k == kindFC {
		return []string{fcHandle(fcOfPath(disk))}
	}
	t := iscsiOfPath(disk)
	handles := []string{fmt.Sprintf("%s:%s:%s", t.Portals[0], t.IQN, t.Lun)}
	if portal, ok := strings.CutSuffix(t.Portals[0], ":"+iscsiPort); ok {
		handles = slices.Insert(handles, 0, fmt.Sprintf("%s:%s:%s", portal, t.IQN, t.Lun))
	}
	return handles
}

// errNodeUnknown means that the name of a disk is not known yet: it may be in the status of the Node, which the API server has not sent.
var errNodeUnknown = errors.New("an earlier agent has connected a disk, whose name may be in the Node that the API server has: waits for that Node")

// names returns the names that a volume may have in the status of nodes. node is the Node as the API server has it.
func (b *bound) names(node *v1.Node) ([]v1.UniqueVolumeName, error) {
	if !b.Guessed {
		return []v1.UniqueVolumeName{b.unique()}, nil
	}
	if node.UID == "" { // this is not the Node of the API server
		return nil, errNodeUnknown
	}
	var names []v1.UniqueVolumeName
	for _, handle := range handlesOf(b.Kind, b.Disk) {
		names = append(names, b.Kind.unique(handle))
	}
	add := func(name v1.UniqueVolumeName) {
		if handle, ok := strings.CutPrefix(string(name), b.Kind.plugin()); ok && isNameOf(b.Kind, handle, b.Disk) && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	for _, name := range node.Status.VolumesInUse {
		add(name)
	}
	for _, a := range node.Status.VolumesAttached {
		add(a.Name)
	}
	return names, nil
}

// isNameOf reports whether a disk that the attach-detach controller knows by the name handle has the path disk.
func isNameOf(k kind, handle, disk string) bool {
	if k == kindFC {
		ids, unit, ok := strings.Cut(strings.TrimPrefix(handle, "["), "]")
		if unit, byPort := strings.CutPrefix(unit, ":"); byPort {
			ids += "-lun-" + unit
		}
		return ok && fold(ids) == fold(disk)
	}
	t := iscsiOfPath(disk)
	rest, ok := strings.CutSuffix(handle, ":"+t.IQN+":"+t.Lun)
	return ok && withPort(rest) == withPort(t.Portals[0])
}

// fold replaces the characters between and in the identifiers of a Fibre Channel disk that have no place of their own in its path.
func fold(ids string) string { return strings.NewReplacer(" ", "-", "_", "-").Replace(ids) }

// withPort returns an address with its port, also one that is no IP address: upstream's kubelet takes host names.
func withPort(portal string) string {
	if address, err := portalOf(portal); err == nil {
		return address
	}
	if strings.Contains(portal, ":") {
		return portal
	}
	return portal + ":" + iscsiPort
}
