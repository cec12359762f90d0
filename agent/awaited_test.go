package agent_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	certificates "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/wherry-node/wherry/agent"
	"github.com/wherry-node/wherry/agent/simulated"
	"github.com/wherry-node/wherry/internal/sim/simkube"
)

// approver is an API server with TLS that answers a bootstrap token's requests for certificates, and whatever a node with a certificate asks.
type approver struct {
	t      *testing.T
	kube   *simkube.Kube
	admin  *kubernetes.Clientset
	server *httptest.Server
	ca     *x509.Certificate
	key    *ecdsa.PrivateKey
}

func newApprover(t *testing.T) *approver {
	a := &approver{t: t, kube: simkube.New(simkube.Config{})}
	var err error
	if a.admin, err = kubernetes.NewForConfig(a.kube.RESTConfig("admin")); err != nil {
		t.Fatal(err)
	}
	if a.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		t.Fatal(err)
	}
	a.ca = a.sign(a.key.Public(), &x509.Certificate{Subject: pkix.Name{CommonName: "ca"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
	pool := x509.NewCertPool()
	pool.AddCert(a.ca)
	a.server = httptest.NewUnstartedServer(a)
	a.server.TLS = &tls.Config{ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: pool}
	a.server.StartTLS()
	t.Cleanup(func() {
		a.server.CloseClientConnections()
		a.server.Close()
	})
	return a
}

func (a *approver) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	token := r.Header.Get("Authorization") == "Bearer boot.strap"
	csrs := strings.HasPrefix(r.URL.Path, "/apis/certificates.k8s.io/v1/certificatesigningrequests")
	if len(r.TLS.PeerCertificates) == 0 && (!token || !csrs) {
		a.t.Errorf("the node without an identity asked for %s", r.URL)
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	a.kube.ServeHTTP(w, r)
}

func (a *approver) sign(pub any, template *x509.Certificate) *x509.Certificate {
	template.SerialNumber, template.NotBefore, template.NotAfter = big.NewInt(time.Now().UnixNano()), time.Now().Add(-time.Minute), time.Now().Add(time.Hour)
	parent := a.ca
	if parent == nil {
		parent = template
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, pub, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return cert
}

// approve signs the certificate request of the node; false: there is none yet.
func (a *approver) approve(ctx context.Context) bool {
	api := a.admin.CertificatesV1().CertificateSigningRequests()
	list, err := api.List(ctx, metav1.ListOptions{})
	if err != nil {
		a.t.Fatal(err)
	}
	if len(list.Items) == 0 {
		return false
	}
	csr := &list.Items[0]
	block, _ := pem.Decode(csr.Spec.Request)
	req, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		a.t.Fatal(err)
	}
	csr.Status.Conditions = []certificates.CertificateSigningRequestCondition{{Type: certificates.CertificateApproved, Status: "True"}}
	csr.Status.Certificate = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.sign(req.PublicKey, &x509.Certificate{
		Subject: req.Subject, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}).Raw})
	if _, err := api.UpdateStatus(ctx, csr, metav1.UpdateOptions{}); err != nil {
		a.t.Fatal(err)
	}
	return true
}

// bootstrapKubeconfig writes a kubeconfig with the bootstrap token.
func (a *approver) bootstrapKubeconfig(file string) {
	ca := filepath.Join(filepath.Dir(file), "ca.crt")
	text := fmt.Sprintf("apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: %q, certificate-authority: %q}}]\n"+
		"users: [{name: u, user: {token: boot.strap}}]\ncontexts: [{name: x, context: {cluster: c, user: u}}]\ncurrent-context: x\n", a.server.URL, ca)
	for name, data := range map[string][]byte{
		file: []byte(text), ca: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.server.Certificate().Raw}),
	} {
		if err := os.WriteFile(name, data, 0o600); err != nil {
			a.t.Fatal(err)
		}
	}
}

// While a new node waits until somebody approves its certificate request, it serves its health endpoint and runs its static pods. It sends no other
// request to the API server. After the approval it registers and shows the static pods in the API; their containers run on.
func TestNodeRunsStaticPodsBeforeItHasACertificate(t *testing.T) {
	t.Parallel()
	api := newApprover(t)
	node := simulated.New(simulated.Config{})
	defer node.Close()
	dir, manifests := t.TempDir(), t.TempDir()
	manifest := "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {containers: [{name: main, image: \"registry.example/web:1\"}]}\n"
	if err := os.WriteFile(filepath.Join(manifests, "web.yaml"), []byte(manifest), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg := agent.Config{
		NodeName: "new", Kubelet: agent.DefaultConfiguration(), Kubeconfig: filepath.Join(dir, "kubelet.conf"), BootstrapKubeconfig: filepath.Join(dir, "bootstrap.conf"),
		CertDir: filepath.Join(dir, "pki"),
	}
	api.bootstrapKubeconfig(cfg.BootstrapKubeconfig)
	cfg.Kubelet.StaticPodPath, cfg.Kubelet.RotateCertificates = manifests, true
	health, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	deps := node.Deps()
	deps.Log, deps.Health = slog.New(slog.DiscardHandler), health
	a, err := agent.New(cfg, deps)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	until := func(what string, done func() bool) {
		t.Helper()
		for !done() {
			select {
			case err := <-ended:
				t.Fatalf("%s: the agent ended: %v", what, err)
			case <-time.After(20 * time.Millisecond):
			}
		}
	}
	began := time.Now()
	until("the static pod runs", func() bool { return len(node.Running()) == 1 })
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("the static pod waited %s, as pods wait that need the Node", took)
	}
	running := node.Running()[0].ID
	resp, err := http.Get("http://" + health.Addr().String() + "/healthz")
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Errorf("healthz: %s", resp.Status)
	}
	if s := a.Summary(); s != "node new, waits for its client certificate, pods: 1" {
		t.Errorf("summary: %s", s)
	}
	if api.kube.Node("new") != nil {
		t.Error("the node registered without an identity")
	}
	until("the request is made and approved", func() bool { return api.approve(ctx) })
	until("the node registers", func() bool { return api.kube.Node("new") != nil })
	until("the API shows the static pod", func() bool {
		p := api.kube.Pod("default", "web-new")
		return p != nil && len(p.Status.ContainerStatuses) == 1 && p.Status.ContainerStatuses[0].State.Running != nil
	})
	if now := node.Running(); len(now) != 1 || now[0].ID != running {
		t.Errorf("containers that run: %v, want only %s", now, running)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("the agent ended with %v", err)
	}
}
