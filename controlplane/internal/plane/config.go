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

// Config is everything that Run needs. Default fills what is left empty.
type Config struct {
	// DataDir holds everything the plane writes.
	DataDir string
	// BindAddress is what kube-apiserver listens on. AdvertiseAddress is how others reach it (empty: the address of the
	// default route, else the first global one, else 127.0.0.1 and no endpoint of the kubernetes Service).
	BindAddress, AdvertiseAddress string
	// SecurePort of kube-apiserver; EtcdPort and EtcdPeerPort on loopback. 0: the one of the last run, else a free one.
	SecurePort, EtcdPort, EtcdPeerPort int
	// ServiceCIDR and ClusterCIDR (of pods); AllocateNodeCIDRs gives each node a part of the latter.
	ServiceCIDR, ClusterCIDR string
	AllocateNodeCIDRs        bool
	// AutoApprove installs the bindings by which CSRs of joining and of rotating nodes are approved by the controller
	// manager; without it they wait for `kubectl certificate approve`.
	AutoApprove bool
	// BootstrapToken "id.secret" that nodes join with; empty: the one of the last run, else a random one.
	BootstrapToken string
	// SigningDuration is the life of certificates that the controller manager signs; NodeMonitorGracePeriod is how long
	// a node may be silent. 0 leaves Kubernetes' default.
	SigningDuration, NodeMonitorGracePeriod time.Duration
	// Proxy runs kube-proxy (nftables) on this machine as the node NodeName.
	Proxy    bool
	NodeName string
	// Fsync makes etcd wait for the disk.
	Fsync bool
	// ExtraArgs are appended to a component's own arguments: component name to "k=v".
	ExtraArgs map[string][]string
	// ExtraNames are further names and addresses in the API server's certificate.
	ExtraNames []string

	AdminKubeconfig, BootstrapKubeconfig, CAFile string // paths; empty: in DataDir
	Executable                                   string // this program: run as `Executable component NAME ARGS...`
	StopGrace                                    time.Duration
	Now                                          func() time.Time
	// Progress gets one line per step.
	Progress io.Writer
	// Ready is called once, when the plane can be used.
	Ready func(Endpoint) error
}

// Endpoint is where a ready plane is reached and with what.
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

// serviceIP is the first address of the service range: where pods reach the API server.
func (c *Config) serviceIP() net.IP {
	return net.IP(netip.MustParsePrefix(c.ServiceCIDR).Masked().Addr().Next().AsSlice())
}

// machineAddress is the address by which pods and other machines reach this one.
func machineAddress() string {
	// No packet is sent: connecting a UDP socket only chooses the route.
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
