package nodestatus

import (
	"net/netip"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/wherry-node/wherry/internal/core/pressure"
)

// Settings is what configuration says of the node.
type Settings struct {
	Name     string // metadata.name
	Hostname string // label kubernetes.io/hostname and address Hostname; may differ from Name
	OS, Arch string // in Go's words: linux, amd64

	Labels                 map[string]string // --node-labels; see ValidateLabels
	Taints                 []v1.Taint        // registerWithTaints
	ProviderID             string
	ExternalCloudProvider  bool
	ControllerAttachDetach bool // enableControllerAttachDetach

	// NodeIPs are --node-ip: none, one, or one of each family. An unspecified address (0.0.0.0, ::) asks for the
	// default route's address of that family.
	NodeIPs []netip.Addr
	// TrustNodeIPs leaves out the check that the node IPs are addresses of this host: a simulated node's are not.
	TrustNodeIPs bool

	MaxPods, PodsPerCore         int // PodsPerCore zero: not used
	KubeReserved, SystemReserved v1.ResourceList
	Thresholds                   []pressure.Threshold // hard ones are subtracted from allocatable
	// LocalStorageIsolation is localStorageCapacityIsolation: ephemeral-storage is a resource of the node, and not
	// knowing it makes the node not ready.
	LocalStorageIsolation bool

	MaxImages        int   // nodeStatusMaxImages; negative: all
	Port             int32 // of the HTTPS server; zero: none
	KubeletVersion   string
	DeclaredFeatures []string
}

// Facts is what was measured for one computation. What could not be measured is left zero and said in Problems.
type Facts struct {
	Now     time.Time
	Machine Machine
	// EphemeralStorage is the size in bytes of the filesystem of the agent's root directory; zero: not known.
	EphemeralStorage int64
	Network          Network
	Devices          Devices
	Runtime          Runtime
	Images           []*runtimeapi.Image // any order
	// ImagesKnown and VolumesKnown: without them the lists in the API are left as they are.
	ImagesKnown  bool
	VolumesInUse []v1.UniqueVolumeName
	VolumesKnown bool
	Pressure     pressure.Result
	// Problems are further reasons for not being ready, in the order of the message: PLEG, cgroups, storage, a node
	// that shuts down ("PLEG is not healthy: ...", "node is shutting down").
	Problems []string
	// Failing are parts of the agent that fail and are tried again, in words. The node is ready all the same, and says so.
	Failing []string
}

// Machine is the host. CPUs zero means that it could not be read.
type Machine struct {
	MachineID, SystemUUID, BootID string
	KernelVersion, OSImage        string
	CPUs                          int
	MemoryBytes, SwapBytes        int64
	HugePages                     map[int64]int64 // page size in bytes to number of pages; sizes with none too
}

// Network is what is known of the host's addresses.
type Network struct {
	Interfaces []netip.Addr // of this host
	Resolved   []netip.Addr // what the node's name resolves to
	// DefaultV4 and DefaultV6 are the host's own addresses on the interface of the default route.
	DefaultV4, DefaultV6 netip.Addr
}

// Devices are the resources of device plugins.
type Devices struct {
	Capacity, Allocatable v1.ResourceList
	Removed               []v1.ResourceName // known before, gone now: shown as zero
}

// Runtime is what the container runtime said.
type Runtime struct {
	Name, Version string // of CRI's Version, for containerRuntimeVersion
	// Status is the newest answer of CRI's Status; nil: none yet.
	Status *runtimeapi.StatusResponse
	// LastReady is when the runtime last answered that it is ready; zero: not since the agent started.
	LastReady time.Time
	// Err is why the newest call failed; empty when it answered.
	Err string
}

// RuntimeDownAfter is how long a runtime may fail to answer before the node stops being ready.
const RuntimeDownAfter = 30 * time.Second
