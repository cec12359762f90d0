package identity_test

import (
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
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	certificates "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// authority signs certificates in tests.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	key := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test CA"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der := must(x509.CreateCertificate(rand.Reader, template, template, key.Public(), key))(t)
	return &authority{must(x509.ParseCertificate(der))(t), key, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}
}

func must[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// sign signs a certificate for a public key. template sets the fields that differ from the defaults.
func (a *authority) sign(t testing.TB, pub any, template x509.Certificate) []byte {
	t.Helper()
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<60))
	if err != nil {
		t.Fatal(err)
	}
	template.SerialNumber = serial
	if template.NotBefore.IsZero() {
		template.NotBefore = time.Now().Add(-time.Minute)
	}
	if template.NotAfter.IsZero() {
		template.NotAfter = time.Now().Add(time.Hour)
	}
	der, err := x509.CreateCertificate(rand.Reader, &template, a.cert, pub, a.key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// pair signs a certificate for a new key.
func (a *authority) pair(t testing.TB, template x509.Certificate) (certPEM, keyPEM []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return a.sign(t, key.Public(), template), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})
}

// api is the part of an API server that identities need: certificate requests, with a CA that really signs, over TLS.
type api struct {
	t      *testing.T
	ca     *authority
	server *httptest.Server

	mu      sync.Mutex
	token   string        // the valid bootstrap token
	approve bool          // requests are approved as they come
	life    time.Duration // lifetime of certificates, counted from now
	age     time.Duration // how far certificates are dated back
	version int
	csrs    map[string]*certificates.CertificateSigningRequest
	created []string
	users   []string // the users who created certificate requests, in the order of creation
	serials []string // serial numbers of the client certificates that were used
	changed chan struct{}
	slow    chan struct{} // gets a signal when a request for /slow begins and when it may end
}

func newAPI(t *testing.T) *api {
	t.Helper()
	a := &api{t: t, ca: newAuthority(t), token: "abcdef.0123456789abcdef", life: time.Hour,
		csrs: map[string]*certificates.CertificateSigningRequest{}, changed: make(chan struct{}), slow: make(chan struct{})}
	certPEM, keyPEM := a.ca.pair(t, x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
	pool := x509.NewCertPool()
	pool.AddCert(a.ca.cert)
	a.server = httptest.NewUnstartedServer(a)
	a.server.TLS = &tls.Config{Certificates: []tls.Certificate{must(tls.X509KeyPair(certPEM, keyPEM))(t)},
		ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: pool}
	a.server.Config.ErrorLog = nil
	a.server.StartTLS()
	t.Cleanup(func() { a.server.CloseClientConnections(); a.server.Close() })
	return a
}

// kubeconfig writes a kubeconfig with a token, which trusts the server of ca.
func (a *api) kubeconfig(t *testing.T, file, token string, ca *authority) {
	t.Helper()
	c := clientcmdapi.NewConfig()
	c.Clusters["c"] = &clientcmdapi.Cluster{Server: a.server.URL, CertificateAuthorityData: ca.pem}
	c.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: token}
	c.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	c.CurrentContext = "x"
	if err := clientcmd.WriteToFile(*c, file); err != nil {
		t.Fatal(err)
	}
}

// user returns the user of a request; empty: unknown.
func (a *api) user(r *http.Request) string {
	if certs := r.TLS.PeerCertificates; len(certs) > 0 {
		serial := certs[0].SerialNumber.String()
		if !slices.Contains(a.serials, serial) {
			a.serials = append(a.serials, serial)
		}
		return certs[0].Subject.CommonName
	}
	if r.Header.Get("Authorization") == "Bearer "+a.token {
		return "system:bootstrap:abcdef"
	}
	return ""
}

func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/slow" {
		a.slow <- struct{}{} // the test learns that the request has come
		a.slow <- struct{}{} // the test lets the request end
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	who := a.user(r)
	const path = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
	res := schema.GroupResource{Group: "certificates.k8s.io", Resource: "certificatesigningrequests"}
	switch name := strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, path), "/"); {
	case who == "":
		fail(w, apierrors.NewUnauthorized("Unauthorized"))
	case strings.HasSuffix(r.URL.Path, "/selfsubjectreviews"):
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview","status":{"userInfo":{"username":%q,"groups":["system:authenticated"]}}}`, who)
	case r.Method == http.MethodPost:
		csr := &certificates.CertificateSigningRequest{}
		body, err := io.ReadAll(r.Body)
		if err == nil { // JSON or protobuf, as the client chose
			_, _, err = scheme.Codecs.UniversalDeserializer().Decode(body, nil, csr)
		}
		if err != nil {
			fail(w, apierrors.NewBadRequest(err.Error()))
			return
		}
		if a.csrs[csr.Name] != nil {
			fail(w, apierrors.NewAlreadyExists(res, csr.Name))
			return
		}
		a.csrs[csr.Name] = csr
		a.created, a.users = append(a.created, csr.Name), append(a.users, who)
		if a.approve {
			a.sign(csr)
		}
		a.bump(csr)
		reply(w, csr)
	case r.URL.Query().Get("watch") != "":
		a.watch(w, r)
	case a.csrs[name] == nil:
		fail(w, apierrors.NewNotFound(res, name))
	default:
		reply(w, a.csrs[name])
	}
}

// bump gives an object a new version and wakes the watchers.
func (a *api) bump(csr *certificates.CertificateSigningRequest) {
	a.version++
	csr.ResourceVersion = strconv.Itoa(a.version)
	close(a.changed)
	a.changed = make(chan struct{})
}

func (a *api) watch(w http.ResponseWriter, r *http.Request) {
	name := strings.TrimPrefix(r.URL.Query().Get("fieldSelector"), "metadata.name=")
	from, _ := strconv.Atoi(r.URL.Query().Get("resourceVersion"))
	w.Header().Set("Content-Type", "application/json")
	w.(http.Flusher).Flush()
	for {
		if csr := a.csrs[name]; csr == nil {
			return
		} else if v, _ := strconv.Atoi(csr.ResourceVersion); v > from {
			body, _ := json.Marshal(csr)
			fmt.Fprintf(w, `{"type":"MODIFIED","object":%s}`+"\n", body)
			return
		}
		changed := a.changed
		a.mu.Unlock()
		select {
		case <-changed:
		case <-r.Context().Done():
		}
		a.mu.Lock()
		if r.Context().Err() != nil {
			return
		}
	}
}

// sign approves a request and issues the certificate.
func (a *api) sign(csr *certificates.CertificateSigningRequest) {
	block, _ := pem.Decode(csr.Spec.Request)
	req, err := x509.ParseCertificateRequest(block.Bytes)
	if err == nil {
		err = req.CheckSignature()
	}
	if err != nil {
		a.t.Errorf("request %s: %v", csr.Name, err)
		return
	}
	usage := x509.ExtKeyUsageClientAuth
	if csr.Spec.SignerName == certificates.KubeletServingSignerName {
		usage = x509.ExtKeyUsageServerAuth
	}
	csr.Status.Conditions = append(csr.Status.Conditions, certificates.CertificateSigningRequestCondition{Type: certificates.CertificateApproved, Status: v1.ConditionTrue})
	csr.Status.Certificate = a.ca.sign(a.t, req.PublicKey, x509.Certificate{
		Subject: req.Subject, DNSNames: req.DNSNames, IPAddresses: req.IPAddresses, ExtKeyUsage: []x509.ExtKeyUsage{usage},
		NotBefore: time.Now().Add(-time.Second - a.age), NotAfter: time.Now().Add(a.life),
	})
}

// change waits until there is a certificate request, calls do with it, and returns its name. The test must have only one request.
func (a *api) change(do func(*certificates.CertificateSigningRequest)) string {
	a.t.Helper()
	deadline := time.Now().Add(2 * time.Minute)
	for {
		a.mu.Lock()
		changed := a.changed
		for name, csr := range a.csrs {
			do(csr)
			a.bump(csr)
			a.mu.Unlock()
			return name
		}
		a.mu.Unlock()
		select {
		case <-changed:
		case <-time.After(time.Until(deadline)):
			a.t.Fatal("nobody made a certificate request")
		}
	}
}

func (a *api) deny(csr *certificates.CertificateSigningRequest) {
	csr.Status.Conditions = []certificates.CertificateSigningRequestCondition{{Type: certificates.CertificateDenied, Status: v1.ConditionTrue, Reason: "NotMine", Message: "who is this?"}}
}

func (a *api) remove(csr *certificates.CertificateSigningRequest) { delete(a.csrs, csr.Name) }

// seen returns the serial numbers of the certificates that clients used.
func (a *api) seen() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.serials)
}

func (a *api) set(do func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	do()
}

func reply(w http.ResponseWriter, csr *certificates.CertificateSigningRequest) {
	csr.TypeMeta = metav1.TypeMeta{APIVersion: "certificates.k8s.io/v1", Kind: "CertificateSigningRequest"}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(csr)
}

func fail(w http.ResponseWriter, err *apierrors.StatusError) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(int(err.ErrStatus.Code))
	_ = json.NewEncoder(w).Encode(err.ErrStatus)
}

// lines collects log lines and wakes a test that waits for new ones.
type lines struct {
	mu  sync.Mutex
	all strings.Builder
	new chan struct{}
}

func newLines() *lines { return &lines{new: make(chan struct{}, 1)} }

var _ io.Writer = (*lines)(nil)

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	l.all.Write(p)
	l.mu.Unlock()
	select {
	case l.new <- struct{}{}:
	default:
	}
	return len(p), nil
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.String()
}

// wait returns when the log contains the text n times.
func (l *lines) wait(t *testing.T, n int, text string) {
	t.Helper()
	late := time.After(2 * time.Minute)
	for strings.Count(l.String(), text) < n {
		select {
		case <-l.new:
		case <-late:
			t.Fatalf("log lacks %d × %q:\n%s", n, text, l)
		}
	}
}

func readPair(t *testing.T, file string) *x509.Certificate {
	t.Helper()
	pair := must(tls.LoadX509KeyPair(file, file))(t)
	return must(x509.ParseCertificate(pair.Certificate[0]))(t)
}

func modes(t *testing.T, dir string) map[string]os.FileMode {
	t.Helper()
	found := map[string]os.FileMode{}
	for _, e := range must(os.ReadDir(dir))(t) {
		info := must(os.Stat(filepath.Join(dir, e.Name())))(t)
		found[e.Name()] = info.Mode().Perm()
	}
	return found
}
