package config

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/pflag"
	kubelet "k8s.io/kubelet/config/v1beta1"
)

// ErrHelp means that the command line has --help. The caller should print Usage and exit with code 0.
var ErrHelp = pflag.ErrHelp

// ErrVersion means that the command line has --version, ErrVersionRaw that it has --version=raw.
var (
	ErrVersion    = errors.New("version asked for")
	ErrVersionRaw = errors.New("raw version asked for")
)

// Config is the configuration of one node, from its command line and its files. It has more fields than most structs here,
// because it has one field per flag that is no field of KubeletConfiguration. It is a value: copy it freely, but do not modify
// its maps and slices.
type Config struct {
	// Kubelet is the merged KubeletConfiguration with defaults, validated. Pointers that have a default are non-nil.
	Kubelet kubelet.KubeletConfiguration
	// Gates has the feature gates of Kubelet.FeatureGates over the defaults of the release.
	Gates Gates

	// Kubeconfig is the path of the node's kubeconfig. If it and BootstrapKubeconfig are empty, the node is standalone.
	Kubeconfig string
	// BootstrapKubeconfig is the path of the kubeconfig with which a new node requests its first certificate. Kubeconfig then refers to
	// that certificate.
	BootstrapKubeconfig string

	// HostnameOverride is the name of the node if it is not the host name. See NodeName.
	HostnameOverride string
	// NodeIPs are the addresses of --node-ip, at most one of each family. If there are none, the agent chooses the addresses. For the
	// unspecified address of a family ("::", "0.0.0.0") the agent chooses too, and prefers this family.
	NodeIPs []netip.Addr
	// NodeLabels are the labels that the agent sets on the Node at registration, and keeps.
	NodeLabels map[string]string
	// CloudProvider is "" or "external".
	CloudProvider string

	// RootDir holds the state of pods (/var/lib/kubelet), CertDir keys and certificates.
	RootDir, CertDir string

	// PushSocket is the path of the control socket, which takes pods and serves wherry ps, logs and other commands. "": ControlSocket
	// chooses the path. "none": no socket. PushAPI makes the HTTPS API accept pods too.
	PushSocket string
	PushAPI    bool

	// Owner is the value of a label on the sandboxes and containers of this node, if several nodes share one runtime. The node then
	// sees only sandboxes and containers that have this label. It is empty if the node has a runtime of its own. There is no flag for
	// it.
	Owner string

	// RuntimeCgroups is the cgroup of the container runtime, for its statistics.
	RuntimeCgroups string
	// ImageCredentialProviderConfig and ImageCredentialProviderBinDir name credential provider plugins.
	ImageCredentialProviderConfig, ImageCredentialProviderBinDir string

	// These limits decide which ended containers are kept: each for at least MinimumContainerTTL, at most MaxDeadPerContainer of one
	// container, and at most MaxDeadContainers in total (negative: no limit).
	MinimumContainerTTL                    time.Duration
	MaxDeadPerContainer, MaxDeadContainers int32

	// If IgnoreEvictionThreshold is true, evictionHard is not subtracted from node allocatable.
	IgnoreEvictionThreshold bool

	// Wherry has the settings of --wherry-config.
	Wherry Wherry
	// Files are the files that the configuration was read from.
	Files Files
	// Flags are all flags by name with their effective values, for /flagz. Credentials are masked.
	Flags map[string]string

	// Simulated is the size of the machine if the runtime is simulated://; nil for a real machine.
	Simulated *SimulatedNode
}

// Files are the files of a configuration, and the command line that names them. An empty field means that there is no such file.
type Files struct {
	Args                    []string
	Config, DropIns, Wherry string
}

// Notice is a message about the configuration that the node logs once at its start.
type Notice struct {
	Kind NoticeKind
	// Subject is the flag (--log-dir) or the field (memorySwap.swapBehavior) that the notice is about.
	Subject string
	// Message is a sentence: what happens, and what to use or do instead.
	Message string
}

// NoticeKind is the kind of a Notice.
type NoticeKind string

// The kinds of notices.
const (
	// NoticeRemoved: a flag that Kubernetes has removed. It is accepted and has no effect.
	NoticeRemoved NoticeKind = "removed"
	// NoticeNotHonoured: a flag or field of Kubernetes that has no effect here yet.
	NoticeNotHonoured NoticeKind = "not honoured"
	// NoticeDeprecated: a flag or field that works and that Kubernetes will remove.
	NoticeDeprecated NoticeKind = "deprecated"
	// NoticeChanged: a flag or field whose value has another meaning here than a user may expect.
	NoticeChanged NoticeKind = "changed"
)

// String returns the notice on one line.
func (n Notice) String() string { return n.Subject + ": " + n.Message }

// NodeName returns the name of the Node object: --hostname-override, or else the host name. It is trimmed and in lower case, as
// in upstream's kubelet.
func (c Config) NodeName(hostname string) (string, error) {
	name := c.HostnameOverride
	if name == "" {
		name = hostname
	}
	name = strings.ToLower(strings.TrimSpace(name))
	if name == "" {
		return "", errors.New("name of the node: the host has no name and --hostname-override is empty: set one of them")
	}
	return name, nil
}

// Standalone reports whether there is no API server.
func (c Config) Standalone() bool { return c.Kubeconfig == "" && c.BootstrapKubeconfig == "" }

// NoSocket is the value of --push-socket with which the node has no control socket.
const NoSocket = "none"

// Console reports whether the node serves its web page.
func (c Config) Console() bool {
	if e := c.Wherry.Console.Enabled; e != nil {
		return *e
	}
	return c.Standalone() || c.Simulated != nil
}

// ControlSocket returns the path of the control socket, and whether the user configured it; "": no socket. --push-socket takes
// precedence over controlSocket of --wherry-config. By default a standalone node has a control socket. A node of a cluster has
// none, because a client of the socket may do everything. A simulated node has one in its root directory, because nothing runs
// there.
func (c Config) ControlSocket() (path string, asked bool) {
	s := &c.Wherry.ControlSocket
	switch {
	case c.PushSocket == NoSocket:
		return "", true
	case c.PushSocket != "":
		return c.PushSocket, true
	case s.Enabled != nil && !*s.Enabled:
		return "", true
	case s.Path != "":
		return s.Path, true
	case s.Enabled != nil:
		return c.usualSocket(), true
	case c.Standalone(), c.Simulated != nil:
		return c.usualSocket(), false
	}
	return "", false
}

// The control socket of a real node is in a directory of its own, never in --root-dir. Pods of agents and monitors mount
// --root-dir or directories below it, and a process that reaches the socket's file can open it.
const (
	// SocketDir is the directory of the socket. Only root may enter it.
	SocketDir = "/run/wherry"
	// SystemSocket is the control socket of a node with the default root directory.
	SystemSocket = SocketDir + "/" + socketName
)

// usualSocket returns the default path of the control socket. Agents with different root directories get different paths.
func (c *Config) usualSocket() string {
	if c.Simulated != nil {
		return c.inRoot(socketName)
	}
	rootDir := c.inRoot("")
	if rootDir == defaultRootDir {
		return SystemSocket
	}
	sum := sha256.Sum256([]byte(rootDir))
	return filepath.Join(SocketDir, "wherry-"+hex.EncodeToString(sum[:6])+".sock")
}

// These are the default directories of Kubernetes.
const (
	defaultRootDir    = "/var/lib/kubelet"
	defaultCertDir    = "/var/lib/kubelet/pki"
	defaultPodLogsDir = "/var/log/pods"
)

// SimulatedSocket is the control socket of a simulated node that has the usual root directory.
const SimulatedSocket = defaultRootDir + "/" + socketName

const socketName = "wherry.sock"

// Verbosity returns the level of -v.
func (c Config) Verbosity() int { return int(c.Kubelet.Logging.Verbosity) }

func parseNodeIPs(s string) ([]netip.Addr, error) {
	if strings.TrimSpace(s) == "" {
		return nil, nil
	}
	var addrs []netip.Addr
	for part := range strings.SplitSeq(s, ",") {
		a, err := netip.ParseAddr(strings.TrimSpace(part))
		if err != nil {
			return nil, fmt.Errorf("--node-ip: %q is not an IP address: give one address, or an IPv4 and an IPv6 address with a comma between", part)
		}
		addrs = append(addrs, a.Unmap())
	}
	switch {
	case len(addrs) > 2, len(addrs) == 2 && addrs[0].Is4() == addrs[1].Is4():
		return nil, fmt.Errorf("--node-ip: %q: give one address, or one IPv4 and one IPv6 address", s)
	case len(addrs) == 2 && (addrs[0].IsUnspecified() || addrs[1].IsUnspecified()):
		return nil, fmt.Errorf("--node-ip: %q: an unspecified address must stand alone", s)
	}
	return addrs, nil
}
