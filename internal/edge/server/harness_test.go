package server_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	authnv1 "k8s.io/api/authentication/v1"
	authzv1 "k8s.io/api/authorization/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/edge/server"
)

// authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func newAuthority(t *testing.T, name string) *authority {
	t.Helper()
	a := &authority{}
	a.key = newKey(t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, a.key.Public(), a.key)
	must(t, err)
	a.cert, err = x509.ParseCertificate(der)
	must(t, err)
	a.pem = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return a
}

// issue signs a certificate for clients and servers on loopback.
func (a *authority) issue(t *testing.T, user string, groups ...string) tls.Certificate {
	t.Helper()
	key := newKey(t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: user, Organization: groups},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	must(t, err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	return key
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// tokens is a fake TokenReviewer: the token token-NAME belongs to the user NAME.
type tokens struct {
	mu    sync.Mutex
	calls int
	err   error
}

func (f *tokens) Create(_ context.Context, r *authnv1.TokenReview, _ metav1.CreateOptions) (*authnv1.TokenReview, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls++
	if f.err != nil {
		return nil, f.err
	}
	r = r.DeepCopy()
	if name, ok := strings.CutPrefix(r.Spec.Token, "token-"); ok {
		r.Status = authnv1.TokenReviewStatus{Authenticated: true, User: authnv1.UserInfo{Username: name, UID: "u-" + name}}
	} else {
		r.Status.Error = "[invalid bearer token]"
	}
	return r, nil
}

// access answers SubjectAccessReviews: a user has the rights that are listed for it, as "VERB SUBRESOURCE".
type access struct {
	mu    sync.Mutex
	rules map[string][]string
	asked []authzv1.SubjectAccessReviewSpec
	err   error
}

func (f *access) Create(_ context.Context, r *authzv1.SubjectAccessReview, _ metav1.CreateOptions) (*authzv1.SubjectAccessReview, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = append(f.asked, r.Spec)
	if f.err != nil {
		return nil, f.err
	}
	r = r.DeepCopy()
	at := r.Spec.ResourceAttributes
	for _, rule := range f.rules[r.Spec.User] {
		if rule == "*" || rule == at.Verb+" "+at.Subresource {
			r.Status.Allowed = true
		}
	}
	return r, nil
}

// node holds the pods of the fake node.
type node struct {
	mu       sync.Mutex
	pods     []*v1.Pod
	observed map[types.UID]*pod.Observed
}

func (n *node) List() []*v1.Pod {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.pods
}

func (n *node) Pod(namespace, name string) (*v1.Pod, bool) {
	for _, p := range n.List() {
		if p.Namespace == namespace && p.Name == name {
			return p, true
		}
	}
	return nil, false
}

func (n *node) Observed(uid types.UID) (*pod.Observed, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	o, ok := n.observed[uid]
	return o, ok
}

func (n *node) Settled() bool { return true }

func (n *node) observe(o pod.Observed) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.observed == nil {
		n.observed = map[types.UID]*pod.Observed{}
	}
	n.observed[o.Ref.UID] = &o
}

// bench is a server on a listener, with fakes of everything that the server needs.
type bench struct {
	t           *testing.T
	ca, other   *authority
	caFile      string
	tokens      *tokens
	access      *access
	node        *node
	server      *server.Server
	url         string
	healthURL   string
	readOnlyURL string
	stop        func() // ends Run and waits for it
}

// newBench starts a server. If change is not nil, it may change the configuration first.
func newBench(t *testing.T, change func(*server.Config, *bench)) *bench {
	t.Helper()
	b := &bench{
		t: t, ca: newAuthority(t, "ca"), other: newAuthority(t, "other"), tokens: &tokens{}, node: &node{},
		access: &access{rules: map[string][]string{"admin": {"*"}}},
	}
	b.caFile = filepath.Join(t.TempDir(), "ca.crt")
	must(t, os.WriteFile(b.caFile, b.ca.pem, 0o600))
	log := slog.New(slog.DiscardHandler)
	cas, err := server.LoadClientCAs(b.caFile, log)
	must(t, err)
	cfg := server.Config{
		NodeName:      "n1",
		Authenticator: server.NewAuthenticator(server.AuthnConfig{ClientCAs: cas, Tokens: b.tokens}),
		Authorizer:    server.NewAuthorizer(server.AuthzConfig{Access: b.access}),
		Pods:          b.node,
		Enable:        server.Enable{Debugging: true, SystemLog: true, Profiling: true, Flagz: true, Statusz: true},
		Log:           log,
	}
	if change != nil {
		change(&cfg, b)
	}
	b.server, err = server.New(cfg)
	must(t, err)
	serving := b.ca.issue(t, "n1")
	conf := server.TLSConfig{
		ClientCAs: cas, GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &serving, nil },
	}.New()
	l := server.Listeners{API: listen(t), TLS: conf, Health: listen(t), ReadOnly: listen(t)}
	b.url = "https://" + l.API.Addr().String()
	b.healthURL = "http://" + l.Health.Addr().String()
	b.readOnlyURL = "http://" + l.ReadOnly.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- b.server.Run(ctx, l) }()
	b.stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("Run: %v", err)
			}
		case <-time.After(2 * time.Minute):
			t.Error("Run has not ended")
		}
	})
	t.Cleanup(b.stop)
	return b
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	return l
}

// client returns a client. It uses no credentials if the certificate is nil and the token is empty.
func (b *bench) client(cert *tls.Certificate, token string) *http.Client {
	conf := &tls.Config{InsecureSkipVerify: true} //nolint:gosec // the tests do not check the server's certificate
	if cert != nil {
		// The client sends its certificate even if the server does not name its authority.
		conf.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return cert, nil }
	}
	tr := &http.Transport{TLSClientConfig: conf, ForceAttemptHTTP2: true}
	b.t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: bearer{tr, token}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

type bearer struct {
	next  http.RoundTripper
	token string
}

func (t bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	if t.token != "" {
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", "Bearer "+t.token)
	}
	return t.next.RoundTrip(r)
}

// rest returns the configuration of a client-go client for the user admin.
func (b *bench) rest() *rest.Config {
	return &rest.Config{Host: b.url, BearerToken: "token-admin", TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
}

// answer is the part of an HTTP answer that tests check.
type answer struct {
	status int
	body   string
	header http.Header
}

func (b *bench) do(c *http.Client, method, url string) answer {
	b.t.Helper()
	req, err := http.NewRequestWithContext(b.t.Context(), method, url, nil)
	must(b.t, err)
	return b.send(c, req)
}

func (b *bench) send(c *http.Client, req *http.Request) answer {
	b.t.Helper()
	resp, err := c.Do(req)
	must(b.t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	must(b.t, err)
	return answer{resp.StatusCode, string(body), resp.Header}
}

// get sends a GET as admin.
func (b *bench) get(path string) answer {
	b.t.Helper()
	return b.do(b.client(nil, "token-admin"), http.MethodGet, b.url+path)
}

// onePod returns a pod with a running container "main".
func onePod() (*v1.Pod, pod.Observed) {
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web", UID: "uid-1"},
		Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "main"}, {Name: "term", TTY: true, Stdin: true}}, InitContainers: []v1.Container{{Name: "init"}}},
	}
	return p, pod.Observed{
		Ref: pod.RefOf(p), Began: time.Now(),
		Sandboxes: []pod.Sandbox{{ID: "sb1", Ready: true}},
		Containers: []pod.Container{
			{ID: "c1", Name: "main", State: pod.StateRunning},
			{ID: "c2", Name: "term", State: pod.StateRunning},
			{ID: "c0", Name: "init", State: pod.StateExited},
		},
	}
}
