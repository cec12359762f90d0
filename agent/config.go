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

// Version is what a node reports as its kubelet's version unless Config says otherwise.
const Version = config.KubeletVersion

// Config says what the node is. It is a value; maps and slices are not written to.
type Config struct {
	// NodeName is the Node's name. Required.
	NodeName string
	// Hostname is the address of type Hostname and the label kubernetes.io/hostname; NodeName when empty.
	Hostname string
	// Kubelet must be complete: begin with DefaultConfiguration.
	Kubelet kubelet.KubeletConfiguration
	// RootDir holds the state of pods. Required on a real machine.
	RootDir string

	// What Run opens by itself, where Deps does not bring it. Deps.Runtime: with none, Run dials Kubelet.ContainerRuntimeEndpoint
	// and ImageServiceEndpoint.

	// Kubeconfig, BootstrapKubeconfig and CertDir are as the flags of these names. Run gets the node its identity (TLS bootstrap)
	// and renews its client certificate (Kubelet.RotateCertificates). Without Kubeconfig, BootstrapKubeconfig and Deps.Client the
	// node is standalone: it has no API server. CertDir also keeps the certificate of the HTTPS API.
	Kubeconfig, BootstrapKubeconfig, CertDir string
	// Listen has Run open the ports that Kubelet names: port (HTTPS, with the certificate of tlsCertFile, or one that the API server
	// signs where serverTLSBootstrap is true, or else a self-signed one), healthzPort and readOnlyPort. False: Deps has listeners, or
	// there are none. A standalone node has no HTTPS API unless clientCAFile is set and authorization.mode is AlwaysAllow.
	Listen bool
	// ControlSocket is the path of a Unix socket for Deps.Control, for root and the agent's user only; "": none. With
	// ControlSocketOptional the agent also runs where the socket cannot be opened.
	ControlSocket         string
	ControlSocketOptional bool
	// Owner is the node's name at a runtime that it shares with others: it sees its own pods only. "": all pods are its own.
	Owner string
	// ManageHost has Run set up the process and the machine as a kubelet does: oomScoreAdj, maxOpenFiles, the kernel's settings
	// (protectKernelDefaults: false; not with an Owner) and makeIPTablesUtilChains. For one agent of a real machine.
	ManageHost bool

	// NodeIPs as --node-ip; NodeLabels as --node-labels; CloudProvider "" or "external".
	NodeIPs       []netip.Addr
	NodeLabels    map[string]string
	CloudProvider string
	// KubeletVersion is nodeInfo.kubeletVersion; Version when empty.
	KubeletVersion string
	// RuntimeCgroups is the control group of the container runtime, for /stats/summary; "": not known.
	RuntimeCgroups string
	// CredentialProviderConfig is a CredentialProviderConfig file or a directory of them, and CredentialProviderDir the directory of the
	// plugins that it names; "": none. Run reads them.
	CredentialProviderConfig, CredentialProviderDir string
	// DockerConfigs are docker configuration files with registry credentials of the node. Each may be absent.
	DockerConfigs []string
	// LogLinkDir gets a link per container log (/var/log/containers); "": none.
	LogLinkDir string
	// DeadContainers is how many dead attempts of one container are kept for their logs; 1 when zero, all when negative.
	// DeadContainerAge is how long each is kept in any case, and MaxDeadContainers how many of all are kept beside the newest
	// of each container; nil: no limit.
	DeadContainers    int
	DeadContainerAge  time.Duration
	MaxDeadContainers *int
	// StartPlaces bounds how many pods are being started at once. When zero, their number follows what the machine bears: at
	// least two more than twice its processors, at most 64 or that, whichever is more.
	StartPlaces int
	// Processors is how much of the node's own work the machine does at once at least: commands of probes, starts, stops. More is
	// found out by measuring. Those of the machine when zero.
	Processors int
	// WorkShares are the shares of what waits when the machine has more to do than that, by class ("vital", "first",
	// "periodic", "removal", "statistics", "rotation"): see internal/base/work. Nil: the defaults.
	WorkShares map[string]float64
	// Flags are shown at /flagz.
	Flags map[string]string
	// Server bounds what clients of the HTTPS API may cost; its zero value has the defaults.
	Server ServerLimits
	// PushAPI lets whoever may use "nodes/proxy" push pods over the HTTPS API too.
	PushAPI bool
	// Port is what the Node says of the HTTPS server, where listeners are the caller's; Kubelet.Port when zero.
	Port int32
}

// ServerLimits bound what clients of the HTTPS API may cost, and say who may stream. Numbers that are zero have their defaults.
type ServerLimits struct {
	// StreamingByGet lets those who may get nodes/proxy run commands by GET (WebSocket), as upstream's kubelet does; else they
	// must have the right to create it too.
	StreamingByGet bool
	// ReviewQPS and ReviewBurst limit TokenReviews and SubjectAccessReviews, which have a client of their own: requests of
	// strangers never delay statuses and secrets. 20 a second and 40 by default.
	ReviewQPS   float32
	ReviewBurst int
	// WaitingReviews is how many requests may wait for a review at once, 64 by default.
	WaitingReviews int
	// UnknownConnections is how many connections a port may have whose client has not been let in, 256 by default.
	UnknownConnections int
}

// Deps are what the agent works with.
type Deps struct {
	// Client says how to reach the API server as this node; nil: Config.Kubeconfig says so, or there is none. The agent makes its own small client of it,
	// which has the resources that a node uses and not all of Kubernetes'. Agents of one process share connections as
	// client-go does: by an equal TLS configuration, or by Transport. Heartbeats, when set, is for a second client: without a
	// limit of requests (QPS -1), for node status and lease, so that they never queue behind other requests, and for
	// events, which have a pace of their own (eventRecordQPS) and would else keep back the statuses of pods that start at
	// once. Its Timeout should be that of the status frequency, so that a server that is gone is noticed in time.
	Client     *rest.Config
	Heartbeats *rest.Config
	// CloseConnections closes the connections of the clients; it is called when heartbeats fail repeatedly.
	CloseConnections func()
	// Leases renews the node's lease with those of others; nil: the agent does it.
	Leases Leases
	// Runtime and Images are the container runtime. Nil on a real machine: Run dials Kubelet.ContainerRuntimeEndpoint.
	Runtime runtimeapi.RuntimeServiceClient
	Images  runtimeapi.ImageServiceClient
	// Dialer reaches pods, for probes; nil: the network of this host.
	Dialer Dialer
	// Machine is the host. Required: RealMachine or SimulatedMachine.
	Machine *Machine
	// API is the listener of the node's HTTPS API, with TLS; Health and ReadOnly are served in the clear. Nil ones
	// are not served. Run closes them.
	API              net.Listener
	TLS              *tls.Config
	Health, ReadOnly net.Listener
	// Control is the listener of the control socket, served in the clear to whoever can open it: pods are pushed over it,
	// and wherry ps, logs, exec and the others use it. What was pushed is kept in RootDir. Nil: there is none. Run closes it.
	Control net.Listener
	// Failing are parts beside the agent that fail and are tried again, in words: the renewal of a certificate on a full disk.
	// The node's Ready condition names them. Called now and then, concurrently with anything; nil: there are none.
	Failing func() []string
	// Started is called by Run, once, when the node is at work: its identity, ports and directories are there. It must not block.
	// May be nil.
	Started func()
	// Metrics takes the agent's metrics; nil: a registry of its own.
	Metrics *prometheus.Registry
	// ProcessMetrics adds what speaks of the whole process to Metrics: for one agent of a process at most.
	ProcessMetrics bool
	// Log is required.
	Log *slog.Logger
	// SetVerbosity sets how much Log says, to the value of a -v flag: PUT /debug/flags/v. Nil: that is not served.
	SetVerbosity func(value string) error
}

// Leases renews the leases of many nodes, with one timer for all.
type Leases interface {
	// Keep begins to renew the lease of a node and returns at once. uid is that of the Node object, for the owner reference;
	// it returns "" while there is none. release ends it; it is called once, and the lease ages after it.
	Keep(node string, uid func() types.UID) (release func())
}

// Dialer opens connections. *net.Dialer is one.
type Dialer interface {
	DialContext(ctx context.Context, network, address string) (net.Conn, error)
}

// DefaultConfiguration is a complete KubeletConfiguration with the values that Kubernetes documents as defaults.
func DefaultConfiguration() kubelet.KubeletConfiguration {
	cfg, _, err := config.Load(nil)
	if err != nil { // the defaults are tested to be valid
		panic("agent: default configuration: " + err.Error())
	}
	return cfg.Kubelet
}

func (c *Config) check(d *Deps) error {
	switch {
	case c.NodeName == "":
		return errors.New("agent: Config.NodeName is empty")
	case c.Kubelet.EnableServer == nil || c.Kubelet.Authentication.Webhook.Enabled == nil:
		return errors.New("agent: Config.Kubelet is not complete: begin with DefaultConfiguration()")
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
		return errors.New("agent: Config.BootstrapKubeconfig needs Config.Kubeconfig: the file that it makes")
	case c.Listen && (d.API != nil || d.Health != nil || d.ReadOnly != nil):
		return errors.New("agent: Config.Listen and a listener of Deps exclude each other")
	case c.ControlSocket != "" && d.Control != nil:
		return errors.New("agent: Config.ControlSocket and Deps.Control exclude each other")
	case c.ManageHost && !d.Machine.real:
		return errors.New("agent: Config.ManageHost is for the real machine")
	case d.Log == nil:
		return errors.New("agent: Deps.Log is required")
	case d.API != nil && d.TLS == nil:
		return errors.New("agent: Deps.API needs Deps.TLS")
	case c.RootDir == "" && d.Machine.real:
		return errors.New("agent: Config.RootDir is empty")
	}
	if _, errs := config.NewGates(c.Kubelet.FeatureGates); len(errs) > 0 {
		return fmt.Errorf("agent: Config.Kubelet: %w", errors.Join(errs...))
	}
	return nil
}

// standalone: there is no API server.
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
	if c.DeadContainers == 0 {
		c.DeadContainers = 1
	}
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
