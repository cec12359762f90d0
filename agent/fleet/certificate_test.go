package fleet_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	certificates "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/wherry-node/wherry/agent/fleet"
	"github.com/wherry-node/wherry/internal/sim/simkube"
)

const (
	adminToken = "admin" // its user may do everything
	nodesToken = "nodes" // its user may do everything but bind roles

	csrPath = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
)

// authServer is an API server in memory that listens with TLS. It knows its users by tokens, bootstrap tokens and client certificates, lets
// nodes change only their own objects, and approves and signs the certificate requests of users to whom the roles are bound.
type authServer struct {
	t    *testing.T
	kube *simkube.Kube
	api  *kubernetes.Clientset
	url  string
	ca   *x509.Certificate
	key  *ecdsa.PrivateKey

	mu      sync.Mutex
	life    time.Duration              // of the certificates
	noOwn   bool                       // nodes may not request their next certificates themselves
	wrote   map[string]map[string]int  // changes by nodes, by user and resource
	askers  []string                   // who created certificate requests
	serials map[string]map[string]bool // of the certificates that each user has presented
	// unattended: nobody approves certificate requests.
	unattended bool
}

func newAuthServer(t *testing.T) *authServer {
	t.Helper()
	s := &authServer{t: t, kube: simkube.New(simkube.Config{}), life: time.Hour, wrote: map[string]map[string]int{}, serials: map[string]map[string]bool{}}
	var err error
	if s.api, err = kubernetes.NewForConfig(s.kube.RESTConfig("test")); err != nil {
		t.Fatal(err)
	}
	if s.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		t.Fatal(err)
	}
	s.ca = s.sign(s.key.Public(), &x509.Certificate{Subject: pkix.Name{CommonName: "ca"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
	own := s.sign(s.key.Public(), &x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
	pool := x509.NewCertPool()
	pool.AddCert(s.ca)
	server := httptest.NewUnstartedServer(s)
	server.EnableHTTP2 = true
	server.TLS = &tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{own.Raw}, PrivateKey: s.key}}, ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: pool,
	}
	server.StartTLS()
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	s.url = server.URL
	return s
}

// client returns the client configuration of a user with a token.
func (s *authServer) client(token string) *rest.Config {
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.ca.Raw})
	return &rest.Config{Host: s.url, BearerToken: token, TLSClientConfig: rest.TLSClientConfig{CAData: ca}}
}

func (s *authServer) sign(pub any, template *x509.Certificate) *x509.Certificate {
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<60))
	if err != nil {
		s.t.Fatal(err)
	}
	template.SerialNumber, template.NotBefore = serial, time.Now().Add(-5*time.Minute)
	if template.NotAfter.IsZero() {
		template.NotAfter = time.Now().Add(time.Hour)
	}
	parent := s.ca
	if parent == nil {
		parent = template
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, pub, s.key)
	if err != nil {
		s.t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		s.t.Fatal(err)
	}
	return cert
}

// user returns the user of a request and its groups; "": unknown.
func (s *authServer) user(r *http.Request) (string, []string) {
	if certs := r.TLS.PeerCertificates; len(certs) > 0 {
		name := certs[0].Subject.CommonName
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.serials[name] == nil {
			s.serials[name] = map[string]bool{}
		}
		s.serials[name][certs[0].SerialNumber.String()] = true
		return name, certs[0].Subject.Organization
	}
	token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	if token == adminToken || token == nodesToken {
		return token, nil
	}
	id, secret, _ := strings.Cut(token, ".")
	kept, err := s.api.CoreV1().Secrets("kube-system").Get(s.t.Context(), "bootstrap-token-"+id, metav1.GetOptions{})
	if err != nil || string(kept.Data["token-secret"]) != secret || string(kept.Data["usage-bootstrap-authentication"]) != "true" {
		return "", nil
	}
	if end, err := time.Parse(time.RFC3339, string(kept.Data["expiration"])); err != nil || time.Now().After(end) {
		return "", nil
	}
	return "system:bootstrap:" + id, []string{"system:bootstrappers", string(kept.Data["auth-extra-groups"])}
}

// bound reports whether a role is bound to one of the groups.
func (s *authServer) bound(role string, groups []string) bool {
	all, err := s.api.RbacV1().ClusterRoleBindings().List(s.t.Context(), metav1.ListOptions{})
	if err != nil {
		s.t.Error(err)
		return false
	}
	for i := range all.Items {
		b := &all.Items[i]
		if b.RoleRef.Name == role && b.Subjects[0].Kind == "Group" && slices.Contains(groups, b.Subjects[0].Name) {
			return true
		}
	}
	return false
}

// ServeHTTP answers a request as the API server, the Node authorizer and NodeRestriction of a real cluster do, as far as fleets need it.
func (s *authServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	user, groups := s.user(r)
	csrs := strings.HasPrefix(r.URL.Path, csrPath)
	node, isNode := strings.CutPrefix(user, "system:node:")
	if isNode && r.Method != http.MethodGet {
		s.note(user, r)
	}
	switch {
	case user == "":
		refuse(w, apierrors.NewUnauthorized("Unauthorized"))
	case user == nodesToken && strings.Contains(r.URL.Path, "/clusterrolebindings"),
		strings.HasPrefix(user, "system:bootstrap:") && !(csrs && r.Method != http.MethodDelete && s.bound("system:node-bootstrapper", groups)),
		isNode && !csrs && !ownObject(node, r):
		refuse(w, apierrors.NewForbidden(schema.GroupResource{Resource: "x"}, r.URL.Path, fmt.Errorf("user %s", user)))
	case strings.HasSuffix(r.URL.Path, "/subjectaccessreviews") && s.noOwn:
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, `{"kind":"SubjectAccessReview","apiVersion":"authorization.k8s.io/v1","status":{"allowed":false}}`)
	case csrs && r.Method == http.MethodPost:
		s.csr(w, r, user, groups)
	default:
		s.kube.ServeHTTP(w, r)
	}
}

// ownObject reports whether a node may send a request: reads, and changes of its own Node and lease, of pods, and events.
func ownObject(node string, r *http.Request) bool {
	path := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	for i, part := range path {
		if part == "nodes" || part == "leases" {
			return i+1 == len(path) && r.Method == http.MethodPost || r.Method == http.MethodGet || i+1 < len(path) && path[i+1] == node
		}
	}
	return true
}

// note counts a change by its user and resource.
func (s *authServer) note(user string, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.wrote[user] == nil {
		s.wrote[user] = map[string]int{}
	}
	for _, resource := range []string{"nodes", "leases", "pods", "certificatesigningrequests"} {
		if strings.Contains(r.URL.Path, "/"+resource) {
			s.wrote[user][resource]++
		}
	}
}

func refuse(w http.ResponseWriter, err *apierrors.StatusError) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(int(err.ErrStatus.Code))
	_ = json.NewEncoder(w).Encode(err.ErrStatus)
}

// csr stores a certificate request, and signs it if a binding says so.
func (s *authServer) csr(w http.ResponseWriter, r *http.Request, user string, groups []string) {
	csr := &certificates.CertificateSigningRequest{}
	body, err := io.ReadAll(r.Body)
	if err == nil {
		_, _, err = scheme.Codecs.UniversalDeserializer().Decode(body, nil, csr)
	}
	if err != nil {
		refuse(w, apierrors.NewBadRequest(err.Error()))
		return
	}
	csr.APIVersion, csr.Kind = "certificates.k8s.io/v1", "CertificateSigningRequest"
	csr.Spec.Username, csr.Spec.Groups = user, groups
	block, _ := pem.Decode(csr.Spec.Request)
	req, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		refuse(w, apierrors.NewBadRequest(err.Error()))
		return
	}
	s.mu.Lock()
	s.askers = append(s.askers, user)
	approved := !s.unattended && s.bound("system:certificates.k8s.io:certificatesigningrequests:nodeclient", groups) || !s.noOwn && user == req.Subject.CommonName && !s.unattended
	if approved {
		cert := s.sign(req.PublicKey, &x509.Certificate{Subject: req.Subject, NotAfter: time.Now().Add(s.life), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
		csr.Status.Certificate = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw})
	}
	s.mu.Unlock()
	if body, err = json.Marshal(csr); err != nil {
		s.t.Error(err)
	}
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	r.Header.Set("Content-Type", "application/json")
	s.kube.ServeHTTP(w, r)
}

// left returns what is in the cluster that lets nodes get certificates.
func (s *authServer) left() (out []string) {
	opts, ctx := metav1.ListOptions{}, context.Background()
	secrets, err := s.api.CoreV1().Secrets("kube-system").List(ctx, opts)
	if err != nil {
		s.t.Fatal(err)
	}
	for i := range secrets.Items {
		out = append(out, "secret "+secrets.Items[i].Name)
	}
	bindings, err := s.api.RbacV1().ClusterRoleBindings().List(ctx, opts)
	if err != nil {
		s.t.Fatal(err)
	}
	for i := range bindings.Items {
		out = append(out, "binding "+bindings.Items[i].Name)
	}
	csrs, err := s.api.CertificatesV1().CertificateSigningRequests().List(ctx, opts)
	if err != nil {
		s.t.Fatal(err)
	}
	for i := range csrs.Items {
		out = append(out, "csr "+csrs.Items[i].Name)
	}
	return out
}

// has reports what a condition under the lock says.
func (s *authServer) has(condition func() bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return condition()
}

// certified runs a fleet with certificates. end ends it and returns the error of Run.
func (s *authServer) certified(t *testing.T, cfg fleet.Config) (f *fleet.Fleet, end func() error) {
	t.Helper()
	cfg.Name, cfg.Identity = "f", fleet.Certificate
	if cfg.Client == nil {
		cfg.Client = s.client(adminToken)
	}
	f, err := fleet.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- f.Run(ctx) }()
	var once sync.Once
	var result error
	end = func() error {
		once.Do(func() {
			cancel()
			result = <-ended
		})
		return result
	}
	t.Cleanup(func() { _ = end() })
	return f, end
}

// await waits until a condition holds.
func await(t *testing.T, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if done() {
			return
		}
	}
	t.Fatal("not after a minute: " + what)
}

// Each node gets a certificate with the fleet's bootstrap token, and changes its objects with it, as a user of its own. Nodes that join later
// get one, too. A node whose machine crashed boots with its certificate. At the end nothing is left.
func TestCertificates(t *testing.T) {
	t.Parallel()
	s := newAuthServer(t)
	f, end := s.certified(t, fleet.Config{Groups: []fleet.Group{{Count: 3}}})
	ready := func(n int) func() bool {
		return func() bool { st := f.Status(); return st.Settled() && st.Nodes.Ready == n }
	}
	await(t, "3 nodes Ready", ready(3))
	if err := f.Scale("", 4); err != nil {
		t.Fatal(err)
	}
	await(t, "4 nodes Ready", ready(4))
	pods := s.api.CoreV1().Pods("default")
	_, err := pods.Create(t.Context(), &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: v1.PodSpec{NodeName: "f-node-4", Containers: []v1.Container{{Name: "c", Image: "i"}}}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	await(t, "the pod runs", func() bool { return f.Status().Pods.Running == 1 })
	for n := 1; n <= 4; n++ {
		user := fmt.Sprintf("system:node:f-node-%d", n)
		await(t, user+" changes its objects", func() bool {
			return s.has(func() bool {
				return s.wrote[user]["nodes"] > 0 && s.wrote[user]["leases"] > 0 && (s.wrote[user]["pods"] > 0) == (n == 4)
			})
		})
	}
	if s.has(func() bool {
		return len(s.askers) != 4 || slices.ContainsFunc(s.askers, func(u string) bool { return !strings.HasPrefix(u, "system:bootstrap:") })
	}) {
		t.Errorf("certificate requests by %v, want 4 with the bootstrap token", s.askers)
	}
	if left := s.left(); len(left) != 7 {
		t.Errorf("in the cluster: %v, want a token, two bindings, four requests", left)
	}
	if _, err := f.Inject(fleet.Selector{Names: []string{"f-node-2"}}, fleet.Fault{Kind: fleet.FaultCrash}); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Heal(fleet.Selector{Names: []string{"f-node-2"}}); err != nil {
		t.Fatal(err)
	}
	before := s.count("system:node:f-node-2", "nodes")
	await(t, "the node boots", func() bool { return s.count("system:node:f-node-2", "nodes") > before })
	if n := len(s.serialsOf("system:node:f-node-2")); n != 1 {
		t.Errorf("the node has had %d certificates, want 1", n)
	}
	if err := end(); err != nil {
		t.Error(err)
	}
	if left := s.left(); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

func (s *authServer) count(user, resource string) (n int) {
	s.has(func() bool { n = s.wrote[user][resource]; return true })
	return n
}

func (s *authServer) serialsOf(user string) (out []string) {
	s.has(func() bool {
		for serial := range s.serials[user] {
			out = append(out, serial)
		}
		return true
	})
	return out
}

// Nodes renew their certificates: with the certificate if the cluster approves that, and otherwise with the bootstrap token. Then they use
// the new certificate.
func TestCertificatesAreRenewed(t *testing.T) {
	t.Parallel()
	for _, noOwn := range []bool{false, true} {
		t.Run(fmt.Sprintf("noOwn=%v", noOwn), func(t *testing.T) {
			t.Parallel()
			s := newAuthServer(t)
			s.life, s.noOwn = 6*time.Second, noOwn
			const user = "system:node:f-node-1"
			_, end := s.certified(t, fleet.Config{Groups: []fleet.Group{{Count: 1}}})
			await(t, "the node uses a second certificate", func() bool { return len(s.serialsOf(user)) >= 2 })
			if !noOwn { // if the machine is slow, a certificate may expire, and only the next one is requested with a certificate
				await(t, "the node requests a certificate itself", func() bool { return s.has(func() bool { return slices.Contains(s.askers, user) }) })
			}
			if err := end(); err != nil {
				t.Error(err)
			}
			if noOwn && slices.Contains(s.askers, user) || strings.HasPrefix(s.askers[0], "system:node:") {
				t.Errorf("requests by %v", s.askers)
			}
			if left := s.left(); len(left) != 0 {
				t.Errorf("left: %v", left)
			}
		})
	}
}

// A node renews its certificate when its clock says so: the one whose clock is ahead does so early, and no other one.
func TestCertificatesFollowTheClock(t *testing.T) {
	t.Parallel()
	s := newAuthServer(t)
	f, end := s.certified(t, fleet.Config{Groups: []fleet.Group{{Count: 2}}})
	await(t, "2 nodes Ready", func() bool { st := f.Status(); return st.Settled() && st.Nodes.Ready == 2 })
	if _, err := f.Inject(only("f-node-1"), fleet.Fault{Kind: fleet.FaultClock, Clock: fleet.Skew{Offset: 58 * time.Minute}}); err != nil {
		t.Fatal(err)
	}
	// The next agent looks at the clock at once, and not only within 5 minutes.
	if _, err := f.Inject(fleet.Selector{All: true}, fleet.Fault{Kind: fleet.FaultAgent, For: 100 * time.Millisecond}); err != nil {
		t.Fatal(err)
	}
	await(t, "the node whose clock is ahead uses a second certificate", func() bool { return len(s.serialsOf("system:node:f-node-1")) == 2 })
	if n := len(s.serialsOf("system:node:f-node-2")); n != 1 {
		t.Errorf("the node whose clock is right has used %d certificates, want 1", n)
	}
	if err := end(); err != nil {
		t.Error(err)
	}
}

// If the user may not bind roles, Run fails before a node joins. The error says what is missing, and nothing is left.
func TestCertificatesWithoutRights(t *testing.T) {
	t.Parallel()
	s := newAuthServer(t)
	f, err := fleet.New(fleet.Config{Name: "f", Identity: fleet.Certificate, Client: s.client(nodesToken), Groups: []fleet.Group{{Count: 1}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "this user needs the rights of cluster-admin") {
		t.Errorf("run: %v", err)
	}
	if left := s.left(); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
	nodes, err := s.api.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil || len(nodes.Items) != 0 {
		t.Errorf("%d nodes, %v", len(nodes.Items), err)
	}
}

// While nobody approves its request, a node says that it waits for its certificate, and the fleet can end.
func TestCertificateIsAwaited(t *testing.T) {
	t.Parallel()
	s := newAuthServer(t)
	s.unattended = true
	f, end := s.certified(t, fleet.Config{Groups: []fleet.Group{{Count: 1}}})
	await(t, "the node says what it waits for", func() bool {
		nodes := f.Nodes()
		return len(nodes) == 1 && nodes[0].State == "joining" && strings.HasPrefix(nodes[0].Reason, "waits for its certificate") && len(s.left()) == 4
	})
	if err := end(); err != nil {
		t.Error(err)
	}
	if left := s.left(); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

// Clean removes what a fleet with certificates left that was killed. It says what a user may not look for.
func TestCleanCertificates(t *testing.T) {
	t.Parallel()
	s := newAuthServer(t)
	ctx, own := t.Context(), metav1.ObjectMeta{Name: "bootstrap-token-abcdef", Labels: map[string]string{fleet.LabelFleet: "f"}}
	_, err := s.api.CoreV1().Secrets("kube-system").Create(ctx, &v1.Secret{ObjectMeta: own, Type: v1.SecretTypeBootstrapToken}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	other := own
	other.Name = "other"
	if _, err := s.api.CoreV1().Secrets("kube-system").Create(ctx, &v1.Secret{ObjectMeta: other}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.api.CertificatesV1().CertificateSigningRequests().Create(ctx, &certificates.CertificateSigningRequest{ObjectMeta: own}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if done, err := fleet.Clean(ctx, s.client(adminToken), "g"); err != nil || done.Unchecked != "" || len(s.left()) != 3 {
		t.Errorf("clean another fleet: %+v, %v, left %v", done, err, s.left())
	}
	done, err := fleet.Clean(ctx, s.client(nodesToken), "f")
	if err != nil || done.Unchecked != "cluster role bindings" {
		t.Errorf("clean: %+v, %v", done, err)
	}
	if left := s.left(); len(left) != 1 || left[0] != "secret other" {
		t.Errorf("left: %v, want only the secret of another type", left)
	}
}
