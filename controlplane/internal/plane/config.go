package plane

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	"github.com/wherry-node/wherry/controlplane/internal/component"
)

// Config configures Run.
type Config struct {
	// DataDir is the directory of all files that the control plane writes.
	DataDir string
	// BindAddress is the address on which kube-apiserver listens. AdvertiseAddress is the address at which other machines reach it. If
	// AdvertiseAddress is "", it is the address of the default route, or else the first global address, or else 127.0.0.1; in the last case
	// the Service kubernetes has no endpoint.
	BindAddress, AdvertiseAddress string
	// SecurePort is the port of kube-apiserver. EtcdPort and EtcdPeerPort are ports on loopback. 0 means the port of the last run, or else a
	// free port.
	SecurePort, EtcdPort, EtcdPeerPort int
	// ServiceCIDR and ClusterCIDR are the address ranges of Services and pods. If AllocateNodeCIDRs is true, each node gets a part of
	// ClusterCIDR for its pods.
	ServiceCIDR, ClusterCIDR string
	AllocateNodeCIDRs        bool
	// AutoApprove makes the controller manager approve the CSRs of nodes that join or rotate certificates. Otherwise the CSRs wait for
	// `kubectl certificate approve`.
	AutoApprove bool
	// BootstrapToken is the token with which nodes join, of the form "ID.SECRET". "" means the token of the last run, or else a random
	// token.
	BootstrapToken string
	// SigningDuration is the lifetime of the certificates that the controller manager signs. NodeMonitorGracePeriod is how long a node may
	// be silent before it counts as unreachable. 0 means Kubernetes' default.
	SigningDuration, NodeMonitorGracePeriod time.Duration
	// Proxy runs kube-proxy in its nftables mode on this machine, for the node with the name NodeName.
	Proxy    bool
	NodeName string
	// Fsync makes etcd wait until its data is on the disk. Without Fsync etcd is faster, and a power cut may lose data.
	Fsync bool
	// ExtraArgs are additional arguments of components, of the form "k=v", by the component's name. They take precedence.
	ExtraArgs map[string][]string
	// ExtraNames are additional host names and IP addresses in the API server's certificate.
	ExtraNames []string

	AdminKubeconfig, BootstrapKubeconfig, CAFile string // paths of files to write; "": a file in DataDir
	Executable                                   string // path of this program, which is run as `Executable component NAME ARGS...`
	StopGrace                                    time.Duration
	Now                                          func() time.Time
	// Progress gets one line for each step of the start.
	Progress io.Writer
	// Ready is called once, when the control plane is ready. If it returns an error, Run ends.
	Ready func(Endpoint) error
}

// Endpoint has the address and the files with which clients use a ready control plane, and how long its start took.
type Endpoint struct {
	Server                                       string        `json:"server"`
	AdminKubeconfig, BootstrapKubeconfig, CAFile string        `json:"-"`
	Took                                         time.Duration `json:"-"`
}

func (c *Config) fill() error {
	if c.DataDir == "" {
		return errors.New("configure control plane: no data directory (--data-dir)")
	}
	var err error
	if c.DataDir, err = filepath.Abs(c.DataDir); err != nil {
		return fmt.Errorf("configure control plane: %w", err)
	}
	orDefault(&c.BindAddress, "0.0.0.0")
	orDefault(&c.ServiceCIDR, "10.96.0.0/12")
	orDefault(&c.ClusterCIDR, "10.244.0.0/16")
	orDefault(&c.AdminKubeconfig, filepath.Join(c.DataDir, "admin.kubeconfig"))
	orDefault(&c.BootstrapKubeconfig, filepath.Join(c.DataDir, "bootstrap.kubeconfig"))
	orDefault(&c.CAFile, filepath.Join(c.DataDir, "ca.crt"))
	if c.StopGrace == 0 {
		c.StopGrace = 15 * time.Second
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Progress == nil {
		c.Progress = io.Discard
	}
	if c.AdvertiseAddress == "" {
		c.AdvertiseAddress = machineAddress()
	}
	return c.validate()
}

var tokenForm = regexp.MustCompile(`^[a-z0-9]{6}\.[a-z0-9]{16}$`)

func (c *Config) validate() error {
	for flag, value := range map[string]string{"--service-cidr": c.ServiceCIDR, "--cluster-cidr": c.ClusterCIDR} {
		if prefix, err := netip.ParsePrefix(value); err != nil || !prefix.Addr().Is4() {
			return fmt.Errorf("configure control plane: %s %q is not an IPv4 prefix such as 10.96.0.0/12", flag, value)
		}
	}
	for flag, value := range map[string]string{"--bind-address": c.BindAddress, "--advertise-address": c.AdvertiseAddress} {
		if net.ParseIP(value) == nil {
			return fmt.Errorf("configure control plane: %s %q is not an IP address", flag, value)
		}
	}
	if c.BootstrapToken != "" && !tokenForm.MatchString(c.BootstrapToken) {
		return fmt.Errorf("configure control plane: --bootstrap-token is not of the form [a-z0-9]{6}.[a-z0-9]{16}")
	}
	for name := range c.ExtraArgs {
		if !slices.Contains(components, name) {
			return fmt.Errorf("configure control plane: extra arguments for an unknown component %q", name)
		}
	}
	if c.Executable == "" {
		return errors.New("configure control plane: no executable to run components with")
	}
	return nil
}

var components = []string{component.Etcd, component.APIServer, component.ControllerManager, component.Scheduler, component.Proxy}

func orDefault(value *string, def string) {
	if *value == "" {
		*value = def
	}
}

// serviceIP returns the first address of ServiceCIDR. At this address pods reach the API server.
func (c *Config) serviceIP() net.IP {
	return net.IP(netip.MustParsePrefix(c.ServiceCIDR).Masked().Addr().Next().AsSlice())
}

// machineAddress returns the IP address at which pods and other machines reach this machine.
func machineAddress() string {
	// Connecting a UDP socket sends no packet; it only makes the kernel choose a route.
	if conn, err := net.Dial("udp4", "192.88.99.1:9"); err == nil {
		defer func() { _ = conn.Close() }()
		if addr, ok := conn.LocalAddr().(*net.UDPAddr); ok && !addr.IP.IsLoopback() && !addr.IP.IsUnspecified() {
			return addr.IP.String()
		}
	}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return "127.0.0.1"
	}
	for _, addr := range addrs {
		if ip, ok := addr.(*net.IPNet); ok && ip.IP.To4() != nil && ip.IP.IsGlobalUnicast() {
			return ip.IP.String()
		}
	}
	return "127.0.0.1"
}
