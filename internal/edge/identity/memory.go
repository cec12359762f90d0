package identity

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"k8s.io/client-go/rest"
)

// MemoryConfig configures a Memory.
type MemoryConfig struct {
	// Server configures the access to the API server. Its credentials are not used.
	Server *rest.Config
	// Bootstrap returns a client with a bootstrap token. It is called for each attempt to get a certificate while the node has none that is
	// valid.
	Bootstrap func() (CSRs, error)
	// Own returns a client with the node's certificate. Renewals are requested with it; nil: with Bootstrap.
	Own func() (CSRs, error)
	// NodeName is the name of the Node object.
	NodeName string
	// Labels are the labels of the CertificateSigningRequests; may be nil.
	Labels map[string]string
	Log    *slog.Logger
	// Patience is the time between two messages about the same state; 0: 15 s.
	Patience time.Duration
	// Now returns what the node's clock shows; nil: time.Now. By this clock the node decides whether its certificate is valid and when it is renewed.
	// The certificate of the API server is checked by the clock of the process.
	Now func() time.Time
}

// Memory is the identity of a node that keeps its key and its certificate in memory only, such as a simulated one. It gets the certificate by
// TLS bootstrap and renews it, with the same requests as Joining and Client. Join and Run must not be called at the same time; the other
// methods may be called at any time, concurrently.
type Memory struct {
	cfg   MemoryConfig
	conns *connections
	keep  memoryKeeper

	mu   sync.Mutex
	pair *tls.Certificate // nil: the node has no certificate yet
	got  time.Time        // when the node got pair
}

// NewMemory returns the identity of a node that has no certificate yet. It does no IO. The error says what is wrong with cfg.Server.
func NewMemory(cfg MemoryConfig) (*Memory, error) {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	m := &Memory{cfg: cfg}
	_, conns, err := withTransport(rest.AnonymousClientConfig(cfg.Server), m.present)
	if err != nil {
		return nil, err
	}
	m.conns = conns
	return m, nil
}

// Join returns when the node has a valid certificate. It tries until the API server has signed one, or ctx ends, and then returns the error
// of ctx.
func (m *Memory) Join(ctx context.Context) error {
	if cert := m.Certificate(); cert != nil && m.cfg.Now().Before(cert.NotAfter) {
		return nil
	}
	pair, err := m.request().run(ctx)
	if err != nil {
		return fmt.Errorf("get client certificate: %w", err)
	}
	m.use(pair)
	return nil
}

// Run renews the certificate until ctx ends. Then it closes the connections. Join must have succeeded before. A later Join or request opens
// new connections, which the next Run closes.
func (m *Memory) Run(ctx context.Context) error {
	defer m.conns.end()
	if m.Certificate() == nil {
		return errors.New("renew client certificate: the node has none yet")
	}
	return renew(ctx, m.request(), m.certificate, m.use)
}

// Transport returns a transport that sends requests as the node. It presents the newest certificate. Before Join has succeeded requests
// fail.
func (m *Memory) Transport() http.RoundTripper { return m.conns }

// CloseAll closes every connection to the API server, as Client.CloseAll does.
func (m *Memory) CloseAll() { m.conns.closeAll() }

// Certificate returns the certificate in use, or nil if the node has none yet.
func (m *Memory) Certificate() *x509.Certificate {
	cert, _ := m.certificate()
	return cert
}

func (m *Memory) certificate() (*x509.Certificate, time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.pair == nil {
		return nil, time.Time{}
	}
	return m.pair.Leaf, m.got
}

// present is called at every TLS handshake.
func (m *Memory) present() (*tls.Certificate, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.pair == nil {
		return nil, errors.New("this node has no client certificate yet: kubectl get csr")
	}
	return m.pair, nil
}

// use replaces the certificate in use. Requests in flight continue with the old one.
func (m *Memory) use(pair *tls.Certificate) {
	m.mu.Lock()
	first := m.pair == nil
	m.pair, m.got = pair, m.cfg.Now()
	m.mu.Unlock()
	if !first {
		m.conns.renew()
	}
}

func (m *Memory) request() *request {
	req := clientRequest(m.cfg.NodeName, &m.keep, m.cfg.Log, m.cfg.Patience)
	req.client, req.labels, req.now = m.forRequest, m.cfg.Labels, m.cfg.Now
	return req
}

// forRequest returns a client for certificate requests, as Client.forRequest does.
func (m *Memory) forRequest() (CSRs, func(), string, string, error) {
	ask := m.cfg.Own
	if cert := m.Certificate(); ask == nil || cert == nil || m.cfg.Now().After(cert.NotAfter) {
		ask = m.cfg.Bootstrap
	}
	c, err := ask()
	return c, func() {}, m.cfg.Server.Host, "the memory of this process", err
}

// memoryKeeper is a keeper in memory. The Memory itself keeps the current pair.
type memoryKeeper struct{ key *keyPair }

var _ keeper = (*memoryKeeper)(nil)

func (k *memoryKeeper) pending() (keyPair, error) {
	if k.key == nil {
		made, err := newKey()
		if err != nil {
			return keyPair{}, err
		}
		k.key = &made
	}
	return *k.key, nil
}

func (k *memoryKeeper) drop() error {
	k.key = nil
	return nil
}

func (k *memoryKeeper) save(certPEM, keyPEM []byte) (*tls.Certificate, error) {
	pair, err := parsePair(certPEM, keyPEM)
	if err == nil {
		k.key = nil
	}
	return pair, err
}
