package identity

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"sync"
	"time"

	"k8s.io/client-go/rest"

	"github.com/wherry-node/wherry/internal/base/kubeclient"
)

// ClientConfig configures a Client.
type ClientConfig struct {
	// Kubeconfig is the file with the API server and this node's identity.
	Kubeconfig string
	// BootstrapKubeconfig, if set, is used again when the certificate has expired before it could be renewed.
	BootstrapKubeconfig string
	CertDir             string
	NodeName            string
	// Rotate renews the certificate before it expires (rotateCertificates).
	Rotate bool
	Log    *slog.Logger
	// Patience is the time between two messages about the same state; 0: 15 s.
	Patience time.Duration
	// Failed, when set, is called by Run after each failed try to renew the certificate. It must not block.
	Failed func()
	// Refused is BootstrapConfig.Refused, for a Joining.
	Refused func(error)
}

// Client connects a node to its API server and keeps its certificate. Its methods may be called concurrently.
type Client struct {
	cfg   ClientConfig
	base  *rest.Config // configuration from the kubeconfig, with a transport that only this Client uses
	conns *connections
	store store

	failing  failure
	mu       sync.Mutex
	pair     *tls.Certificate // certificate in use; nil: the credentials are not a certificate
	fromFile string           // path of the file that has pair; empty: the kubeconfig itself contains pair
	keyFile  string           // path of the file with the key of pair; the same as fromFile if the agent wrote it
	stamps   fileStamps       // of fromFile and keyFile when pair was read
	bad      fileStamps       // of the files whose pair could not be read last, as the log says
}

// fileStamp identifies one version of a file's content, by properties that change when the file is written.
type fileStamp struct {
	changed time.Time
	size    int64
}

// fileStamps are the stamps of a certificate's file and of its key's file. A file that is missing has the zero stamp.
type fileStamps [2]fileStamp

// OpenClient reads the kubeconfig and the certificate. It makes no request.
func OpenClient(cfg ClientConfig) (*Client, error) {
	if _, err := os.Stat(cfg.Kubeconfig); errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read kubeconfig: %w: to join a cluster, give --bootstrap-kubeconfig with a token (wherry token create); for a node without a cluster, leave --kubeconfig out", err)
	}
	kubeconfig, err := readKubeconfig(cfg.Kubeconfig)
	if err != nil {
		return nil, err
	}
	c := &Client{cfg: cfg, store: store{dir: cfg.CertDir, prefix: clientPrefix}}
	c.store.mend(cfg.Log)
	if err := c.findPair(kubeconfig); err != nil {
		return nil, err
	}
	var certificate func() (*tls.Certificate, error)
	if c.pair != nil {
		certificate = c.present
		if cn := c.pair.Leaf.Subject.CommonName; cn != nodePrefix+cfg.NodeName {
			cfg.Log.Warn("The client certificate belongs to another name than this node's; the API server may refuse to let it change the Node",
				"certificate", cn, "node", cfg.NodeName, "do", "set --hostname-override to the certificate's name, or remove "+cfg.Kubeconfig+" to ask for a new identity")
		}
		if now := time.Now(); now.Before(c.pair.Leaf.NotBefore) {
			cfg.Log.Error("The client certificate is not valid yet", "err", explainTime(c.pair.Leaf, "the client certificate", errors.New("not yet valid")))
		}
	}
	c.base, c.conns, err = withTransport(kubeconfig, certificate)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %w", cfg.Kubeconfig, err)
	}
	return c, nil
}

// findPair chooses the certificate. With rotation it takes the one in CertDir, if that is valid and has the same name
// as the kubeconfig's.
func (c *Client) findPair(kubeconfig *rest.Config) error {
	// The stamps are taken before the files are read. So a file that changes meanwhile is read again.
	stamps := stampsOf(kubeconfig.CertFile, kubeconfig.KeyFile)
	named, namedErr := configPair(kubeconfig)
	c.pair = named
	if named != nil && len(kubeconfig.CertData) == 0 {
		c.fromFile, c.keyFile, c.stamps = kubeconfig.CertFile, kubeconfig.KeyFile, stamps
	}
	if c.cfg.Rotate {
		stamps := stampsOf(c.store.current(), c.store.current())
		stored, err := c.store.load()
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			if named == nil {
				return err
			}
			c.cfg.Log.Error("The renewed client certificate is damaged, the kubeconfig's certificate is used", "err", err, "kubeconfig", c.cfg.Kubeconfig)
		}
		sameName := named == nil || stored != nil && stored.Leaf.Subject.CommonName == named.Leaf.Subject.CommonName
		if stored != nil && sameName && time.Now().Before(stored.Leaf.NotAfter) {
			c.pair, c.fromFile, c.keyFile, c.stamps = stored, c.store.current(), c.store.current(), stamps
		}
	}
	hasOther := kubeconfig.BearerToken != "" || kubeconfig.BearerTokenFile != "" || kubeconfig.ExecProvider != nil || kubeconfig.Username != ""
	if c.pair == nil && !hasOther {
		return fmt.Errorf("kubeconfig %s: client certificate: %w", c.cfg.Kubeconfig, namedErr)
	}
	return nil
}

func stampOf(file string) (fileStamp, error) {
	info, err := os.Stat(file)
	if err != nil {
		return fileStamp{}, err
	}
	return fileStamp{info.ModTime(), info.Size()}, nil
}

func stampsOf(certFile, keyFile string) (stamps fileStamps) {
	for i, file := range []string{certFile, keyFile} {
		stamps[i], _ = stampOf(file)
	}
	return stamps
}

// Config returns a copy of the configuration for clients of the API server, in which the caller may set rates, content
// type and user agent. All copies share the connections and the newest certificate.
func (c *Client) Config() *rest.Config { return rest.CopyConfig(c.base) }

// Server returns the URL of the API server.
func (c *Client) Server() string { return c.base.Host }

// CloseAll closes every connection to the API server. The heartbeat calls it after several failures, because a dead
// connection may look alive for many minutes.
func (c *Client) CloseAll() { c.conns.closeAll() }

// Certificate returns the certificate in use, or nil if the credentials are not a certificate.
func (c *Client) Certificate() *x509.Certificate {
	cert, _ := c.certificate()
	return cert
}

// certificate returns the certificate in use, and when its file was written.
func (c *Client) certificate() (*x509.Certificate, time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pair == nil {
		return nil, time.Time{}
	}
	return c.pair.Leaf, c.stamps[0].changed
}

// Failing returns an error while a problem of this machine, such as a full or broken disk, prevents the renewal of the certificate.
// Run then tries again. Failing returns nil otherwise.
func (c *Client) Failing() error {
	if err := c.failing.get(); err != nil {
		return fmt.Errorf("renew client certificate: %w", err)
	}
	return nil
}

// present is called at every TLS handshake and returns the client certificate. If somebody has replaced the certificate on disk, present
// reads the new one. While the certificate and its key do not fit each other, as in the middle of a replacement, the old pair stays in use,
// and each handshake tries to read the new one.
func (c *Client) present() (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fromFile == "" {
		return c.pair, nil
	}
	now := stampsOf(c.fromFile, c.keyFile)
	if now == c.stamps {
		return c.pair, nil
	}
	pair, err := loadPair(c.fromFile, c.keyFile)
	switch {
	case err == nil:
		c.pair, c.stamps, c.bad = pair, now, fileStamps{}
	case now != c.bad:
		c.bad = now
		c.cfg.Log.Error("Cannot read the changed client certificate, still using the old one", "file", c.fromFile, "key", c.keyFile, "err", err)
	}
	return c.pair, nil
}

// use replaces the certificate in use. Requests in flight continue with the old one, which is still valid.
func (c *Client) use(pair *tls.Certificate) {
	c.mu.Lock()
	c.pair, c.fromFile, c.keyFile = pair, c.store.current(), c.store.current()
	c.stamps = stampsOf(c.fromFile, c.keyFile)
	c.mu.Unlock()
	c.conns.renew()
}

// Run renews the certificate when it is due, until ctx ends. Then it closes the connections.
func (c *Client) Run(ctx context.Context) error {
	defer c.conns.end()
	if cert := c.Certificate(); !c.cfg.Rotate || cert == nil {
		if cert != nil {
			c.cfg.Log.Warn("The node's client certificate is not renewed: rotateCertificates is false", "ends", stamp(cert.NotAfter))
		}
		<-ctx.Done()
		return nil
	}
	req := clientRequest(c.cfg.NodeName, c.store, c.cfg.Log, c.cfg.Patience)
	req.client, req.failing, req.failed = c.forRequest, &c.failing, c.cfg.Failed
	return renew(ctx, req, c.certificate, c.use)
}

// forRequest returns a client for certificate requests, a function that releases it, and the names of the server and the file for messages.
// The client uses the node's certificate while it is valid, and the bootstrap token after it has expired.
func (c *Client) forRequest() (CSRs, func(), string, string, error) {
	if c.cfg.BootstrapKubeconfig != "" && time.Now().After(c.Certificate().NotAfter) {
		return bootstrapClient(c.cfg.BootstrapKubeconfig)()
	}
	client, err := kubeclient.New(c.Config())
	if err != nil {
		return nil, nil, c.Server(), c.cfg.Kubeconfig, fmt.Errorf("make client: %w", err)
	}
	return client.CertificateSigningRequests(), func() {}, c.Server(), c.cfg.Kubeconfig, nil
}
