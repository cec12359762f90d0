package simulated

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/wherry-node/wherry/agent"
	"github.com/wherry-node/wherry/internal/core/nodeclock"
	"github.com/wherry-node/wherry/internal/node/nodefacts"
	"github.com/wherry-node/wherry/internal/sim/simcri"
)

// Config says what a simulated node is like. The zero value is a machine with 100 CPUs, 32 GiB of memory and 1 TiB of storage,
// whose runtime answers at once.
type Config struct {
	CPUs            int
	Memory, Storage resource.Quantity
	// Address is the node's InternalIP; 127.0.0.1 when invalid.
	Address netip.Addr
	// DevicesPrepared makes pods with resource claims start, as if a driver had prepared their devices.
	DevicesPrepared bool
	// Logs makes containers write logs below KubeletConfiguration.podLogsDir, a directory of the real machine.
	Logs bool
	// Keep makes the machine keep the checkpoints that an agent writes for the next agent. If Disk is set, the machine
	// stores the checkpoints there.
	Keep bool
	Disk agent.Disk
	// PullRecords is a directory of the real machine in which agents record which credentials pulled which image. Empty: there
	// are no records, and every pod may use every image.
	PullRecords string
	// PollManifests makes agents read KubeletConfiguration.staticPodPath only every fileCheckFrequency. Otherwise agents
	// also watch the directory by inotify, as on a real machine. The watch needs an inotify instance for each node, and it
	// does not work in virtual time (testing/synctest).
	PollManifests bool

	// Seed is the seed of all random values in the runtime: IDs, addresses and the spread of latencies.
	Seed uint64
	// Latency is how long a CRI method takes, by its name ("RunPodSandbox"); the entry "" is for CRI methods without an entry.
	Latency map[string]Latency
	// Rules say what containers and images do; nil: there are no rules. Annotations of a pod take precedence over them. Nodes may share them.
	Rules *Rules
	// Images are present from the start. Other images can be pulled, except from registries whose domain ends with .invalid.
	Images []string
	// RuntimeHandlers are the names of the runtime's handlers, besides the default one. RuntimeClass objects refer to them.
	RuntimeHandlers []string
	// CSIDrivers are the node's CSI drivers. VolumeFiles, if set, has the records of their volumes, and outlives the node like Disk.
	CSIDrivers  []CSIDriver
	VolumeFiles *agent.VolumeFiles
	// Clock is the machine's clock; nil: that of the process.
	Clock agent.Clock
	// Devices are the devices that pods request as extended resources.
	Devices []Devices
	// Log gets one line per change in the runtime, at debug level; nil: no log.
	Log *slog.Logger
}

// Latency is a time that varies evenly between Mean-Jitter and Mean+Jitter.
type Latency struct{ Mean, Jitter time.Duration }

// These annotations of a pod say what its containers do. An annotation's name may end with "." and the name of a container:
// the annotation is then for that container only, and takes precedence over the annotation without a container.
const (
	AnnotationRunFor       = simcri.AnnotationRunFor       // exit after this duration ("10s")
	AnnotationExitCode     = simcri.AnnotationExitCode     // exit with this code; without AnnotationRunFor: at once
	AnnotationExitReason   = simcri.AnnotationExitReason   // the reason of the end, for example OOMKilled
	AnnotationMessage      = simcri.AnnotationMessage      // the termination message
	AnnotationFailAttempts = simcri.AnnotationFailAttempts // only attempts below this number exit; later attempts keep running
	AnnotationStopAfter    = simcri.AnnotationStopAfter    // how long a stop takes; "never": until the container is killed
	AnnotationStartError   = simcri.AnnotationStartError   // the start fails with this message
	AnnotationReadyAfter   = simcri.AnnotationReadyAfter   // readiness and startup probes fail until this time has passed
	AnnotationFailAfter    = simcri.AnnotationFailAfter    // probes fail after this time
	AnnotationCPU          = simcri.AnnotationCPU          // usage in cores ("0.25"); default 0.001
	AnnotationMemory       = simcri.AnnotationMemory       // working set in bytes; default 10 MiB
	AnnotationMemoryGrows  = simcri.AnnotationMemoryGrows  // bytes by which the working set grows in each second
	AnnotationDisk         = simcri.AnnotationDisk         // bytes in the container's writable layer; default 8 KiB
	AnnotationDo           = simcri.AnnotationDo           // what a rule of a file has in its field do: see ParseRules
	AnnotationDiskGrows    = simcri.AnnotationDiskGrows    // bytes by which the writable layer grows in each second
)

// Node is a machine that does not exist, with its container runtime.
type Node struct {
	runtime   *simcri.Runtime
	machine   *agent.Machine
	pressures pressures
	devices   devices
	clock     agent.Clock
}

// New returns a node without pods. It starts nothing.
func New(cfg Config) *Node {
	latency := make(map[string]simcri.Latency, len(cfg.Latency))
	for method, l := range cfg.Latency {
		latency[method] = simcri.Latency(l)
	}
	runtime := simcri.New(simcri.Config{
		Seed: cfg.Seed, Latency: latency, Images: cfg.Images, RuntimeHandlers: cfg.RuntimeHandlers, Rules: cfg.Rules.of(), WriteLogs: cfg.Logs, Log: cfg.Log,
		Clock: nodeclock.Of(cfg.Clock),
	})
	n := &Node{runtime: runtime, devices: devices{all: cfg.Devices}, clock: cfg.Clock}
	shape := agent.Shape{
		CPUs: cfg.CPUs, Memory: cfg.Memory, Storage: cfg.Storage, Address: cfg.Address, Logs: cfg.Logs, Keep: cfg.Keep, Disk: cfg.Disk,
		PullRecords: cfg.PullRecords, PollManifests: cfg.PollManifests, LocalDrivers: localDrivers(cfg.CSIDrivers), VolumeFiles: cfg.VolumeFiles,
		DevicesPrepared: cfg.DevicesPrepared,
		Used: func() agent.Used {
			memory, disk, processes := runtime.Used()
			return n.pressures.on(agent.Used{Memory: memory, Storage: disk, Processes: processes})
		},
	}
	if len(cfg.Devices) > 0 {
		shape.Devices = n.devices.now
	}
	n.machine = agent.SimulatedMachine(shape)
	n.pressures.whole = n.machine.Whole()
	return n
}

// SetShutdown makes the machine begin to shut down, or cancels that: see agent.Machine.SetShutdown.
func (n *Node) SetShutdown(down bool) { n.machine.SetShutdown(down) }

// SetNetwork makes the runtime say whether the pods' network is set up. While it is not, the node is not Ready, containers run on, and only pods
// on the host's network start. The agent asks the runtime every few seconds.
func (n *Node) SetNetwork(ready bool) {
	if ready {
		n.runtime.SetCondition(runtimeapi.NetworkReady, true, "", "")
	} else {
		n.runtime.SetCondition(runtimeapi.NetworkReady, false, "NetworkPluginNotReady", "Network plugin returns error: cni plugin not initialized")
	}
}

// Deps returns the dependencies of an agent on this node: Runtime, Images, Dialer, Machine and Clock. The caller adds Log, and Client if there is
// an API server.
func (n *Node) Deps() agent.Deps {
	d := agent.Deps{Dialer: n.runtime, Machine: n.machine, Clock: n.clock}
	d.Runtime, d.Images = n.runtime.Clients()
	return d
}

// ServeStreams serves exec, attach and port-forward into containers on l, until ctx ends; it closes l. The agent's API forwards the
// streams of its clients to l. Without ServeStreams these streams fail.
func (n *Node) ServeStreams(ctx context.Context, l net.Listener) error {
	return n.runtime.ServeStreams(ctx, l, "")
}

// StreamHandler returns a handler for exec, attach and port-forward. Use it instead of ServeStreams if one server serves
// several nodes. base is the URL at which agents reach the handler; it ends with a slash.
func (n *Node) StreamHandler(base string) (http.Handler, error) { return n.runtime.StreamHandler(base) }

// Close stops the simulation of the containers. Their state does not change any more.
func (n *Node) Close() { n.runtime.Close() }

// HostAddress returns the address of this host's default route, for Config.Address. An API server can send requests to the
// node's API there. If this host has no default route, the result is not valid.
func HostAddress() netip.Addr { return (&nodefacts.Real{}).Network().DefaultV4 }
