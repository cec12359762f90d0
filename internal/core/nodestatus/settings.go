package nodestatus

import (
	"net/netip"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/wherry-node/wherry/internal/core/nodeclock"
	"github.com/wherry-node/wherry/internal/core/pressure"
)

// Settings is the configuration of the node.
type Settings struct {
	Name     string // metadata.name
	Hostname string // label kubernetes.io/hostname and address Hostname; may differ from Name
	OS, Arch string // operating system and architecture in Go's terms: linux, amd64

	Labels                 map[string]string // --node-labels; see ValidateLabels
	Taints                 []v1.Taint        // registerWithTaints
	ProviderID             string
	ExternalCloudProvider  bool
	ControllerAttachDetach bool // enableControllerAttachDetach

	// NodeIPs are the values of --node-ip: none, one, or one of each family. An unspecified address (0.0.0.0, ::)
	// selects the default route's address of that family.
	NodeIPs []netip.Addr
	// TrustNodeIPs skips the check that the node IPs are addresses of this host. It is for simulated nodes, which have other addresses.
	TrustNodeIPs bool

	MaxPods, PodsPerCore         int // PodsPerCore zero: not used
	KubeReserved, SystemReserved v1.ResourceList
	Thresholds                   []pressure.Threshold // the hard thresholds are subtracted from allocatable
	// AllocatableIgnoresEviction leaves the thresholds out of allocatable (--experimental-allocatable-ignore-eviction).
	AllocatableIgnoresEviction bool
	// LocalStorageIsolation is localStorageCapacityIsolation: ephemeral-storage is a resource of the node, and the node is not
	// ready until the amount is known.
	LocalStorageIsolation bool

	MaxImages        int   // nodeStatusMaxImages; negative: all
	Port             int32 // port of the HTTPS server; zero: there is no server
	KubeletVersion   string
	DeclaredFeatures []string
}

// Facts is one measurement. A value that could not be measured is zero, and Problems says so.
type Facts struct {
	Now time.Time
	// Clock is the node's clock, for the times in the Node.
	Clock   nodeclock.Clock
	Machine Machine
	// EphemeralStorage is the size in bytes of the filesystem of the agent's root directory; zero: not known.
	EphemeralStorage int64
	Network          Network
	Devices          Devices
	Runtime          Runtime
	Images           []*runtimeapi.Image // images in any order
	// ImagesKnown and VolumesKnown say that the lists are valid. If a list is not valid, the one in the API stays as it is.
	ImagesKnown  bool
	VolumesInUse []v1.UniqueVolumeName
	VolumesKnown bool
	Pressure     pressure.Result
	// Problems are further reasons why the node is not ready, in the order of the message: PLEG, cgroups, storage,
	// shutdown ("PLEG is not healthy: ...", "node is shutting down").
	Problems []string
	// Failing describes parts of the agent that fail and try again. The node stays ready, and the message of its Ready condition
	// names these parts.
	Failing []string
}

// Machine is the host. CPUs zero means that it could not be read.
type Machine struct {
	MachineID, SystemUUID, BootID string
	KernelVersion, OSImage        string
	CPUs                          int
	MemoryBytes, SwapBytes        int64
	HugePages                     map[int64]int64 // page size in bytes to number of pages, which may be 0
}

// Network holds the host's known addresses.
type Network struct {
	Interfaces []netip.Addr // addresses of this host's network interfaces
	Resolved   []netip.Addr // the addresses of the node's name
	// DefaultV4 and DefaultV6 are the host's own addresses on the interface of the default route.
	DefaultV4, DefaultV6 netip.Addr
}

// Devices are the resources of device plugins.
type Devices struct {
	Capacity, Allocatable v1.ResourceList
	Removed               []v1.ResourceName // resources that were known before and are gone now: reported as zero
}

// Runtime holds the container runtime's answers.
type Runtime struct {
	Name, Version string // the answer of CRI's Version, for containerRuntimeVersion
	// Status is the newest answer of CRI's Status; nil: none yet.
	Status *runtimeapi.StatusResponse
	// LastReady is the last time when the runtime answered that it is ready; zero: it has not been ready since the agent started.
	LastReady time.Time
	// Err is the error of the newest call; empty if it succeeded.
	Err string
}

// RuntimeDownAfter is how long a runtime may fail to answer before the node is no longer ready.
const RuntimeDownAfter = 30 * time.Second
