package identity

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"time"

	certificates "k8s.io/api/certificates/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/wherry-node/wherry/internal/base/hostfs"
	"github.com/wherry-node/wherry/internal/base/kubeclient"
)

// The names in a node's identity, as the Node authorizer expects them.
const (
	nodesGroup = "system:nodes"
	nodePrefix = "system:node:"

	clientPrefix  = "kubelet-client"
	servingPrefix = "kubelet-server"

	defaultPatience = 15 * time.Second
)

// BootstrapConfig configures the TLS bootstrap.
type BootstrapConfig struct {
	// BootstrapKubeconfig contains the token. It is read again for every attempt, so that a renewed token takes effect.
	BootstrapKubeconfig string
	// Kubeconfig is used if it works. It is written if it does not exist or its certificate has expired.
	Kubeconfig string
	// CertDir is the directory for the key and the certificate.
	CertDir string
	// NodeName is the name of the Node object.
	NodeName string
	// Rotate says that a Client with the same files renews its certificate (rotateCertificates), and so uses the renewed one in CertDir.
	Rotate bool
	Log    *slog.Logger
	// Patience is the time between two messages about the same state; 0: 15 s.
	Patience time.Duration
	// Refused, if set, is called when it becomes known that the API server answers and does not accept the node (yet), with the reason, and
	// with nil when that is not known any more, because the server does not answer or has signed the certificate. It must not block.
	Refused func(error)
}

// bootstrap is the way of one node to its first certificate.
type bootstrap struct {
	cfg     BootstrapConfig
	keep    store
	renewed func() (*tls.Certificate, error) // reads a renewed certificate, which serves if that of the kubeconfig has ended
	why     string                           // why Kubeconfig cannot be used
	server  *rest.Config                     // the bootstrap kubeconfig, as it was read last
	signed  bool                             // the certificate is saved, and only the kubeconfig is missing
	failing *failure                         // cleared when the disk works; nil: nobody asks
}

// newBootstrap returns what a node without a usable kubeconfig has to do; nil: the kubeconfig is usable.
func newBootstrap(cfg BootstrapConfig) (*bootstrap, error) {
	b := &bootstrap{cfg: cfg, keep: store{dir: cfg.CertDir, prefix: clientPrefix}}
	b.keep.mend(cfg.Log)
	b.renewed = func() (*tls.Certificate, error) { return nil, fs.ErrNotExist }
	if cfg.Rotate {
		b.renewed = b.keep.load
	}
	usable, why, err := usableKubeconfig(cfg.Kubeconfig, b.renewed)
	switch {
	case err != nil:
		return nil, err
	case usable:
		return nil, nil
	case cfg.BootstrapKubeconfig == "":
		return nil, fmt.Errorf("kubeconfig %s: %s, and there is no --bootstrap-kubeconfig to ask for a new identity with: give one of them", cfg.Kubeconfig, why)
	}
	if b.server, err = readKubeconfig(cfg.BootstrapKubeconfig); err != nil {
		return nil, fmt.Errorf("TLS bootstrap: %w: make one with a token (wherry token create, kubeadm token create)", err)
	}
	b.why = why
	return b, nil
}

// run returns when Kubeconfig holds a usable identity: the API server has signed one that was requested with the bootstrap token ("TLS
// bootstrapping", https://kubernetes.io/docs/reference/access-authn-authz/kubelet-tls-bootstrapping/), or somebody has written the file or
// set the clock meanwhile. It tries until ctx ends. It returns an error only for problems of this machine that waiting does not solve, for
// example a disk to which the files cannot be written. It may be called again after that.
func (b *bootstrap) run(ctx context.Context) error {
	// Without a kubeconfig the certificate would be useless, and each start of the agent would ask for another one.
	if err := tryKubeconfig(b.cfg.Kubeconfig); err != nil {
		return fmt.Errorf("TLS bootstrap: %w", err)
	}
	b.failing.set(false, nil)
	if !b.signed {
		b.cfg.Log.Info("Asking for the node's identity", "node", b.cfg.NodeName, "because", b.why, "server", b.server.Host, "with", b.cfg.BootstrapKubeconfig)
		switch _, err := b.request().run(ctx); {
		case errors.Is(err, errNeedless): // somebody has set the clock or written the kubeconfig
			b.cfg.Log.Info("The kubeconfig works now, so the node needs no new identity", "node", b.cfg.NodeName, "kubeconfig", b.cfg.Kubeconfig)
			return nil
		case err != nil:
			return fmt.Errorf("TLS bootstrap: %w", err)
		}
		b.signed = true
	}
	// The bootstrap kubeconfig is read again, because somebody may have corrected the server in it during the wait.
	if last, err := readKubeconfig(b.cfg.BootstrapKubeconfig); err == nil {
		b.server = last
	}
	if err := writeKubeconfig(b.cfg.Kubeconfig, b.server, b.keep.current()); err != nil {
		return fmt.Errorf("TLS bootstrap: %w", err)
	}
	b.cfg.Log.Info("The node has its identity", "node", b.cfg.NodeName, "kubeconfig", b.cfg.Kubeconfig, "certificate", b.keep.current())
	return nil
}

// request returns the request for the first certificate.
func (b *bootstrap) request() *request {
	req := clientRequest(b.cfg.NodeName, b.keep, b.cfg.Log, b.cfg.Patience)
	req.client, req.final, req.refused = bootstrapClient(b.cfg.BootstrapKubeconfig), true, b.cfg.Refused
	req.needless = func() bool {
		usable, _, err := usableKubeconfig(b.cfg.Kubeconfig, b.renewed)
		return usable && err == nil
	}
	return req
}

// clientRequest returns the request for a node's client certificate. The caller sets the client.
func clientRequest(node string, keep keeper, log *slog.Logger, patience time.Duration) *request {
	if patience == 0 {
		patience = defaultPatience
	}
	return &request{
		signer: certificates.KubeAPIServerClientKubeletSignerName,
		usages: []certificates.KeyUsage{certificates.UsageDigitalSignature, certificates.UsageClientAuth},
		template: x509.CertificateRequest{
			Subject: pkix.Name{Organization: []string{nodesGroup}, CommonName: nodePrefix + node},
		},
		keep: keep, log: log, patience: patience,
	}
}

// bootstrapClient returns a function that reads the bootstrap kubeconfig anew at each call, and makes a client from it. The function
// returns the client, a function that closes its connections, and the names of the server and the file for messages.
func bootstrapClient(file string) func() (CSRs, func(), string, string, error) {
	return func() (CSRs, func(), string, string, error) {
		cfg, err := readKubeconfig(file)
		if err != nil {
			return nil, nil, "", file, err
		}
		var certificate func() (*tls.Certificate, error)
		if pair, err := configPair(cfg); err == nil {
			certificate = func() (*tls.Certificate, error) { return pair, nil }
		}
		own, conns, err := withTransport(cfg, certificate)
		if err != nil {
			return nil, nil, cfg.Host, file, err
		}
		own.Timeout = 0 // a timeout would also end watches, which stay open for long
		c, err := kubeclient.New(own)
		if err != nil {
			conns.end()
			return nil, nil, cfg.Host, file, fmt.Errorf("make client of %s: %w", file, err)
		}
		return c.CertificateSigningRequests(), conns.end, cfg.Host, file, nil
	}
}

// usableKubeconfig reports whether a kubeconfig exists and has credentials that may work; if not, why says what is wrong. It
// checks certificates and accepts all other credentials. If the certificate has ended, a renewed one for the same name serves.
func usableKubeconfig(file string, renewed func() (*tls.Certificate, error)) (usable bool, why string, err error) {
	if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
		return false, "it does not exist yet", nil
	} else if err != nil {
		return false, "", fmt.Errorf("look for kubeconfig: %w", err)
	}
	cfg, err := readKubeconfig(file)
	if err != nil {
		return false, err.Error(), nil
	}
	if cfg.BearerToken != "" || cfg.BearerTokenFile != "" || cfg.ExecProvider != nil || cfg.Username != "" {
		return true, "", nil
	}
	pair, err := configPair(cfg)
	if err != nil {
		return false, "it has no usable client certificate: " + err.Error(), nil
	}
	now := time.Now()
	if !now.After(pair.Leaf.NotAfter) {
		return true, "", nil
	}
	next, err := renewed()
	if err == nil && next.Leaf.Subject.CommonName == pair.Leaf.Subject.CommonName && now.Before(next.Leaf.NotAfter) {
		return true, "", nil
	}
	return false, "its client certificate ended at " + stamp(pair.Leaf.NotAfter), nil
}

// configPair returns the client certificate that a kubeconfig names or holds.
func configPair(cfg *rest.Config) (*tls.Certificate, error) {
	t := cfg.TLSClientConfig
	switch {
	case len(t.CertData) > 0 && len(t.KeyData) > 0:
		return parsePair(t.CertData, t.KeyData)
	case t.CertFile != "" && t.KeyFile != "":
		return loadPair(t.CertFile, t.KeyFile)
	}
	return nil, errors.New("it names none")
}

// tryKubeconfig returns an error if a kubeconfig cannot be written, because its disk is full or read-only.
func tryKubeconfig(file string) error {
	if err := makeParent(file); err != nil {
		return err
	}
	const most = 16 << 10 // bytes of a kubeconfig with several authorities
	trial := file + ".trial"
	err := hostfs.WriteFile(trial, make([]byte, most), 0o600)
	if err = errors.Join(err, removed(trial)); err != nil {
		return fmt.Errorf("try to write kubeconfig: %w", err)
	}
	return nil
}

// removed removes a file that may be missing.
func removed(file string) error {
	if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// proxyOf returns the URL of the proxy that a kubeconfig names (proxy-url); "": it names none.
func proxyOf(cfg *rest.Config) (string, error) {
	if cfg.Proxy == nil {
		return "", nil
	}
	req, err := http.NewRequest(http.MethodGet, cfg.Host, nil)
	if err != nil {
		return "", err
	}
	proxy, err := cfg.Proxy(req)
	if err != nil || proxy == nil {
		return "", err
	}
	return proxy.String(), nil
}

// writeKubeconfig writes a kubeconfig with the server of boot and the certificate in pairFile.
func writeKubeconfig(file string, boot *rest.Config, pairFile string) error {
	// Relative paths in a kubeconfig start at its directory, not at the agent's.
	pairFile, err := filepath.Abs(pairFile)
	if err != nil {
		return fmt.Errorf("find certificate: %w", err)
	}
	cluster := clientcmdapi.NewCluster()
	cluster.Server = boot.Host
	cluster.InsecureSkipTLSVerify = boot.Insecure
	if boot.CAFile != "" {
		if cluster.CertificateAuthority, err = filepath.Abs(boot.CAFile); err != nil {
			return fmt.Errorf("find cluster CA: %w", err)
		}
	}
	cluster.CertificateAuthorityData = boot.CAData
	cluster.TLSServerName = boot.ServerName
	cluster.DisableCompression = boot.DisableCompression
	if cluster.ProxyURL, err = proxyOf(boot); err != nil {
		return fmt.Errorf("find proxy: %w", err)
	}
	user := clientcmdapi.NewAuthInfo()
	user.ClientCertificate, user.ClientKey = pairFile, pairFile
	context := clientcmdapi.NewContext()
	context.Cluster, context.AuthInfo, context.Namespace = "default-cluster", "default-auth", "default"
	config := clientcmdapi.NewConfig()
	config.Clusters[context.Cluster] = cluster
	config.AuthInfos[context.AuthInfo] = user
	config.Contexts["default-context"] = context
	config.CurrentContext = "default-context"
	data, err := clientcmd.Write(*config)
	if err != nil {
		return fmt.Errorf("encode kubeconfig: %w", err)
	}
	if err := makeParent(file); err != nil {
		return err
	}
	if err := hostfs.WriteFile(file, data, 0o600); err != nil {
		return fmt.Errorf("write kubeconfig: %w", err)
	}
	return nil
}
