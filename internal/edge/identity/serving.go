package identity

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	certificates "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"
)

// ServingConfig configures a Serving. The certificate comes from CertFile and KeyFile if they are set, or from a request to the
// API server if Request is set; otherwise it is self-signed.
type ServingConfig struct {
	// CertFile and KeyFile (tlsCertFile, tlsPrivateKeyFile) are read again when they change, unless FixedFiles is set.
	CertFile, KeyFile string
	FixedFiles        bool
	// Request, if set, makes the Serving request a certificate from the signer kubernetes.io/kubelet-serving (serverTLSBootstrap).
	Request bool
	// Client returns a client with the node's identity; needed with Request. It is called once per attempt.
	Client func() (CSRs, error)
	// Server and Kubeconfig name the API server in messages.
	Server, Kubeconfig string

	CertDir  string
	NodeName string
	// Addresses returns the addresses that the certificate must cover, as the Node reports them. OpenServing calls it
	// once, and Run periodically. While there is no IP address among them, no certificate is requested.
	Addresses func() []v1.NodeAddress
	Log       *slog.Logger
	// Patience is the time between two messages, and between two calls of Addresses; 0: 15 s.
	Patience time.Duration
	// Failed, when set, is called by Run after each failed try to get a certificate. Replaced, when set, is called when a new
	// certificate replaces another one, with the age of the old one. They must not block.
	Failed   func()
	Replaced func(age time.Duration)
}

// Serving keeps the certificate of a node's HTTPS server. GetCertificate may be called concurrently, before, during and
// after Run.
type Serving struct {
	cfg   ServingConfig
	store store

	failing failure
	unsaved *pemPair // a self-signed pair in use that could not be written yet; used by OpenServing, then by Run

	mu     sync.Mutex
	pair   *tls.Certificate
	stamps fileStamps // of CertFile and KeyFile when pair was read
	bad    fileStamps // of the files whose pair could not be read last, as the log says
}

// OpenServing reads or makes the certificate. If cfg.Request is set, there may be no certificate yet. TLS handshakes then fail until Run
// has got one.
func OpenServing(cfg ServingConfig) (*Serving, error) {
	if cfg.Patience == 0 {
		cfg.Patience = defaultPatience
	}
	if cfg.Addresses == nil {
		cfg.Addresses = func() []v1.NodeAddress { return nil }
	}
	s := &Serving{cfg: cfg, store: store{dir: cfg.CertDir, prefix: servingPrefix}}
	var err error
	switch {
	case cfg.CertFile != "":
		s.stamps = stampsOf(cfg.CertFile, cfg.KeyFile)
		s.pair, err = loadPair(cfg.CertFile, cfg.KeyFile)
	case cfg.Request:
		s.loadSigned()
	default:
		if err = s.selfSign(); err != nil && s.pair != nil {
			cfg.Log.Error("The self-signed serving certificate is used, but cannot be kept yet", "err", err)
			s.failing.set(true, err)
			err = nil
		}
	}
	if err != nil {
		return nil, fmt.Errorf("serving certificate: %w", err)
	}
	return s, nil
}

// loadSigned reads the certificate that the cluster has signed. If there is none, or it is damaged, Run requests a new one.
func (s *Serving) loadSigned() {
	s.store.mend(s.cfg.Log)
	var err error
	if s.pair, err = s.store.load(); err == nil {
		return
	}
	if _, missing := os.Lstat(s.store.current()); missing == nil { // the link exists, so there was a certificate
		s.cfg.Log.Error("The serving certificate is damaged, the node requests a new one", "err", err)
	}
}

// GetCertificate returns the newest certificate, for tls.Config.
func (s *Serving) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	s.reload()
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.pair == nil:
		return nil, errors.New("this node has no serving certificate yet: its request (kubernetes.io/kubelet-serving) waits for approval: kubectl get csr")
	case s.cfg.Request && time.Now().After(s.pair.Leaf.NotAfter):
		return nil, errors.New("this node's serving certificate has ended and the request for the next waits for approval: kubectl get csr")
	}
	return s.pair, nil
}

func (s *Serving) current() *tls.Certificate {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pair
}

func (s *Serving) use(pair *tls.Certificate) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pair = pair
}

// reload reads CertFile and KeyFile again if one of them changed. While they do not fit each other, as in the middle of
// a replacement, or cannot be read, the old pair stays in use, and each handshake tries to read the new one.
func (s *Serving) reload() {
	if s.cfg.CertFile == "" || s.cfg.FixedFiles {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := stampsOf(s.cfg.CertFile, s.cfg.KeyFile)
	if now == s.stamps {
		return
	}
	pair, err := loadPair(s.cfg.CertFile, s.cfg.KeyFile)
	switch {
	case err == nil:
		s.pair, s.stamps, s.bad = pair, now, fileStamps{}
		s.cfg.Log.Info("Read the changed serving certificate", "file", s.cfg.CertFile, "ends", stamp(pair.Leaf.NotAfter))
	case now != s.bad:
		s.bad = now
		s.cfg.Log.Error("Cannot read the changed serving certificate, still using the old one", "file", s.cfg.CertFile, "err", err)
	}
}

// Run renews the certificate until ctx ends: before it expires, and when the node has addresses that it does not cover.
func (s *Serving) Run(ctx context.Context) error {
	switch {
	case s.cfg.CertFile != "":
		<-ctx.Done()
		return nil
	case s.cfg.Request:
		return s.runRequests(ctx)
	default:
		return s.runSelfSigned(ctx)
	}
}

func (s *Serving) runSelfSigned(ctx context.Context) error {
	for sleep(ctx, s.cfg.Patience) {
		err := s.selfSign()
		s.failing.set(err != nil, err)
		if err != nil {
			s.failed()
			s.cfg.Log.Error("Cannot renew the self-signed serving certificate", "err", err)
		}
	}
	return nil
}

func (s *Serving) runRequests(ctx context.Context) error {
	var renewal time.Time // when to renew the current certificate
	var of *tls.Certificate
	for ctx.Err() == nil {
		if pair := s.current(); pair != nil && pair != of {
			of = pair
			got, _ := stampOf(s.store.current()) // if the time of the file is not known, the dates in the certificate are used
			renewal = renewalTime(pair.Leaf, got.changed)
		}
		wish := s.wish()
		if wish == nil && of == nil {
			sleep(ctx, min(s.cfg.Patience, time.Second)) // short at first, because the addresses become known soon after the start
			continue
		}
		if wish == nil || of != nil && covers(of.Leaf, wish) && time.Now().Before(renewal) {
			sleep(ctx, s.cfg.Patience)
			continue
		}
		pair, err := s.request(ctx, wish)
		switch {
		case err == nil:
			if old := s.current(); old != nil && s.cfg.Replaced != nil {
				s.cfg.Replaced(time.Since(old.Leaf.NotBefore))
			}
			s.use(pair)
			s.cfg.Log.Info("The node has a new serving certificate", "ends", stamp(pair.Leaf.NotAfter))
		case ctx.Err() == nil && !errors.Is(err, context.Canceled):
			s.cfg.Log.Error("Cannot get the node's serving certificate, trying again", "err", err)
			sleep(ctx, s.cfg.Patience)
		}
	}
	return nil
}

// Failing returns an error while a problem of this machine, such as a full or broken disk, prevents the renewal or the storage of the
// certificate. Run then tries again. Failing returns nil otherwise.
func (s *Serving) Failing() error {
	if err := s.failing.get(); err != nil {
		return fmt.Errorf("renew serving certificate: %w", err)
	}
	return nil
}

func (s *Serving) failed() {
	if s.cfg.Failed != nil {
		s.cfg.Failed()
	}
}

// Ends returns when the certificate in use expires, or the zero time if there is no certificate yet.
func (s *Serving) Ends() time.Time {
	if pair := s.current(); pair != nil {
		return pair.Leaf.NotAfter
	}
	return time.Time{}
}

// request tries until there is a certificate, or until the node's addresses have changed.
func (s *Serving) request(ctx context.Context, wish *x509.CertificateRequest) (*tls.Certificate, error) {
	ctx, cancel := context.WithCancel(ctx)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		for sleep(ctx, s.cfg.Patience) {
			if now := s.wish(); now != nil && !sameWish(now, wish) {
				cancel() // cancel before the log line, so that no line about the old request follows it
				s.cfg.Log.Info("The node's addresses changed; asking for another serving certificate")
			}
		}
	}()
	defer func() { cancel(); <-watched }()
	req := &request{
		signer:   certificates.KubeletServingSignerName,
		usages:   []certificates.KeyUsage{certificates.UsageDigitalSignature, certificates.UsageServerAuth},
		template: *wish, keep: s.store, log: s.cfg.Log, patience: s.cfg.Patience, failing: &s.failing, failed: s.cfg.Failed, once: true,
		client: func() (CSRs, func(), string, string, error) {
			c, err := s.cfg.Client()
			return c, func() {}, s.cfg.Server, s.cfg.Kubeconfig, err
		},
	}
	return req.run(ctx)
}

// wish returns a template of the certificate that the node's addresses require. It returns nil while no IP address is known, as upstream's
// kubelet does: before the cloud provider has set the addresses, a node has only its name, and clients connect to an IP address.
func (s *Serving) wish() *x509.CertificateRequest {
	names, ips := hostsOf(s.cfg.Addresses())
	if len(ips) == 0 {
		return nil
	}
	return &x509.CertificateRequest{
		Subject:  pkix.Name{Organization: []string{nodesGroup}, CommonName: nodePrefix + s.cfg.NodeName},
		DNSNames: names, IPAddresses: ips,
	}
}

// hostsOf splits a node's addresses into names and IPs, without duplicates.
func hostsOf(addresses []v1.NodeAddress) (names []string, ips []net.IP) {
	seen := map[string]bool{}
	for _, a := range addresses {
		if a.Address == "" || seen[a.Address] {
			continue
		}
		seen[a.Address] = true
		if ip := net.ParseIP(a.Address); ip != nil {
			ips = append(ips, ip)
		} else if a.Type == v1.NodeHostName || a.Type == v1.NodeInternalDNS || a.Type == v1.NodeExternalDNS {
			names = append(names, a.Address)
		}
	}
	slices.Sort(names)
	slices.SortFunc(ips, func(a, b net.IP) int { return slices.Compare(a.To16(), b.To16()) })
	return names, ips
}

func sameWish(a, b *x509.CertificateRequest) bool {
	return slices.Equal(a.DNSNames, b.DNSNames) && slices.EqualFunc(a.IPAddresses, b.IPAddresses, net.IP.Equal)
}

// covers reports whether a certificate covers all names and addresses of wish.
func covers(cert *x509.Certificate, wish *x509.CertificateRequest) bool {
	if wish.Subject.CommonName != "" && cert.Subject.CommonName != wish.Subject.CommonName {
		return false
	}
	for _, name := range wish.DNSNames {
		if !slices.Contains(cert.DNSNames, name) {
			return false
		}
	}
	for _, ip := range wish.IPAddresses {
		if !slices.ContainsFunc(cert.IPAddresses, ip.Equal) {
			return false
		}
	}
	return true
}

// selfSignedFiles returns the paths of the self-signed pair.
func (s *Serving) selfSignedFiles() (cert, key string) {
	return filepath.Join(s.cfg.CertDir, "kubelet.crt"), filepath.Join(s.cfg.CertDir, "kubelet.key")
}
