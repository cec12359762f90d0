package server

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

// ClientCAs holds the certificates that sign client certificates. They come from the client CA file. ClientCAs notices a change of
// that file at the next handshake or request, at most once a second; nothing watches the file in between. If the file becomes bad or
// disappears, the last good certificates stay in use. Methods may be called concurrently.
type ClientCAs struct {
	path  string
	log   *slog.Logger
	fixed bool // the client CA file is read only once

	mu      sync.Mutex
	pool    *x509.CertPool
	sum     [sha256.Size]byte // of the file
	checked time.Time
	warned  string
}

// recheck is the minimum time between two readings of the client CA file.
const recheck = time.Second

// LoadClientCAs reads the client CA file at path, and returns ClientCAs that notice its later changes.
func LoadClientCAs(path string, log *slog.Logger) (*ClientCAs, error) {
	c := &ClientCAs{path: path, log: log, checked: time.Now()}
	if err := c.read(); err != nil {
		return nil, err
	}
	return c, nil
}

// FixedClientCAs reads the client CA file at path once, and ignores later changes.
func FixedClientCAs(path string) (*ClientCAs, error) {
	c := &ClientCAs{path: path, fixed: true}
	if err := c.read(); err != nil {
		return nil, err
	}
	return c, nil
}

// Pool returns the certificates of the client CA file. As long as they do not change, it returns the same pool.
func (c *ClientCAs) Pool() *x509.CertPool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := time.Now(); !c.fixed && now.Sub(c.checked) >= recheck {
		c.checked = now
		if err := c.read(); err != nil && err.Error() != c.warned {
			c.warned = err.Error()
			c.log.Warn("cannot read client CA file; the certificates read before stay in use", "err", err)
		}
	}
	return c.pool
}

func (c *ClientCAs) read() error {
	raw, err := os.ReadFile(c.path)
	if err != nil {
		return fmt.Errorf("read client CA file (authentication.x509.clientCAFile): %w", err)
	}
	sum := sha256.Sum256(raw)
	if c.pool != nil && sum == c.sum {
		return nil
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(raw) {
		return fmt.Errorf("read client CA file (authentication.x509.clientCAFile): %s has no certificate in PEM", c.path)
	}
	if c.pool != nil {
		c.log.Info("client CA file changed", "path", c.path)
	}
	c.pool, c.sum, c.warned = pool, sum, ""
	return nil
}

// TLSConfig configures the server's TLS.
type TLSConfig struct {
	// MinVersion, CipherSuites and Curves have the meaning of crypto/tls; zero: TLS 1.2 and Go's own choice.
	MinVersion   uint16
	CipherSuites []uint16
	Curves       []tls.CurveID
	// GetCertificate returns the current serving certificate.
	GetCertificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	// ClientCAs are sent to clients, so that they know which certificate to use; nil: the server requests no
	// certificate.
	ClientCAs *ClientCAs
}

// New returns a configuration for a listener. The handshake requests client certificates and does not check them: a bad
// one gets 401, like every other bad credential.
func (t TLSConfig) New() *tls.Config {
	base := &tls.Config{
		MinVersion:       max(t.MinVersion, tls.VersionTLS12),
		CipherSuites:     t.CipherSuites,
		CurvePreferences: t.Curves,
		GetCertificate:   t.GetCertificate,
		NextProtos:       []string{"h2", "http/1.1"},
	}
	if t.MinVersion != 0 {
		base.MinVersion = t.MinVersion
	}
	if t.ClientCAs == nil {
		return base
	}
	base.ClientAuth = tls.RequestClientCert
	// The handshakes share one tls.Config until the client CA file changes, so that a handshake makes no copy. Clients can resume
	// sessions also after such a change, because crypto/tls uses the session ticket keys of the configuration outer.
	var mu sync.Mutex
	var current *tls.Config
	outer := base.Clone()
	outer.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		pool := t.ClientCAs.Pool()
		mu.Lock()
		defer mu.Unlock()
		if current == nil || current.ClientCAs != pool {
			current = base.Clone()
			current.ClientCAs = pool
		}
		return current, nil
	}
	return outer
}

// ParseTLS parses tlsMinVersion and tlsCipherSuites of KubeletConfiguration: VersionTLS12 and the like, and IANA names.
// Empty means the default.
func ParseTLS(minVersion string, cipherSuites []string) (version uint16, suites []uint16, err error) {
	switch minVersion {
	case "":
	case "VersionTLS10":
		version = tls.VersionTLS10
	case "VersionTLS11":
		version = tls.VersionTLS11
	case "VersionTLS12":
		version = tls.VersionTLS12
	case "VersionTLS13":
		version = tls.VersionTLS13
	default:
		return 0, nil, fmt.Errorf("tlsMinVersion: %q is not one of VersionTLS10, VersionTLS11, VersionTLS12, VersionTLS13", minVersion)
	}
	known := append(tls.CipherSuites(), tls.InsecureCipherSuites()...)
	for i, name := range cipherSuites {
		j := slices.IndexFunc(known, func(c *tls.CipherSuite) bool { return alias(name) == c.Name })
		if j < 0 {
			var names []string
			for _, c := range tls.CipherSuites() {
				names = append(names, c.Name)
			}
			return 0, nil, fmt.Errorf("tlsCipherSuites[%d]: %q is not known; known are %s", i, name, strings.Join(names, ", "))
		}
		suites = append(suites, known[j].ID)
	}
	return version, suites, nil
}

// alias returns the name that crypto/tls uses for a suite that also has a shorter name.
func alias(name string) string {
	switch name {
	case "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305", "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305":
		return name + "_SHA256"
	}
	return name
}
