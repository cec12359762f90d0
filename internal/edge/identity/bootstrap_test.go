package identity_test

import (
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"log/slog"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/wherry-node/wherry/internal/base/kubeclient"
	"github.com/wherry-node/wherry/internal/edge/identity"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// node is a node without an identity, with its directory.
type node struct {
	api *api
	dir string
	cfg identity.BootstrapConfig
	log *lines
}

func newNode(t *testing.T, a *api) *node {
	t.Helper()
	n := &node{api: a, dir: t.TempDir(), log: newLines()}
	n.cfg = identity.BootstrapConfig{
		BootstrapKubeconfig: n.dir + "/bootstrap.conf", Kubeconfig: n.dir + "/kubelet.conf", CertDir: n.dir + "/pki",
		NodeName: "n1", Log: slog.New(slog.NewTextHandler(n.log, nil)), Patience: 50 * time.Millisecond,
	}
	a.kubeconfig(t, n.cfg.BootstrapKubeconfig, a.token, a.ca)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("log of the node:\n%s", n.log)
		}
	})
	return n
}

// joined returns a node that has joined, and its API, which approves each request for a certificate.
func joined(t *testing.T) (*api, *node) {
	t.Helper()
	a := newAPI(t)
	a.approve = true
	n := newNode(t, a)
	if err := identity.Bootstrap(soon(t), n.cfg); err != nil {
		t.Fatal(err)
	}
	return a, n
}

// soon returns a context with a timeout, so that a test that hangs fails.
func soon(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// start runs Bootstrap in a goroutine; result waits for its end.
func (n *node) start(ctx context.Context) (result func() error) {
	done := make(chan error, 1)
	go func() { done <- identity.Bootstrap(ctx, n.cfg) }()
	return func() error { return <-done }
}

// works checks that the API server accepts the node's new identity.
func (n *node) works(t *testing.T) {
	t.Helper()
	c := must(identity.OpenClient(identity.ClientConfig{Kubeconfig: n.cfg.Kubeconfig, CertDir: n.cfg.CertDir, NodeName: "n1", Log: n.cfg.Log}))(t)
	defer endClient(t, c)
	cs := must(kubeclient.New(c.Config()))(t)
	_, err := cs.CertificateSigningRequests().Get(t.Context(), n.api.created[0], metav1.GetOptions{})
	if err != nil {
		t.Errorf("use the identity: %v", err)
	}
}

func endClient(t *testing.T, c *identity.Client) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := c.Run(ctx); err != nil {
		t.Error(err)
	}
}

// A node without an identity gets one with its token, and writes a kubeconfig that works: "kubelet ... uses the limited permissions
// of the token to create and retrieve a CSR ... kubelet creates a proper kubeconfig with the key and the signed certificate".
func TestBootstrap(t *testing.T) {
	t.Parallel()
	a, n := joined(t)
	n.works(t)
	csr := a.csrs[a.created[0]]
	req := must(identity.ParseCSR(csr.Spec.Request))(t)
	if req.Subject.String() != "CN=system:node:n1,O=system:nodes" || csr.Spec.SignerName != "kubernetes.io/kube-apiserver-client-kubelet" {
		t.Errorf("request: %s for %s", req.Subject, csr.Spec.SignerName)
	}
	if diff := cmp.Diff([]string{"digital signature", "client auth"}, strs(csr.Spec.Usages)); diff != "" {
		t.Errorf("usages (-want +got):\n%s", diff)
	}
	for name, mode := range modes(t, n.cfg.CertDir) {
		if mode != 0o600 || !strings.HasPrefix(name, "kubelet-client-") {
			t.Errorf("%s has mode %v", name, mode)
		}
	}
	if info := must(os.Stat(n.cfg.Kubeconfig))(t); info.Mode().Perm() != 0o600 {
		t.Errorf("kubeconfig has mode %v", info.Mode())
	}
	if link := must(os.Readlink(filepath.Join(n.cfg.CertDir, "kubelet-client-current.pem")))(t); !filepath.IsAbs(link) {
		t.Errorf("current certificate is at %s", link)
	}
	// A second start uses the existing files.
	if err := identity.Bootstrap(soon(t), n.cfg); err != nil {
		t.Fatal(err)
	}
	if len(a.created) != 1 {
		t.Errorf("made %d requests, want 1", len(a.created))
	}
}

func strs[T ~string](in []T) []string {
	out := make([]string, len(in))
	for i, s := range in {
		out[i] = string(s)
	}
	return out
}

// While a request waits for a person's approval, the log repeats the name of the request and the command to type. After a
// restart, the node finds the same request.
func TestBootstrapByHand(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	n := newNode(t, a)
	ctx, stop := context.WithCancel(t.Context())
	result := n.start(ctx)
	n.log.wait(t, 2, "kubectl certificate approve node-csr-")
	stop()
	if err := result(); !errors.Is(err, context.Canceled) {
		t.Fatalf("stopped: %v", err)
	}
	result = n.start(soon(t))
	n.log.wait(t, 1, "Found the certificate request that this node made before")
	a.change(a.sign)
	if err := result(); err != nil {
		t.Fatal(err)
	}
	n.works(t)
	if len(a.created) != 1 {
		t.Errorf("made requests %v, want one", a.created)
	}
}

// If the certificate request is denied, Bootstrap logs the reason. When somebody deletes the request, the node makes another one.
func TestBootstrapDenied(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	n := newNode(t, a)
	result := n.start(soon(t))
	name := a.change(a.deny)
	n.log.wait(t, 2, "Denied: NotMine who is this?")
	n.log.wait(t, 1, "kubectl delete csr "+name)
	a.set(func() { a.approve = true })
	a.change(a.remove)
	if err := result(); err != nil {
		t.Fatal(err)
	}
	n.works(t)
}

// For each problem on the way, Bootstrap logs a message of its own, and tries again until the problem is solved.
func TestBootstrapTrouble(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name          string
		breakIt, mend func(t *testing.T, n *node)
		want          string
	}{
		{"wrong token", func(t *testing.T, n *node) { n.api.kubeconfig(t, n.cfg.BootstrapKubeconfig, "abcdef.wrong", n.api.ca) },
			func(t *testing.T, n *node) { n.api.kubeconfig(t, n.cfg.BootstrapKubeconfig, n.api.token, n.api.ca) },
			"does not accept the credentials in"},
		{"expired token", func(_ *testing.T, n *node) { n.api.set(func() { n.api.token = "other" }) },
			func(t *testing.T, n *node) { n.api.set(func() { n.api.token = "abcdef.0123456789abcdef" }) },
			"has expired or was deleted: make one (wherry token create)"},
		{"wrong CA", func(t *testing.T, n *node) {
			n.api.kubeconfig(t, n.cfg.BootstrapKubeconfig, n.api.token, newAuthority(t))
		},
			func(t *testing.T, n *node) { n.api.kubeconfig(t, n.cfg.BootstrapKubeconfig, n.api.token, n.api.ca) },
			"is not signed by the authority in"},
		{"nobody there", func(t *testing.T, n *node) {
			whole := n.api.server.URL
			n.api.server.URL = "https://127.0.0.1:1"
			n.api.kubeconfig(t, n.cfg.BootstrapKubeconfig, n.api.token, n.api.ca)
			n.api.server.URL = whole
		}, func(t *testing.T, n *node) { n.api.kubeconfig(t, n.cfg.BootstrapKubeconfig, n.api.token, n.api.ca) },
			"cannot be reached"},
		{"clock", func(t *testing.T, n *node) {
			n.serverCertificate(t, time.Now().Add(time.Hour), time.Now().Add(2*time.Hour), "127.0.0.1")
		},
			func(t *testing.T, n *node) {
				n.serverCertificate(t, time.Now().Add(-time.Hour), time.Now().Add(time.Hour), "127.0.0.1")
			},
			"set this machine's clock"},
		{"other name", func(t *testing.T, n *node) {
			n.serverCertificate(t, time.Now().Add(-time.Hour), time.Now().Add(time.Hour), "10.0.0.1")
		},
			func(t *testing.T, n *node) {
				n.serverCertificate(t, time.Now().Add(-time.Hour), time.Now().Add(time.Hour), "127.0.0.1")
			},
			"is for another name"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, newAPI(t))
			n.api.approve = true
			c.breakIt(t, n)
			result := n.start(soon(t))
			n.log.wait(t, 1, c.want)
			c.mend(t, n)
			if err := result(); err != nil {
				t.Fatal(err)
			}
			n.works(t)
		})
	}
}

// serverCertificate replaces the API server by one with another certificate, and changes the node's kubeconfig.
func (n *node) serverCertificate(t *testing.T, from, to time.Time, ip string) {
	t.Helper()
	certPEM, keyPEM := n.api.ca.pair(t, x509.Certificate{NotBefore: from, NotAfter: to, IPAddresses: []net.IP{net.ParseIP(ip)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
	conf := n.api.server.TLS.Clone()
	conf.Certificates[0] = pairOf(t, certPEM, keyPEM)
	s := httptest.NewUnstartedServer(n.api)
	s.TLS = conf
	s.StartTLS()
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	n.api.server.URL = s.URL
	n.api.kubeconfig(t, n.cfg.BootstrapKubeconfig, "abcdef.0123456789abcdef", n.api.ca)
}

// Bootstrap returns an error at once for problems of this machine that waiting cannot solve.
func TestBootstrapImpossible(t *testing.T) {
	t.Parallel()
	n := newNode(t, newAPI(t))
	n.cfg.BootstrapKubeconfig = n.dir + "/none"
	if err := identity.Bootstrap(soon(t), n.cfg); err == nil || !strings.Contains(err.Error(), "wherry token create") {
		t.Errorf("without a bootstrap kubeconfig: %v", err)
	}
	n.cfg.BootstrapKubeconfig = ""
	if err := identity.Bootstrap(soon(t), n.cfg); err == nil || !strings.Contains(err.Error(), "there is no --bootstrap-kubeconfig") {
		t.Errorf("without anything: %v", err)
	}
}

// If the node's certificate has expired, the node requests a new one with the token and replaces the old kubeconfig.
func TestBootstrapAfterExpiry(t *testing.T) {
	t.Parallel()
	_, n := joined(t)
	old := n.expire(t)
	if err := identity.Bootstrap(soon(t), n.cfg); err != nil {
		t.Fatal(err)
	}
	n.works(t)
	n.log.wait(t, 1, "its client certificate ended at")
	if now := readPair(t, n.cfg.CertDir+"/kubelet-client-current.pem"); now.SerialNumber.Cmp(old.SerialNumber) == 0 {
		t.Error("the certificate is the old one")
	}
}

// expire replaces the node's certificate by one that has expired.
func (n *node) expire(t *testing.T) *x509.Certificate {
	t.Helper()
	certPEM, keyPEM := n.api.ca.pair(t, x509.Certificate{
		Subject:   pkix.Name{CommonName: "system:node:n1", Organization: []string{"system:nodes"}},
		NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: time.Now().Add(-time.Hour),
	})
	file := n.cfg.CertDir + "/kubelet-client-current.pem"
	if err := os.WriteFile(file, append(certPEM, keyPEM...), 0o600); err != nil {
		t.Fatal(err)
	}
	return readPair(t, file)
}
