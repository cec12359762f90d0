package identity_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/wherry-node/wherry/internal/base/kubeclient"
	"github.com/wherry-node/wherry/internal/edge/identity"
	certificates "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

func pairOf(t *testing.T, certPEM, keyPEM []byte) tls.Certificate {
	t.Helper()
	return must(tls.X509KeyPair(certPEM, keyPEM))(t)
}

// "RotateKubeletClientCertificate causes the kubelet to rotate its client certificates by creating new CSRs as its
// existing credentials expire": the same client goes on, with new connections and the new certificate, and a request in
// flight gets its answer.
func TestRotation(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	a.approve, a.age, a.life = true, time.Hour, time.Minute
	n := newNode(t, a)
	if err := identity.Bootstrap(soon(t), n.cfg); err != nil {
		t.Fatal(err)
	}
	// The certificate's file is an hour old, so the certificate counts as received then.
	if err := os.Chtimes(n.cfg.CertDir+"/kubelet-client-current.pem", time.Time{}, time.Now().Add(-time.Hour)); err != nil {
		t.Fatal(err)
	}
	c := must(identity.OpenClient(identity.ClientConfig{Kubeconfig: n.cfg.Kubeconfig, CertDir: n.cfg.CertDir, NodeName: "n1", Rotate: true,
		Log: n.cfg.Log, Patience: n.cfg.Patience}))(t)
	a.set(func() { a.age, a.life = 0, time.Hour })
	cs := must(kubeclient.New(c.Config()))(t)
	use := func() {
		t.Helper()
		if _, err := cs.CertificateSigningRequests().Get(t.Context(), a.created[0], metav1.GetOptions{}); err != nil {
			t.Error(err)
		}
	}
	use()
	first := c.Certificate()
	slow := must(rest.HTTPClientFor(c.Config()))(t)
	answered := make(chan error, 1)
	go func() {
		resp, err := slow.Post(c.Server()+"/slow", "text/plain", strings.NewReader("once")) // use POST, because net/http itself may repeat a GET
		if err == nil {
			err = resp.Body.Close()
		}
		answered <- err
	}()
	<-a.slow
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	n.log.wait(t, 1, "client certificate is renewed")
	use()
	<-a.slow
	if err := <-answered; err != nil {
		t.Errorf("the request that was under way: %v", err)
	}
	second := c.Certificate()
	if seen := a.seen(); len(seen) != 2 || seen[0] != first.SerialNumber.String() || seen[1] != second.SerialNumber.String() {
		t.Errorf("the server saw certificates %v, want %v and %v", seen, first.SerialNumber, second.SerialNumber)
	}
	if stored := readPair(t, n.cfg.CertDir+"/kubelet-client-current.pem"); stored.SerialNumber.Cmp(second.SerialNumber) != 0 {
		t.Error("the new certificate is not the stored one")
	}
	if a.users[1] != "system:node:n1" {
		t.Errorf("renewal asked for by %s", a.users[1])
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// If the certificate expired while the server did not answer, the client uses the bootstrap token again.
func TestRotationTooLate(t *testing.T) {
	t.Parallel()
	a, n := joined(t)
	n.expire(t)
	c := must(identity.OpenClient(identity.ClientConfig{Kubeconfig: n.cfg.Kubeconfig, BootstrapKubeconfig: n.cfg.BootstrapKubeconfig,
		CertDir: n.cfg.CertDir, NodeName: "n1", Rotate: true, Log: n.cfg.Log, Patience: n.cfg.Patience}))(t)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	n.log.wait(t, 1, "client certificate is renewed")
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if a.users[1] != "system:bootstrap:abcdef" {
		t.Errorf("asked for by %s", a.users[1])
	}
}

// If the client certificate is for another name than the node's, the client logs that, because the API server will refuse its requests.
func TestOtherName(t *testing.T) {
	t.Parallel()
	_, n := joined(t)
	c := must(identity.OpenClient(identity.ClientConfig{Kubeconfig: n.cfg.Kubeconfig, CertDir: n.cfg.CertDir, NodeName: "n2", Log: n.cfg.Log}))(t)
	defer endClient(t, c)
	n.log.wait(t, 1, "certificate=system:node:n1 node=n2")
}

// Without its kubeconfig, a client says how a node gets one.
func TestMissingKubeconfig(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	_, err := identity.OpenClient(identity.ClientConfig{Kubeconfig: filepath.Join(dir, "none"), CertDir: dir, NodeName: "n1", Log: slog.New(slog.DiscardHandler)})
	if !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), "give --bootstrap-kubeconfig") {
		t.Errorf("a missing kubeconfig: %v", err)
	}
}

// serve runs a TLS server that uses the certificates of s. It returns a function that connects to the server and returns the certificate
// that the server presents.
func serve(t *testing.T, s *identity.Serving) func() (*x509.Certificate, error) {
	t.Helper()
	l := must(tls.Listen("tcp", "127.0.0.1:0", &tls.Config{GetCertificate: s.GetCertificate}))(t)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_ = conn.(*tls.Conn).Handshake()
			conn.Close()
		}
	}()
	return func() (*x509.Certificate, error) {
		conn, err := tls.Dial("tcp", l.Addr().String(), &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			return nil, err
		}
		defer conn.Close()
		return conn.ConnectionState().PeerCertificates[0], nil
	}
}

func addresses(ips ...string) []v1.NodeAddress {
	out := []v1.NodeAddress{{Type: v1.NodeHostName, Address: "n1"}}
	for _, ip := range ips {
		out = append(out, v1.NodeAddress{Type: v1.NodeInternalIP, Address: ip})
	}
	return out
}

// A self-signed certificate survives restarts. A new one is made when the node has another address.
func TestSelfSigned(t *testing.T) {
	t.Parallel()
	dir, log := t.TempDir(), newLines()
	var at atomic.Pointer[[]v1.NodeAddress]
	put := func(a []v1.NodeAddress) { at.Store(&a) }
	put(addresses("10.0.0.1"))
	cfg := identity.ServingConfig{CertDir: dir, NodeName: "n1", Addresses: func() []v1.NodeAddress { return *at.Load() },
		Log: slog.New(slog.NewTextHandler(log, nil)), Patience: 20 * time.Millisecond}
	first := must(serve(t, must(identity.OpenServing(cfg))(t))())(t)
	s := must(identity.OpenServing(cfg))(t)
	see := serve(t, s)
	if again := must(see())(t); again.SerialNumber.Cmp(first.SerialNumber) != 0 {
		t.Error("a restart made a new certificate")
	}
	if err := first.VerifyHostname("10.0.0.1"); err != nil {
		t.Error(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	put(addresses("10.0.0.1", "fd00::1"))
	log.wait(t, 2, "Made a self-signed serving certificate")
	if err := must(see())(t).VerifyHostname("fd00::1"); err != nil {
		t.Error(err)
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if mode := modes(t, dir)["kubelet.key"]; mode != 0o600 {
		t.Errorf("key has mode %v", mode)
	}
}

// Files that somebody else has put into the place of the self-signed pair, and that cannot be used, are kept under other names: half of a pair, or two that do
// not fit each other. A pair of the agent's own that a crash has torn is replaced.
func TestFilesInThePlaceOfTheSelfSignedPairAreKept(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	cert, key := ca.pair(t, x509.Certificate{Subject: pkix.Name{CommonName: "somebody"}})
	ours, _ := ca.pair(t, x509.Certificate{Subject: pkix.Name{CommonName: "n1", Organization: []string{"wherry self-signed"}}})
	_, other := ca.pair(t, x509.Certificate{Subject: pkix.Name{CommonName: "another"}})
	for name, c := range map[string]struct{ have, kept map[string][]byte }{
		"they do not fit":         {map[string][]byte{"kubelet.crt": cert, "kubelet.key": other}, map[string][]byte{"kubelet.crt": cert, "kubelet.key": other}},
		"only the certificate":    {map[string][]byte{"kubelet.crt": cert}, map[string][]byte{"kubelet.crt": cert}},
		"only the key":            {map[string][]byte{"kubelet.key": key}, map[string][]byte{"kubelet.key": key}},
		"torn by a crash":         {map[string][]byte{"kubelet.crt": ours, "kubelet.key": other}, nil},
		"a pair that can be used": {map[string][]byte{"kubelet.crt": cert, "kubelet.key": key}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			for file, data := range c.have {
				must(0, os.WriteFile(filepath.Join(dir, file), data, 0o600))(t)
			}
			cfg := identity.ServingConfig{CertDir: dir, NodeName: "n1", Log: slog.New(slog.DiscardHandler)}
			first := must(must(identity.OpenServing(cfg))(t).GetCertificate(nil))(t).Leaf
			if again := must(must(identity.OpenServing(cfg))(t).GetCertificate(nil))(t).Leaf; again.SerialNumber.Cmp(first.SerialNumber) != 0 {
				t.Error("each start makes another certificate")
			}
			for _, file := range []string{"kubelet.crt", "kubelet.key"} {
				if got, _ := os.ReadFile(filepath.Join(dir, file+".replaced")); !bytes.Equal(got, c.kept[file]) {
					t.Errorf("%s is kept as %q, want %q", file, got, c.kept[file])
				}
			}
		})
	}
}

// tlsCertFile and tlsPrivateKeyFile are read again when they change. A pair that does not fit together changes nothing.
func TestServingFiles(t *testing.T) {
	t.Parallel()
	dir, log, ca := t.TempDir(), newLines(), newAuthority(t)
	cfg := identity.ServingConfig{CertFile: dir + "/tls.crt", KeyFile: dir + "/tls.key", Log: slog.New(slog.NewTextHandler(log, nil))}
	put := func(name string) {
		t.Helper()
		certPEM, keyPEM := ca.pair(t, x509.Certificate{Subject: pkix.Name{CommonName: name}})
		for file, data := range map[string][]byte{cfg.CertFile: certPEM, cfg.KeyFile: keyPEM} {
			if err := os.WriteFile(file+".new", data, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(file+".new", file); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := identity.OpenServing(cfg); err == nil {
		t.Error("no error without files")
	}
	put("one")
	s := must(identity.OpenServing(cfg))(t)
	see := serve(t, s)
	for _, name := range []string{"two", "three"} {
		put(name)
		if got := must(see())(t).Subject.CommonName; got != name {
			t.Errorf("serves %s, want %s", got, name)
		}
	}
	if err := os.WriteFile(cfg.CertFile, []byte("half a certificate"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := must(see())(t).Subject.CommonName; got != "three" {
		t.Errorf("serves %s after a bad change, want three", got)
	}
	log.wait(t, 1, "still using the old one")
}

// A changed pair that cannot be read for a moment, because the agent has no descriptor left or the disk fails, is read by a later handshake. The
// files do not change again meanwhile.
func TestServingFilesThatCannotBeReadForAMoment(t *testing.T) {
	t.Parallel()
	dir, log, ca := t.TempDir(), newLines(), newAuthority(t)
	cfg := identity.ServingConfig{CertFile: dir + "/tls.crt", KeyFile: dir + "/tls.key", Log: slog.New(slog.NewTextHandler(log, nil))}
	put := func(name string) (cert []byte) {
		t.Helper()
		certPEM, keyPEM := ca.pair(t, x509.Certificate{Subject: pkix.Name{CommonName: name}})
		must(0, os.WriteFile(cfg.CertFile, certPEM, 0o600))(t)
		must(0, os.WriteFile(cfg.KeyFile, keyPEM, 0o600))(t)
		return certPEM
	}
	put("the first")
	s := must(identity.OpenServing(cfg))(t)
	serves := func(want string) {
		t.Helper()
		if got := must(s.GetCertificate(nil))(t).Leaf.Subject.CommonName; got != want {
			t.Errorf("serves %q, want %q", got, want)
		}
	}
	// A file with zeros stands for one that cannot be read: it has the size and the time of the new certificate.
	cert := put("another certificate")
	changed := time.Now().Add(time.Minute)
	must(0, os.WriteFile(cfg.CertFile, make([]byte, len(cert)), 0o600))(t)
	must(0, os.Chtimes(cfg.CertFile, changed, changed))(t)
	serves("the first")
	serves("the first")
	must(0, os.WriteFile(cfg.CertFile, cert, 0o600))(t)
	must(0, os.Chtimes(cfg.CertFile, changed, changed))(t)
	serves("another certificate")
	if n := strings.Count(log.String(), "still using the old one"); n != 1 {
		t.Errorf("the log says %d times that the old certificate is used", n)
	}
}

// Without the gate ReloadKubeletServerCertificateFile the files are read once.
func TestFixedServingFiles(t *testing.T) {
	t.Parallel()
	const gate = "ReloadKubeletServerCertificateFile"
	dir, ca := t.TempDir(), newAuthority(t)
	for _, fixed := range []bool{true, false} {
		cfg := identity.ServingConfig{CertFile: dir + "/tls.crt", KeyFile: dir + "/tls.key", FixedFiles: fixed, Log: slog.New(slog.DiscardHandler)}
		put := func(name string) {
			certPEM, keyPEM := ca.pair(t, x509.Certificate{Subject: pkix.Name{CommonName: name}})
			for file, data := range map[string][]byte{cfg.CertFile: certPEM, cfg.KeyFile: keyPEM} {
				if err := os.WriteFile(file, data, 0o600); err != nil {
					t.Fatal(err)
				}
			}
		}
		put("first")
		s := must(identity.OpenServing(cfg))(t)
		put("the second")
		want := "the second"
		if fixed {
			want = "first"
		}
		if got := must(s.GetCertificate(nil))(t).Leaf.Subject.CommonName; got != want {
			t.Errorf("%s %t: serves %q, want %q", gate, !fixed, got, want)
		}
	}
}

// With serverTLSBootstrap, there is no certificate until the request is approved. A new one is requested when the node
// has another address.
func TestServingByRequest(t *testing.T) {
	t.Parallel()
	a, n := joined(t)
	c := must(identity.OpenClient(identity.ClientConfig{Kubeconfig: n.cfg.Kubeconfig, CertDir: n.cfg.CertDir, NodeName: "n1", Log: n.cfg.Log}))(t)
	defer endClient(t, c)
	a.change(a.remove)
	a.set(func() { a.approve = false })
	var at atomic.Pointer[[]v1.NodeAddress]
	put := func(a []v1.NodeAddress) { at.Store(&a) }
	put(nil)
	var replaced atomic.Int32
	s := must(identity.OpenServing(identity.ServingConfig{Request: true, Client: func() (identity.CSRs, error) {
		return must(kubeclient.New(c.Config()))(t).CertificateSigningRequests(), nil
	},
		CertDir: n.cfg.CertDir, NodeName: "n1", Addresses: func() []v1.NodeAddress { return *at.Load() }, Log: n.cfg.Log, Patience: 20 * time.Millisecond,
		Replaced: func(time.Duration) { replaced.Add(1) }}))(t)
	see := serve(t, s)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	if _, err := see(); err == nil {
		t.Error("serves without a certificate")
	}
	if ends := s.Ends(); !ends.IsZero() {
		t.Errorf("without a certificate, one ends at %v", ends)
	}
	put(addresses("10.0.0.1"))
	a.change(a.sign)
	n.log.wait(t, 1, "new serving certificate")
	cert := must(see())(t)
	if cert.Subject.String() != "CN=system:node:n1,O=system:nodes" || cert.VerifyHostname("n1") != nil || cert.VerifyHostname("10.0.0.1") != nil {
		t.Errorf("certificate for %s, %v, %v", cert.Subject, cert.DNSNames, cert.IPAddresses)
	}
	a.change(a.remove)
	put(addresses("10.0.0.2")) // the node's address changes while the request for the old address waits
	a.change(func(*certificates.CertificateSigningRequest) {})
	put(addresses("10.0.0.3"))
	n.log.wait(t, 1, "addresses changed")
	a.set(func() { a.approve = true; clear(a.csrs) })
	n.log.wait(t, 2, "new serving certificate")
	if got := must(see())(t).IPAddresses; len(got) != 1 || !got[0].Equal(net.ParseIP("10.0.0.3")) {
		t.Errorf("certificate for %v, want 10.0.0.3", got)
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if n := replaced.Load(); n != 1 { // one replacement: the first certificate did not replace another one
		t.Errorf("%d certificates were replaced", n)
	}
	if want := must(see())(t).NotAfter; !s.Ends().Equal(want) {
		t.Errorf("the certificate ends at %v, want %v", s.Ends(), want)
	}
	for i, u := range a.users[1:] {
		if u != "system:node:n1" {
			t.Errorf("request %d made by %s", i+1, u)
		}
	}
	if !strings.HasPrefix(a.csrs[a.created[len(a.created)-1]].Spec.SignerName, "kubernetes.io/kubelet-serving") {
		t.Error("wrong signer")
	}
}

// While the request for the serving certificate waits for its approval, the node logs this only once, and makes only one request.
func TestServingRequestSaysItsWaitOnce(t *testing.T) {
	t.Parallel()
	a, n := joined(t)
	c := must(identity.OpenClient(identity.ClientConfig{Kubeconfig: n.cfg.Kubeconfig, CertDir: n.cfg.CertDir, NodeName: "n1", Log: n.cfg.Log}))(t)
	defer endClient(t, c)
	a.change(a.remove)
	a.set(func() { a.approve = false })
	var looks atomic.Int32
	seen := make(chan struct{})
	s := must(identity.OpenServing(identity.ServingConfig{Request: true, Client: func() (identity.CSRs, error) {
		return must(kubeclient.New(c.Config()))(t).CertificateSigningRequests(), nil
	}, CertDir: n.cfg.CertDir, NodeName: "n1", Log: n.cfg.Log, Patience: 20 * time.Millisecond, Addresses: func() []v1.NodeAddress {
		if looks.Add(1) == 20 { // Addresses is called once per Patience
			close(seen)
		}
		return addresses("10.0.0.1")
	}}))(t)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	n.log.wait(t, 1, "Waiting for somebody to approve")
	<-seen
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if got := strings.Count(n.log.String(), "Waiting for somebody to approve"); got != 1 {
		t.Errorf("the wait is said %d times", got)
	}
}
