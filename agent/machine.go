package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/base/hostfs"
	"github.com/wherry-node/wherry/internal/core/nodestatus"
	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/edge/checkpoint"
	"github.com/wherry-node/wherry/internal/edge/volume"
	"github.com/wherry-node/wherry/internal/node/nodefacts"
	"github.com/wherry-node/wherry/internal/node/podworker"
)

// Machine is the host of a node: the machine of the process, or a simulated one.
type Machine struct {
	real bool
	// proc is the file system root below which /proc, /sys and /etc are read.
	proc  hostfs.Machine
	shape Shape
	// kept stores checkpoints on a simulated machine, for the next agent; nil: the next agent finds no checkpoints.
	kept Disk
	// mounts and power belong to a simulated machine.
	mounts volume.SimulatedHost
	power  power
	// memory has the volumes of local, the CSI drivers of this process. They belong to a simulated machine.
	memory volume.MemoryHost
	local  map[string]csi.NodeServer
}

// RealMachine returns the machine of the process. Pods get directories, mounts and cgroups there.
func RealMachine() *Machine { return &Machine{real: true} }

// Shape is the size of a simulated machine. Fields that are zero have defaults: 100 CPUs, 32 GiB of memory, 1 TiB of storage. The maximum
// number of pods is not a field here but KubeletConfiguration.maxPods (110).
type Shape struct {
	CPUs    int
	Memory  resource.Quantity
	Storage resource.Quantity
	// Address is the node's InternalIP; 127.0.0.1 when invalid.
	Address netip.Addr
	// Logs makes the simulated runtime write container logs, below KubeletConfiguration.podLogsDir.
	Logs bool
	// Keep makes the machine keep agents' checkpoints for the next agent on the same Machine.
	Keep bool
	// Disk, if set, stores the checkpoints. It is for tests with failing disks.
	Disk Disk
	// Used returns the resources that the machine's processes use; nil: they use none. It is called often and concurrently.
	Used func() Used
	// PullRecords is a directory of the real machine where the simulated machine keeps its pull records. "": it keeps none, and
	// every pod may use every image.
	PullRecords string
	// PollManifests makes the agent read KubeletConfiguration.staticPodPath only every fileCheckFrequency. Otherwise the agent
	// also watches it by inotify, as on a real machine, which does not work with virtual time (testing/synctest).
	PollManifests bool
	// Volumes is a directory of the real machine below which the agent makes the volumes of pods, as on a real machine. Only the mounts are
	// simulated. "": the agent makes none; it only checks whether it could make them.
	Volumes string
	// Drivers has the machine's CSI drivers by name, each with a function that connects to its Node service (gRPC). A driver registers as
	// soon as an agent has started. Drivers has no effect without Volumes or without an API server.
	Drivers map[string]func(context.Context) (net.Conn, error)
	// LocalDrivers are CSI drivers in this process, by name, each with a function that starts its Node service on this machine. They are for
	// a machine without Volumes: their volumes are in memory, so that pods with such volumes start and leave nothing on the host. Like
	// Drivers, they register as soon as an agent has started, and have no effect without an API server.
	LocalDrivers map[string]func(VolumePaths) csi.NodeServer
	// VolumeFiles, if set, has the records of volumes of LocalDrivers. It is for a machine that boots again with its old disk.
	VolumeFiles *VolumeFiles
	// Devices returns the devices that pods request as extended resources; nil: there are none. It is called often and concurrently.
	Devices func() []Devices
	// DevicesPrepared makes pods with resource claims (dynamic resource allocation) start: their devices are only simulated, so there is
	// nothing to prepare. Otherwise they wait, as on a real machine.
	DevicesPrepared bool
	// Mounts, if set, has the simulated mounts of Volumes. So they can outlive the Machine, and the CSI drivers can show what they have
	// mounted. nil: the Machine knows only the mounts that its agents make.
	Mounts MountTable
}

// MountTable is the mount table of a simulated machine. Calls may be concurrent.
type MountTable interface {
	// Points returns the mount points at or below the directory dir, in mount order.
	Points(dir string) ([]string, error)
	// Mount adds a mount on the directory or file point.
	Mount(point string) error
	// Unmount removes the newest mount on point. It does nothing if there is none.
	Unmount(point string) error
}

// Used has the resources that the processes of a simulated machine use.
type Used struct {
	Memory, Storage int64 // bytes
	Processes       int64
}

// Devices are the devices of one kind of a simulated machine. The Node has Count of the resource in its capacity, and Healthy in what it can
// allocate.
type Devices struct {
	Resource       string
	Count, Healthy int64
}

// Disk is the part of a simulated machine's disk that outlives agents. It stores one checkpoint per pod; only the agent
// knows the format of the checkpoint. Calls may be concurrent.
type Disk interface {
	// Load returns the checkpoint of a pod, or nil if there is none.
	Load(uid types.UID) ([]byte, error)
	// Save replaces the checkpoint of a pod.
	Save(uid types.UID, checkpoint []byte) error
	// Remove removes the checkpoint of a pod, if there is one.
	Remove(uid types.UID)
	// UIDs returns the pods that have a checkpoint.
	UIDs() []types.UID
}

// VolumeDisk is an interface that a Disk may implement too. The agent calls Volumes before it creates, empties or removes
// the directories of a pod. If Volumes returns an error, that operation fails with it. Calls may be concurrent and slow.
type VolumeDisk interface {
	Volumes(uid types.UID) error
}

// SimulatedMachine returns a simulated machine. Its pods leave nothing on the host.
func SimulatedMachine(s Shape) *Machine {
	if s.CPUs == 0 {
		s.CPUs = 100
	}
	if s.Memory.IsZero() {
		s.Memory = resource.MustParse("32Gi")
	}
	if s.Storage.IsZero() {
		s.Storage = resource.MustParse("1Ti")
	}
	if !s.Address.IsValid() {
		s.Address = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	m := &Machine{shape: s, kept: s.Disk}
	if s.Mounts != nil {
		m.mounts.Table = s.Mounts
	}
	if len(s.LocalDrivers) > 0 {
		m.startLocal()
	}
	if s.Keep && m.kept == nil {
		m.kept = &checkpoint.InMemory{}
	}
	return m
}

// pids is how many process IDs a simulated machine has.
const pids = 1 << 22

// Whole returns the resources of a simulated machine.
func (m *Machine) Whole() Used {
	return Used{Memory: m.shape.Memory.Value(), Storage: m.shape.Storage.Value(), Processes: pids}
}

// watchesManifests reports whether the kernel notifies the agent of changes in staticPodPath.
func (m *Machine) watchesManifests() bool { return m.real || !m.shape.PollManifests }

// fixed returns the facts of the simulated machine, which the agent of a real machine would measure.
func (m *Machine) fixed(name string) *nodefacts.Fixed {
	f := &nodefacts.Fixed{
		Machine: nodestatus.Machine{
			MachineID: "simulated-" + name, SystemUUID: "simulated-" + name, BootID: "simulated-" + name,
			KernelVersion: "simulated", OSImage: "Wherry simulated machine",
			CPUs: m.shape.CPUs, MemoryBytes: m.shape.Memory.Value(),
		},
		Storage: m.shape.Storage.Value(), PIDs: pids, Address: m.shape.Address,
	}
	f.Used = func() (memory, storage, pids int64) {
		u := m.used()
		return u.Memory, u.Storage, u.Processes
	}
	return f
}

// used returns what the processes of the simulated machine use.
func (m *Machine) used() Used {
	if m.shape.Used == nil {
		return Used{}
	}
	return m.shape.Used()
}

// devices returns the function that says which devices a simulated machine has; nil: it has none.
func (m *Machine) devices() func() nodestatus.Devices {
	if m.shape.Devices == nil {
		return nil
	}
	return func() nodestatus.Devices {
		out := nodestatus.Devices{Capacity: v1.ResourceList{}, Allocatable: v1.ResourceList{}}
		for _, d := range m.shape.Devices() {
			name := v1.ResourceName(d.Resource)
			out.Capacity[name] = *resource.NewQuantity(d.Count, resource.DecimalSI)
			out.Allocatable[name] = *resource.NewQuantity(d.Healthy, resource.DecimalSI)
		}
		return out
	}
}

// Kept returns how many pods have a checkpoint on a simulated machine.
func (m *Machine) Kept() int {
	if m.kept == nil {
		return 0
	}
	return len(m.kept.UIDs())
}

// checkpoints returns where agents on a simulated machine keep their checkpoints.
func (m *Machine) checkpoints() podworker.Checkpoints {
	if m.kept == nil {
		return checkpoint.Nowhere{}
	}
	return checkpoint.In{Files: m.kept}
}

// keptVolumes makes a simulated machine remove a pod's checkpoint together with the pod's volumes, as on a real disk, where the
// checkpoint is a file in the pod's directory. So the next agent finds both or neither.
type keptVolumes struct {
	volumes
	kept Disk
}

func (v keptVolumes) asks(uid types.UID) error {
	if d, ok := v.kept.(VolumeDisk); ok {
		return d.Volumes(uid)
	}
	return nil
}

// SetUp creates the volumes of a pod.
func (v keptVolumes) SetUp(ctx context.Context, p volume.Pod) error {
	if err := v.asks(p.Pod.UID); err != nil {
		return fmt.Errorf("make the directories of pod %s: %w", p.Pod.UID, err)
	}
	return v.volumes.SetUp(ctx, p)
}

// TearDown removes the volumes of a pod.
func (v keptVolumes) TearDown(ctx context.Context, ref pod.Ref) error {
	if err := v.asks(ref.UID); err != nil {
		return fmt.Errorf("empty the directories of pod %s: %w", ref.UID, err)
	}
	return v.volumes.TearDown(ctx, ref)
}

// Remove removes the checkpoint of a pod and whatever TearDown left.
func (v keptVolumes) Remove(ctx context.Context, ref pod.Ref) error {
	if err := v.asks(ref.UID); err != nil {
		return fmt.Errorf("remove the directories of pod %s: %w", ref.UID, err)
	}
	v.kept.Remove(ref.UID)
	return v.volumes.Remove(ctx, ref)
}

// Orphans returns the pods that have files or a checkpoint and for which known returns false.
func (v keptVolumes) Orphans(known func(types.UID) bool) ([]types.UID, error) {
	out, err := v.volumes.Orphans(known)
	for _, uid := range v.kept.UIDs() {
		if !known(uid) && !slices.Contains(out, uid) {
			out = append(out, uid)
		}
	}
	return out, err
}

// noCgroups does nothing. It is for simulated nodes, whose pods have no cgroups.
type noCgroups struct{}

func (noCgroups) EnsurePod(context.Context, *v1.Pod, pod.Size) (string, error) {
	return "", nil
}
func (noCgroups) Parent(*v1.Pod) string                            { return "" }
func (noCgroups) RemovePod(context.Context, types.UID) error       { return nil }
func (noCgroups) PodCgroups() ([]types.UID, error)                 { return nil, nil }
func (noCgroups) SetUpNode(context.Context, v1.ResourceList) error { return nil }
func (noCgroups) UpdateQOS(context.Context, []*v1.Pod) error       { return nil }

// makeRoot creates the directories for the state of a real node.
func makeRoot(dirs ...string) error {
	for _, d := range dirs {
		if d == "" {
			continue
		}
		if err := os.MkdirAll(filepath.Clean(d), 0o750); err != nil {
			return err
		}
	}
	return nil
}

// asRoot returns an error of makeRoot with the advice to run the agent as root, if the user with this ID may not make the directories.
func asRoot(err error, user int) error {
	if errors.Is(err, fs.ErrPermission) && user != 0 {
		return fmt.Errorf("%w: run the agent as root; only a simulated node (--container-runtime-endpoint=simulated://) needs no root", err)
	}
	return err
}
