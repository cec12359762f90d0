package agent

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubelet "k8s.io/kubelet/config/v1beta1"

	"github.com/wherry-node/wherry/internal/edge/config"
)

// Version is the kubelet version that a node reports, unless Config sets another.
const Version = config.KubeletVersion

// Config configures the node. It is a value; the agent does not modify its maps and slices.
type Config struct {
	// NodeName is the Node's name. Required.
	NodeName string
	// Hostname is the Node's address of type Hostname and its label kubernetes.io/hostname; "": NodeName.
	Hostname string
	// Kubelet must be complete: start with DefaultConfiguration.
	Kubelet kubelet.KubeletConfiguration
	// RootDir holds the state of pods. Required on a real machine.
	RootDir string

	// The fields below describe the connections, files and ports that Run opens itself, unless Deps contains them already. Without
	// Deps.Runtime, Run also dials Kubelet.ContainerRuntimeEndpoint and ImageServiceEndpoint.

	// Kubeconfig, BootstrapKubeconfig and CertDir are like the flags of these names. Run obtains the node's identity (TLS
	// bootstrap) and renews its client certificate (Kubelet.RotateCertificates). Without Kubeconfig, BootstrapKubeconfig and
	// Deps.Client the node is standalone: it has no API server. CertDir also keeps the certificate of the HTTPS API.
	Kubeconfig, BootstrapKubeconfig, CertDir string
	// Listen makes Run open the ports in Kubelet: port (HTTPS, with the certificate of tlsCertFile, or one that the API server
	// signs if serverTLSBootstrap is true, or else a self-signed one), healthzPort and readOnlyPort. False: the listeners are
	// in Deps, or there are none. A standalone node has no HTTPS API unless clientCAFile is set and authorization.mode is
	// AlwaysAllow.
	Listen bool
	// ControlSocket is the path of a Unix socket for Deps.Control, open to root and the agent's user only; "": none. With
	// ControlSocketOptional the agent also runs if the socket cannot be opened.
	ControlSocket         string
	ControlSocketOptional bool
	// Owner is the node's name at a runtime that it shares with other nodes: the agent sees only the pods with this owner. "":
	// all pods belong to the node.
	Owner string
	// ManageHost makes Run configure the process and the machine as a kubelet does: oomScoreAdj, maxOpenFiles, kernel settings
	// (protectKernelDefaults: false; not with an Owner) and makeIPTablesUtilChains. Set it for one agent of a real machine.
	ManageHost bool

	// NodeIPs is like --node-ip, NodeLabels like --node-labels. CloudProvider is "" or "external".
	NodeIPs       []netip.Addr
	NodeLabels    map[string]string
	CloudProvider string
	// AllocatableIgnoresEviction leaves the thresholds of Kubelet.EvictionHard out of what the Node can allocate to pods.
	AllocatableIgnoresEviction bool
	// KubeletVersion is the Node's status.nodeInfo.kubeletVersion; "": Version.
	KubeletVersion string
	// RuntimeCgroups is the cgroup of the container runtime, for /stats/summary; "": unknown.
	RuntimeCgroups string
	// CredentialProviderConfig is a CredentialProviderConfig file or a directory of them, and CredentialProviderDir the directory of the
	// plugins that it names; "": none. Run reads them.
	CredentialProviderConfig, CredentialProviderDir string
	// DockerConfigs are docker configuration files with registry credentials of the node. Each may be absent.
	DockerConfigs []string
	// LogLinkDir is the directory in which the agent makes a link to each container log (/var/log/containers); "": none.
	LogLinkDir string
	// DeadContainers is how many dead attempts of one container are kept for their logs, beside its newest attempt; nil: 1, negative: all.
	// DeadContainerAge is how long each dead attempt is kept at least. MaxDeadContainers is how many dead attempts the whole
	// node keeps, in addition to the newest attempt of each container; nil: no limit.
	DeadContainers    *int
	DeadContainerAge  time.Duration
	MaxDeadContainers *int
	// StartSlots is how many pods may start at the same time. 0: the agent measures and adjusts the number. Its minimum is then twice the
	// value of Processors plus two; its maximum is 64, or the minimum if that is more than 64.
	StartSlots int
	// Processors is the minimum number of jobs of the node itself that run at the same time: commands of probes, starts,
	// stops. The agent measures whether the machine can run more. 0: the number of CPUs.
	Processors int
	// WorkShares says how classes of the node's own jobs share the machine while it is overloaded: a class gets time in proportion to its
	// number, from 0 to 1e6. A class with 0 runs only while no class with a larger number waits. The classes and their defaults are: "vital"
	// (8, liveness probes of critical pods), "first" (8, probes that a container must pass to be started or ready), "periodic" (2, other
	// probes), "removal" (2, removals of containers and sandboxes that have ended), "statistics" (1, reads of statistics from the runtime)
	// and "rotation" (1, rotations of container logs). A class that is not named has its default. Starts and stops of pods, and
	// commands of users, do not wait for these classes.
	WorkShares map[string]float64
	// Flags are shown at /flagz.
	Flags map[string]string
	// OfflineStart lets the node start without its API server. The zero value does not.
	OfflineStart OfflineStart
	// Server limits the cost of clients of the HTTPS API. The zero value has the defaults.
	Server ServerLimits
	// KeepImages are images that are never removed: full names without tag or digest, or prefixes that end with "/*".
	KeepImages []string
	// RecordBytes bounds the bytes, below RootDir, of the recorded turns of pods that went wrong; 0: nothing is recorded.
	RecordBytes int64
	// PushAPI allows clients with the right to "nodes/proxy" to push pods over the HTTPS API too.
	PushAPI bool
	// Console serves a web page about the node at /console/, on the HTTPS API to clients with the right to get "nodes/console" or
	// "nodes/proxy", and on the control socket.
	Console bool
	// Port is the port of the HTTPS server in the Node object, if the caller opens the listeners; 0: Kubelet.Port.
	Port int32
}

// ServerLimits limit the cost of clients of the HTTPS API and the right to stream. Zero numbers have their defaults.
type ServerLimits struct {
	// StreamingByGet allows clients with the right to get nodes/proxy to run commands by GET (WebSocket), as upstream's kubelet
	// does. Otherwise they also need the right to create nodes/proxy.
	StreamingByGet bool
	// ReviewQPS and ReviewBurst limit TokenReviews and SubjectAccessReviews. The agent sends these reviews with a client of their own, so
	// requests of unknown clients never delay statuses and secrets. The defaults are 20 a second and 40.
	ReviewQPS   float32
	ReviewBurst int
	// WaitingReviews is how many requests may wait for a review at the same time. The default is 64.
	WaitingReviews int
	// UnknownConnections is how many connections with unauthenticated clients a port may have. The default is 256.
	UnknownConnections int
}

// Deps are the agent's dependencies.
type Deps struct {
	// Client configures the access to the API server as this node. The agent makes its own clients from it, which know only
	// the resources that a node uses: one for the statuses of pods and one for everything else. Each has a rate limit (QPS, Burst) of its own,
	// unless Client has a RateLimiter. If Client is nil, the agent uses Config.Kubeconfig; without a kubeconfig there is no
	// API server. Agents of one process share connections by the rules of client-go: if their TLS configurations are equal,
	// or if they have the same Transport.
	Client *rest.Config
	// Heartbeats, if set, configures a second client, without a rate limit (QPS -1). It sends the node's status and lease,
	// so these never wait behind other requests. It also sends events: they have their own rate limit (eventRecordQPS), and
	// with Client they would delay the Secrets and tokens of pods when many pods start. Set its Timeout to the interval of the node
	// status, so that the agent notices soon that a server no longer answers.
	Heartbeats *rest.Config
	// CloseConnections closes the connections of Client and Heartbeats. The agent calls it when heartbeats fail repeatedly.
	CloseConnections func()
	// Leases renews the node's lease together with those of other nodes; nil: the agent renews it.
	Leases Leases
	// EventTurn is called before each request that writes an event, and returns when the request may be sent, or when ctx ends, with an
	// error. The agent calls done when the request has been answered. With it, the events of several agents wait for requests that are more
	// urgent. Nil: events wait only for their rate limit. Calls are concurrent.
	EventTurn func(ctx context.Context) (done func(), err error)
	// Clock is the node's clock; nil: that of the process. A simulated node may have one that is wrong.
	Clock Clock
	// Feed follows objects for this agent and for others. nil: the agent itself watches its pods, its Node, and the objects
	// that its pods refer to.
	Feed Feed
	// Runtime and Images are the container runtime. Nil on a real machine: Run dials Kubelet.ContainerRuntimeEndpoint.
	Runtime runtimeapi.RuntimeServiceClient
	Images  runtimeapi.ImageServiceClient
	// Dialer opens connections to pods, for probes; nil: the network of this host.
	Dialer Dialer
	// Machine is the host. Required: RealMachine or SimulatedMachine.
	Machine *Machine
	// API is the listener of the node's HTTPS API, with TLS. Health and ReadOnly are served without TLS. A nil listener is not
	// served. Run closes them.
	API              net.Listener
	TLS              *tls.Config
	Health, ReadOnly net.Listener
	// Control is the listener of the control socket. It is served without TLS to every client that can open it. Pods are pushed
	// over it, and wherry ps, logs, exec and other commands use it. RootDir keeps pushed pods. Nil: there is none. Run closes
	// it.
	Control net.Listener
	// PodsAPI is the listener of the Pods API (feature gate PodsAPI), a gRPC service without TLS. It is served to every client that can open
	// it. Nil: Config.Listen opens a socket in RootDir, or the API is not served. Run closes it.
	PodsAPI net.Listener
	// Failing returns descriptions of parts outside the agent that fail and are tried again, such as the renewal of a
	// certificate on a full disk. The node's Ready condition names them. It is called periodically and concurrently; nil: there
	// are none.
	Failing func() []string
	// Started is called once by Run, when the node's ports and directories are ready. The node may still wait for its identity then (TLS
	// bootstrap); it already runs the pods that do not come from the API server. It must not block. May be nil.
	Started func()
	// Acted is called after each action on a pod, such as the start, the stop or the removal of a container, also after one that failed. Between its calls
	// the agent only watches its pods. It must not block, and is called concurrently. May be nil.
	Acted func()
	// Metrics is the registry for the agent's metrics; nil: a new registry.
	Metrics *prometheus.Registry
	// Traces receives requests with finished spans (ExportTraceServiceRequest of OTLP) if Config.Kubelet.Tracing keeps any
	// traces. There is one call at a time, bounded by its context. Nil: the spans are sent to tracing.endpoint.
	Traces func(ctx context.Context, request []byte) error
	// Seed decides how the agent spreads reports of the node and probes after its start in time; 0: by chance. With equal seeds, simulated nodes do the
	// same at the same time.
	Seed uint64
	// ProcessMetrics adds the metrics of the whole process to Metrics. Set it for at most one agent of a process.
	ProcessMetrics bool
	// Log is required.
	Log *slog.Logger
	// SetVerbosity sets the verbosity of Log to the value of a -v flag, for PUT /debug/flags/v. Nil: this is not served.
	SetVerbosity func(value string) error
}

// Leases renews the leases of several nodes, with one timer for all.
type Leases interface {
	// Keep starts to renew the lease of a node and returns at once. uid returns the UID of the Node object for the lease's
	// owner reference, or "" while there is no Node. release ends the renewal, so the lease expires; the agent calls it
	// once.
	Keep(node string, uid func() types.UID) (release func())
}

// Dialer opens connections. *net.Dialer implements it.
type Dialer interface {
	DialContext(ctx context.Context, network, address string) (net.Conn, error)
}

// DefaultConfiguration returns a complete KubeletConfiguration with the documented defaults of Kubernetes.
func DefaultConfiguration() kubelet.KubeletConfiguration {
	cfg, _, err := config.Load(nil)
	if err != nil { // the defaults are valid, which a test checks
		panic("agent: default configuration: " + err.Error())
	}
	return cfg.Kubelet
}

func (c *Config) check(d *Deps) error {
	switch {
	case c.NodeName == "":
		return errors.New("agent: Config.NodeName is empty")
	case c.Kubelet.EnableServer == nil || c.Kubelet.Authentication.Webhook.Enabled == nil:
		return errors.New("agent: Config.Kubelet is not complete: start with DefaultConfiguration()")
	case d.Machine == nil:
		return errors.New("agent: Deps.Machine is required: RealMachine or SimulatedMachine")
	case (d.Runtime == nil) != (d.Images == nil):
		return errors.New("agent: one of Deps.Runtime and Deps.Images is missing")
	case d.Runtime == nil && !d.Machine.real:
		return errors.New("agent: Deps.Runtime and Deps.Images are required on a simulated machine")
	case d.Runtime == nil && c.Kubelet.ContainerRuntimeEndpoint == "":
		return errors.New("agent: neither Deps.Runtime nor Config.Kubelet.ContainerRuntimeEndpoint names a container runtime")
	case d.Client != nil && c.Kubeconfig+c.BootstrapKubeconfig != "":
		return errors.New("agent: Deps.Client and Config.Kubeconfig both name an API server")
	case c.BootstrapKubeconfig != "" && c.Kubeconfig == "":
		return errors.New("agent: Config.BootstrapKubeconfig needs Config.Kubeconfig: the path of the file to create")
	case c.Listen && (d.API != nil || d.Health != nil || d.ReadOnly != nil):
		return errors.New("agent: Config.Listen and a listener of Deps exclude each other")
	case c.ControlSocket != "" && d.Control != nil:
		return errors.New("agent: Config.ControlSocket and Deps.Control exclude each other")
	case c.Listen && d.PodsAPI != nil:
		return errors.New("agent: Config.Listen and Deps.PodsAPI exclude each other")
	case c.ManageHost && !d.Machine.real:
		return errors.New("agent: Config.ManageHost is for the real machine")
	case d.Log == nil:
		return errors.New("agent: Deps.Log is required")
	case d.API != nil && d.TLS == nil:
		return errors.New("agent: Deps.API needs Deps.TLS")
	case c.RootDir == "" && d.Machine.real:
		return errors.New("agent: Config.RootDir is empty")
	case c.OfflineStart.Enabled && d.Feed != nil:
		return errors.New("agent: Config.OfflineStart and Deps.Feed exclude each other")
	case c.OfflineStart.Enabled && (c.OfflineStart.Dir == "" && c.RootDir == "" || c.OfflineStart.KeyFile == "" && c.CertDir == ""):
		return errors.New("agent: Config.OfflineStart needs Dir or RootDir, and KeyFile or CertDir")
	}
	if _, errs := config.NewGates(c.Kubelet.FeatureGates); len(errs) > 0 {
		return fmt.Errorf("agent: Config.Kubelet: %w", errors.Join(errs...))
	}
	return nil
}

// standalone reports whether there is no API server.
func (c *Config) standalone(d *Deps) bool {
	return d.Client == nil && c.Kubeconfig == "" && c.BootstrapKubeconfig == ""
}

func (c *Config) setDefaults() {
	if c.Hostname == "" {
		c.Hostname = c.NodeName
	}
	if c.KubeletVersion == "" {
		c.KubeletVersion = Version
	}
	if c.DeadContainers == nil {
		c.DeadContainers = new(1)
	}
	c.OfflineStart.setDefaults(c)
	if c.Server.ReviewQPS == 0 {
		c.Server.ReviewQPS = 20
	}
	if c.Server.ReviewBurst == 0 {
		c.Server.ReviewBurst = 40
	}
	if c.Port == 0 {
		c.Port = c.Kubelet.Port
	}
}
