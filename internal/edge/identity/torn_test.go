package identity_test

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/wherry-node/wherry/internal/edge/identity"
)

// damages are ways in which a file with a certificate and its key is incomplete after a power cut or on a damaged disk. Each returns the
// new content of the file, or nil if the file is lost.
var damages = map[string]func(whole []byte) []byte{
	"empty":      func([]byte) []byte { return []byte{} },
	"half":       func(whole []byte) []byte { return whole[:len(whole)/4] },
	"no key":     func(whole []byte) []byte { return whole[:strings.Index(string(whole), "-----BEGIN EC")] },
	"half a key": func(whole []byte) []byte { return whole[:len(whole)-40] },
	"zeros":      func(whole []byte) []byte { return make([]byte, len(whole)) },
	"lost":       func([]byte) []byte { return nil },
}

// damage changes the file to which the link points.
func damage(t *testing.T, link string, how func([]byte) []byte) {
	t.Helper()
	file := must(filepath.EvalSymlinks(link))(t)
	after := how(must(os.ReadFile(file))(t))
	if after == nil {
		must(0, os.Remove(file))(t)
		return
	}
	must(0, os.WriteFile(file, after, 0o600))(t)
}

// The current certificate is damaged, and an earlier one is whole and still valid: the node uses that one, with and without a token.
func TestTheEarlierCertificateServesIfTheCurrentOneIsDamaged(t *testing.T) {
	t.Parallel()
	for name, how := range damages {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newAPI(t)
			a.approve = true
			n := newNode(t, a)
			if err := identity.Bootstrap(soon(t), n.cfg); err != nil {
				t.Fatal(err)
			}
			link := n.cfg.CertDir + "/kubelet-client-current.pem"
			current := must(filepath.EvalSymlinks(link))(t)
			whole := must(os.ReadFile(current))(t)
			expired, key := a.ca.pair(t, x509.Certificate{
				Subject:   pkix.Name{CommonName: "system:node:n1", Organization: []string{"system:nodes"}},
				NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: time.Now().Add(-time.Hour),
			})
			for file, content := range map[string][]byte{
				"kubelet-client-2026-01-02-03-04-05.pem": whole, "kubelet-client-2026-01-01-03-04-05.pem": append(expired, key...),
				"kubelet-client-2026-01-03-03-04-05.pem": whole[:100], "kubelet-server-2026-01-04-03-04-05.pem": whole,
			} {
				must(0, os.WriteFile(filepath.Join(n.cfg.CertDir, file), content, 0o600))(t)
			}
			damage(t, link, how)
			must(0, os.Remove(n.cfg.BootstrapKubeconfig))(t)
			if err := identity.Bootstrap(soon(t), n.cfg); err != nil {
				t.Fatal(err)
			}
			n.works(t)
			n.log.wait(t, 1, "kubelet-client-2026-01-02-03-04-05.pem")
			if got := must(filepath.EvalSymlinks(link))(t); filepath.Base(got) != "kubelet-client-2026-01-02-03-04-05.pem" {
				t.Errorf("the link points to %s", got)
			}
			if len(a.created) != 1 {
				t.Errorf("%d certificates were requested, want only the first", len(a.created))
			}
		})
	}
}

// The current certificate is damaged, and there is no other. With a token the node asks for a new one. Without a token the error names the
// file.
func TestADamagedCertificateIsRequestedAnew(t *testing.T) {
	t.Parallel()
	for name, how := range damages {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newAPI(t)
			a.approve = true
			n := newNode(t, a)
			if err := identity.Bootstrap(soon(t), n.cfg); err != nil {
				t.Fatal(err)
			}
			link := n.cfg.CertDir + "/kubelet-client-current.pem"
			damage(t, link, how)
			without := n.cfg
			without.BootstrapKubeconfig = ""
			if err := identity.Bootstrap(soon(t), without); err == nil || !strings.Contains(err.Error(), link) || !strings.Contains(err.Error(), "--bootstrap-kubeconfig") {
				t.Errorf("without a token: %v", err)
			}
			if err := identity.Bootstrap(soon(t), n.cfg); err != nil {
				t.Fatal(err)
			}
			n.works(t)
		})
	}
}

// A kubeconfig contains the certificate, and the renewed one in the certificate directory is damaged: the client uses the kubeconfig's.
func TestTheCertificateOfTheKubeconfigServesIfTheRenewedOneIsDamaged(t *testing.T) {
	t.Parallel()
	_, n := joined(t)
	own := filepath.Join(n.dir, "own.pem")
	link := n.cfg.CertDir + "/kubelet-client-current.pem"
	must(0, os.WriteFile(own, must(os.ReadFile(link))(t), 0o600))(t)
	config := strings.ReplaceAll(string(must(os.ReadFile(n.cfg.Kubeconfig))(t)), link, own)
	must(0, os.WriteFile(n.cfg.Kubeconfig, []byte(config), 0o600))(t)
	damage(t, link, damages["half"])
	c := must(identity.OpenClient(identity.ClientConfig{Kubeconfig: n.cfg.Kubeconfig, CertDir: n.cfg.CertDir, NodeName: "n1", Rotate: true, Log: n.cfg.Log}))(t)
	defer endClient(t, c)
	if c.Certificate() == nil {
		t.Error("the client has no certificate")
	}
	n.log.wait(t, 1, "the kubeconfig's certificate is used")
}

// The serving certificate that the cluster has signed is damaged: the node starts, and asks for a new one.
func TestADamagedServingCertificateIsRequestedAnew(t *testing.T) {
	t.Parallel()
	for name, how := range damages {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newAPI(t)
			n := newNode(t, a)
			certPEM, keyPEM := a.ca.pair(t, x509.Certificate{
				Subject:   pkix.Name{CommonName: "system:node:n1", Organization: []string{"system:nodes"}},
				NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
			})
			link := n.cfg.CertDir + "/kubelet-server-current.pem"
			file := n.cfg.CertDir + "/kubelet-server-2026-01-02-03-04-05.pem"
			must(0, os.MkdirAll(n.cfg.CertDir, 0o755))(t)
			must(0, os.WriteFile(file, append(certPEM, keyPEM...), 0o600))(t)
			must(0, os.Symlink(file, link))(t)
			damage(t, link, how)
			s, err := identity.OpenServing(identity.ServingConfig{CertDir: n.cfg.CertDir, NodeName: "n1", Request: true, Log: n.cfg.Log})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.GetCertificate(nil); err == nil || !strings.Contains(err.Error(), "no serving certificate yet") {
				t.Errorf("a handshake: %v", err)
			}
			n.log.wait(t, 1, "requests a new one")
		})
	}
}

// The machine's clock is ten years early at boot, so the node's certificate seems to have ended, and the token is refused. When the clock
// is set, the certificate serves again, and nothing was requested. (Here the certificate changes instead of the clock.)
func TestACertificateServesAgainAfterTheClockIsSet(t *testing.T) {
	t.Parallel()
	a, n := joined(t)
	link := n.cfg.CertDir + "/kubelet-client-current.pem"
	whole := must(os.ReadFile(link))(t)
	n.expire(t)
	a.kubeconfig(t, n.cfg.BootstrapKubeconfig, "unknown-token", a.ca)
	result := n.start(soon(t))
	n.log.wait(t, 1, "Cannot get the node's certificate yet")
	must(0, os.WriteFile(link, whole, 0o600))(t)
	if err := result(); err != nil {
		t.Fatal(err)
	}
	n.works(t)
	if len(a.created) != 1 {
		t.Errorf("%d certificates were requested, want only the first", len(a.created))
	}
}

// A self-signed certificate that was made while the clock was ten years early is not valid yet when the clock is right: it is replaced.
func TestASelfSignedCertificateOfTheFutureIsReplaced(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	n := newNode(t, a)
	at := time.Now().AddDate(10, 0, 0)
	certPEM, keyPEM := a.ca.pair(t, x509.Certificate{
		Subject: pkix.Name{CommonName: "n1", Organization: []string{"wherry self-signed"}}, DNSNames: []string{"n1"}, NotBefore: at, NotAfter: at.AddDate(1, 0, 0),
	})
	must(0, os.MkdirAll(n.cfg.CertDir, 0o755))(t)
	must(0, os.WriteFile(n.cfg.CertDir+"/kubelet.crt", certPEM, 0o600))(t)
	must(0, os.WriteFile(n.cfg.CertDir+"/kubelet.key", keyPEM, 0o600))(t)
	s := must(identity.OpenServing(identity.ServingConfig{CertDir: n.cfg.CertDir, NodeName: "n1", Log: n.cfg.Log}))(t)
	if now := must(s.GetCertificate(nil))(t).Leaf; time.Now().Before(now.NotBefore) {
		t.Errorf("the certificate is valid from %s", now.NotBefore)
	}
}
