package plane

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/wherry-node/wherry/controlplane/internal/pki"
)

// server returns the URL of the API server for programs on this machine.
func (c *Config) server() string {
	host := c.AdvertiseAddress
	if bind := net.ParseIP(c.BindAddress); bind.IsUnspecified() || bind.IsLoopback() {
		host = "127.0.0.1"
	}
	return "https://" + net.JoinHostPort(host, fmt.Sprint(c.SecurePort))
}

// nodeServer returns the URL of the API server for nodes and for readers of the ConfigMap cluster-info. The URL also works in other network
// namespaces, unless BindAddress is a loopback address.
func (c *Config) nodeServer() string {
	if net.ParseIP(c.BindAddress).IsLoopback() {
		return c.server()
	}
	return "https://" + net.JoinHostPort(c.AdvertiseAddress, fmt.Sprint(c.SecurePort))
}

func (c *Config) writeKubeconfigs(cr *credentials) error {
	ca, err := os.ReadFile(cr.ca.Cert)
	if err != nil {
		return err
	}
	if err := pki.WriteFile(c.CAFile, ca, 0o644); err != nil {
		return err
	}
	cr.controllerManagerConfig = c.path("controller-manager.kubeconfig")
	cr.schedulerConfig = c.path("scheduler.kubeconfig")
	cr.proxyCfg = c.path("kube-proxy.kubeconfig")
	for path, pair := range map[string]pki.Pair{
		c.AdminKubeconfig: cr.admin, cr.controllerManagerConfig: cr.controllerManager,
		cr.schedulerConfig: cr.scheduler, cr.proxyCfg: cr.proxy,
	} {
		user, err := certificateUser(pair)
		if err != nil {
			return err
		}
		if err := writeKubeconfig(path, c.server(), ca, user); err != nil {
			return err
		}
	}
	return writeKubeconfig(c.BootstrapKubeconfig, c.server(), ca, &clientcmdapi.AuthInfo{Token: c.BootstrapToken})
}

func certificateUser(pair pki.Pair) (*clientcmdapi.AuthInfo, error) {
	cert, err := os.ReadFile(pair.Cert)
	if err != nil {
		return nil, err
	}
	key, err := os.ReadFile(pair.Key)
	if err != nil {
		return nil, err
	}
	return &clientcmdapi.AuthInfo{ClientCertificateData: cert, ClientKeyData: key}, nil
}

func writeKubeconfig(path, server string, ca []byte, user *clientcmdapi.AuthInfo) error {
	config := clientcmdapi.NewConfig()
	config.Clusters["wherry"] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: ca}
	config.AuthInfos["wherry"] = user
	config.Contexts["wherry"] = &clientcmdapi.Context{Cluster: "wherry", AuthInfo: "wherry"}
	config.CurrentContext = "wherry"
	data, err := clientcmd.Write(*config)
	if err != nil {
		return fmt.Errorf("encode kubeconfig %s: %w", path, err)
	}
	return pki.WriteFile(path, data, 0o600)
}

// remembered has the values that the first run chose and that later runs with the same data directory keep.
type remembered struct {
	SecurePort     int    `json:"securePort"`
	EtcdPort       int    `json:"etcdPort"`
	EtcdPeerPort   int    `json:"etcdPeerPort"`
	BootstrapToken string `json:"bootstrapToken"`
}

// recall sets the ports and the bootstrap token to those of the last run, chooses those that are missing, and stores all of them.
func (c *Config) recall() error {
	path := c.path("plane.json")
	var last remembered
	if data, err := os.ReadFile(path); err == nil {
		_ = json.Unmarshal(data, &last) // if the file is incomplete, new values are chosen
	}
	var err error
	if c.BootstrapToken == "" {
		c.BootstrapToken = last.BootstrapToken
	}
	if !tokenForm.MatchString(c.BootstrapToken) {
		if c.BootstrapToken, err = newToken(); err != nil {
			return err
		}
	}
	taken := map[int]bool{}
	for _, port := range []struct {
		value *int
		last  int
		flag  string
	}{{&c.SecurePort, last.SecurePort, "--secure-port"}, {&c.EtcdPort, last.EtcdPort, "--etcd-port"}, {&c.EtcdPeerPort, last.EtcdPeerPort, "--etcd-peer-port"}} {
		if *port.value, err = choosePort(*port.value, port.last, taken); err != nil {
			return fmt.Errorf("choose %s: %w", port.flag, err)
		}
		taken[*port.value] = true
	}
	data, err := json.Marshal(remembered{c.SecurePort, c.EtcdPort, c.EtcdPeerPort, c.BootstrapToken})
	if err != nil {
		return err
	}
	return pki.WriteFile(path, data, 0o600)
}

// choosePort returns a port that is free now. If want is not 0, it returns want, or an error if that port is not free. Otherwise it prefers
// last, the port of the last run, to another port. Ports in taken do not count as free.
func choosePort(want, last int, taken map[int]bool) (int, error) {
	if want != 0 {
		return want, probePort(want)
	}
	if last != 0 && !taken[last] && probePort(last) == nil {
		return last, nil
	}
	for range 200 {
		var b [2]byte
		if _, err := rand.Read(b[:]); err != nil {
			return 0, err
		}
		// The range 20000 to 29899 is below the node ports of Services, and below the ports that the kernel chooses for clients.
		port := 20000 + (int(b[0])<<8|int(b[1]))%9900
		if !taken[port] && probePort(port) == nil {
			return port, nil
		}
	}
	return 0, errors.New("no free port between 20000 and 29900")
}

// usualPort returns the port usual if it is free, otherwise another free port.
func usualPort(usual int) (int, error) {
	if probePort(usual) == nil {
		return usual, nil
	}
	return choosePort(0, 0, nil)
}

func probePort(port int) error {
	listener, err := net.Listen("tcp", fmt.Sprintf(":%d", port))
	if err != nil {
		return fmt.Errorf("port %d is not free (another control plane?): %w", port, err)
	}
	return listener.Close()
}

func newToken() (string, error) {
	const letters = "abcdefghijklmnopqrstuvwxyz234567" // each character is equally likely, because 32 divides 256
	var b [22]byte
	if _, err := rand.Read(b[:]); err != nil {
		return "", fmt.Errorf("make bootstrap token: %w", err)
	}
	var s strings.Builder
	for i, x := range b {
		if i == 6 {
			s.WriteByte('.')
		}
		s.WriteByte(letters[x%32])
	}
	return s.String(), nil
}

// lock makes sure that only one control plane uses the data directory. The kernel releases the lock when the process ends.
func (c *Config) lock() (unlock func() error, err error) {
	file, err := os.OpenFile(c.path("lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: another control plane runs on this data directory: %w", c.DataDir, err), file.Close())
	}
	return file.Close, nil
}
