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

// ErrHelp says that --help was asked for: print Usage and end with success.
var ErrHelp = pflag.ErrHelp

// ErrVersion says that --version was asked for; ErrVersionRaw that it was --version=raw.
var (
	ErrVersion    = errors.New("version asked for")
	ErrVersionRaw = errors.New("raw version asked for")
)

// Config is everything that a command line and its files say about one node. It has more fields than most structs here
// because it is the command line: one field per flag that has no place in KubeletConfiguration. A value: copy freely,
// share the maps and slices read-only.
type Config struct {
	// Kubelet is the merged, defaulted and checked KubeletConfiguration. Pointers that have a default are non-nil.
	Kubelet kubelet.KubeletConfiguration
	// Gates answers for Kubelet.FeatureGates and the defaults of the release.
	Gates Gates

	// Kubeconfig reaches the API server as this node. Empty together with BootstrapKubeconfig: standalone.
	Kubeconfig string
	// BootstrapKubeconfig is used once, to ask for the certificate that Kubeconfig will refer to.
	BootstrapKubeconfig string

	// HostnameOverride names the node where it is not the host name. See NodeName.
	HostnameOverride string
	// NodeIPs are the addresses of --node-ip, at most one of each family; empty: choose. The unspecified address of a
	// family ("::", "0.0.0.0") only prefers that family.
	NodeIPs []netip.Addr
	// NodeLabels are put on the Node when it is registered, and kept there.
	NodeLabels map[string]string
	// CloudProvider is "" or "external".
	CloudProvider string

	// RootDir holds the state of pods (/var/lib/kubelet), CertDir keys and certificates.
	RootDir, CertDir string

	// PushSocket is the Unix socket over which pods are pushed to the node and wherry ps, logs and the others reach it: a path,
	// "" for what ControlSocket says, or "none". PushAPI takes pods over the HTTPS API too.
	PushSocket string
	PushAPI    bool

	// Owner, where it is set, is the node's name at a runtime that it shares with others: it sees its own pods only. It has
	// no flag: a kubelet owns its runtime.
	Owner string

	// RuntimeCgroups is the cgroup of the container runtime, for its statistics.
	RuntimeCgroups string
	// ImageCredentialProviderConfig and ImageCredentialProviderBinDir name credential provider plugins.
	ImageCredentialProviderConfig, ImageCredentialProviderBinDir string

	// Containers that ended are kept: at least MinimumContainerTTL, at most MaxDeadPerContainer of one container and
	// MaxDeadContainers altogether (negative: no limit).
	MinimumContainerTTL                    time.Duration
	MaxDeadPerContainer, MaxDeadContainers int32

	// IgnoreEvictionThreshold leaves evictionHard out of node allocatable.
	IgnoreEvictionThreshold bool

	// Wherry has the settings of --wherry-config.
	Wherry Wherry
	// Flags are all flags by name with the values in effect, for /flagz. Credentials are masked.
	Flags map[string]string

	// Simulated is the shape of the machine where the runtime is simulated:// ; nil for a real one.
	Simulated *SimulatedNode
}

// Notice is one thing that a user should be told once when the node starts.
type Notice struct {
	Kind NoticeKind
	// Subject is the flag (--log-dir) or the field (tracing.endpoint) that it is about.
	Subject string
	// Message is a sentence: what happens, and the successor or the way out.
	Message string
}

// NoticeKind says why a Notice is made.
type NoticeKind string

// The kinds of notices.
const (
	// NoticeRemoved: a flag that Kubernetes has removed; accepted and without effect.
	NoticeRemoved NoticeKind = "removed"
	// NoticeNotHonoured: a flag or field that Kubernetes has and that has no effect here yet.
	NoticeNotHonoured NoticeKind = "not honoured"
	// NoticeDeprecated: it has its effect; Kubernetes will remove it.
	NoticeDeprecated NoticeKind = "deprecated"
	// NoticeChanged: Wherry reads something otherwise than a user may expect.
	NoticeChanged NoticeKind = "changed"
)

// String is the notice on one line.
func (n Notice) String() string { return n.Subject + ": " + n.Message }

// NodeName is the name of the Node object: --hostname-override, else the host's name; trimmed and in lower case, as
// Kubernetes has it.
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

// NoSocket is the value of --push-socket that says that there is none.
const NoSocket = "none"

// ControlSocket is where the control socket is, and whether somebody asked for it: --push-socket says so first, then
// controlSocket of --wherry-config. By default a standalone node has one; a node of a cluster has none, because whoever opens the
// socket may do everything; a simulated node has one in its root directory, because nothing runs there. "" is no socket.
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

// The control socket of a real node lies in a directory of its own, never in --root-dir: pods of agents and monitors mount that,
// or directories below it, and whoever reaches the socket's file can open it.
const (
	// SocketDir is that directory: root's alone.
	SocketDir = "/run/wherry"
	// SystemSocket is the control socket of the machine's usual node.
	SystemSocket = SocketDir + "/" + socketName
)

// usualSocket gives agents with different root directories different sockets.
func (c *Config) usualSocket() string {
	if c.Simulated != nil {
		return c.inRoot(socketName)
	}
	rootDir := filepath.Clean(c.RootDir)
	if rootDir == defaultRootDir {
		return SystemSocket
	}
	sum := sha256.Sum256([]byte(rootDir))
	return filepath.Join(SocketDir, "wherry-"+hex.EncodeToString(sum[:6])+".sock")
}

// Directories that Kubernetes has as defaults.
const (
	defaultRootDir    = "/var/lib/kubelet"
	defaultCertDir    = "/var/lib/kubelet/pki"
	defaultPodLogsDir = "/var/log/pods"
)

// SimulatedSocket is the control socket of a simulated node that has the usual root directory.
const SimulatedSocket = defaultRootDir + "/" + socketName

const socketName = "wherry.sock"

// Verbosity is the level of -v.
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
