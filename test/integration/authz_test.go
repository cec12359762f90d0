package integration

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// nodeEndpoints has requests to every endpoint of the node's API. subresource is the subresource of nodes to which a client needs access
// for the request.
var nodeEndpoints = []struct{ method, path, subresource string }{
	{"GET", "/", "proxy"},
	{"GET", "/no/such/path", "proxy"},
	{"GET", "/healthz", "healthz"},
	{"GET", "/healthz/syncloop", "healthz"},
	{"GET", "/configz", "configz"},
	{"GET", "/flagz", "configz"},
	{"GET", "/statusz", "statusz"},
	{"GET", "/pods", "pods"},
	{"GET", "/runningpods/", "pods"},
	{"GET", "/metrics", "metrics"},
	{"GET", "/metrics/cadvisor", "metrics"},
	{"GET", "/metrics/resource", "metrics"},
	{"GET", "/metrics/probes", "metrics"},
	{"GET", "/stats/summary", "stats"},
	{"GET", "/logs/", "log"},
	{"GET", "/explain", "proxy"},
	{"GET", "/explain/default/none", "proxy"},
	{"GET", "/containerLogs/default/none/main", "proxy"},
	{"POST", "/exec/default/none/main?command=ls&output=1", "proxy"},
	{"GET", "/exec/default/none/main?command=ls&output=1", "proxy"},
	{"POST", "/attach/default/none/main?output=1", "proxy"},
	{"POST", "/portForward/default/none", "proxy"},
	{"POST", "/run/default/none/main?cmd=ls", "proxy"},
	{"POST", "/checkpoint/default/none/main", "checkpoint"},
	{"GET", "/debug/pprof/", "proxy"},
	{"PUT", "/debug/flags/v", "proxy"},
	{"DELETE", "/pods", "pods"},
}

// authority signs client certificates, either as the cluster's CA or as a CA that the cluster does not know.
type authority struct {
	cert *x509.Certificate
	key  crypto.Signer
}

func ownAuthority(t *testing.T) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	cert := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "kubernetes"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	return &authority{cert, key}
}

func clusterAuthority(t *testing.T, e *env) *authority {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(filepath.Join(e.dir, "cp", "pki", "kubernetes-ca.crt"), filepath.Join(e.dir, "cp", "pki", "kubernetes-ca.key"))
	if err != nil {
		t.Fatal(err)
	}
	return &authority{pair.Leaf, pair.PrivateKey.(crypto.Signer)}
}

// issueRoot returns the certificate of the CA itself, in DER.
func (a *authority) issueRoot(t *testing.T) []byte {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, a.cert, a.cert, a.key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

// base64PEM returns a certificate (in DER) as base64 of PEM, as kubeconfigs contain it.
func base64PEM(der []byte) string {
	return base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

// issue makes a client certificate for the user and the group. Its validity begins an hour ago and lasts for the duration life.
func (a *authority) issue(t *testing.T, user, group string, life time.Duration, use x509.ExtKeyUsage) *tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	cert := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: user, Organization: []string{group}},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(life), KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{use}}
	der, err := x509.CreateCertificate(rand.Reader, cert, a.cert, key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// caller is a client of the node's API with certain credentials, which the field what describes.
type caller struct {
	what  string
	cert  *tls.Certificate
	token string
	basic string
}

func (c caller) do(method, url string) (int, string, error) {
	req, err := http.NewRequest(method, url, nil)
	if err != nil {
		return 0, "", err
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	if c.basic != "" {
		req.SetBasicAuth("admin", c.basic)
	}
	config := &tls.Config{InsecureSkipVerify: true}
	if c.cert != nil {
		// The client sends its certificate even if the server does not name the certificate's CA.
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return c.cert, nil }
	}
	transport := &http.Transport{TLSClientConfig: config}
	defer transport.CloseIdleConnections()
	return do(&http.Client{Timeout: 30 * time.Second, Transport: transport}, req)
}

// On every endpoint of a real node, a client without credentials gets 401, an authenticated client without the right gets 403, and a client
// with the right gets an answer.
func TestNodeAccess(t *testing.T) {
	s := newSpace(t)
	base := fmt.Sprintf("https://127.0.0.1:%d", s.env.node.port)
	cluster, other := clusterAuthority(t, s.env), ownAuthority(t)
	token := func(account string, args ...string) string {
		s.Helper()
		return strings.TrimSpace(s.kubectl(append([]string{"create", "token", account}, args...)...))
	}
	for _, account := range []string{"nobody", "reader", "admin", "gone"} {
		s.kubectl("create", "serviceaccount", account)
	}
	gone := token("gone")
	s.kubectl("delete", "serviceaccount", "gone")
	s.kubectl("create", "clusterrole", s.name, "--verb=get", "--resource=nodes/metrics,nodes/stats")
	s.kubectl("create", "clusterrolebinding", s.name+"-reader", "--clusterrole="+s.name, "--serviceaccount="+s.name+":reader")
	s.kubectl("create", "clusterrolebinding", s.name+"-admin", "--clusterrole=system:kubelet-api-admin", "--serviceaccount="+s.name+":admin", "--user="+s.name+"-admin")
	t.Cleanup(func() {
		s.kubectl("delete", "clusterrolebinding", s.name+"-reader", s.name+"-admin")
		s.kubectl("delete", "clusterrole", s.name)
	})
	nodeCert, err := tls.LoadX509KeyPair(filepath.Join(s.env.node.dir, "pki", "kubelet-client-current.pem"), filepath.Join(s.env.node.dir, "pki", "kubelet-client-current.pem"))
	if err != nil {
		t.Fatal(err)
	}
	every := func(c caller, want int) {
		t.Helper()
		for _, e := range nodeEndpoints {
			status, body, err := c.do(e.method, base+e.path)
			if err != nil || status != want {
				t.Errorf("%s %s with %s: %d %.200q %v, want %d", e.method, e.path, c.what, status, body, err, want)
			}
		}
	}
	for _, c := range []caller{
		{what: "nothing"},
		{what: "a token of nobody's", token: "abc.def.ghi"},
		{what: "a password", basic: "secret"},
		{what: "a token for another audience", token: token("admin", "--audience=elsewhere")},
		{what: "a token of an account that is gone", token: gone},
		{what: "an administrator's certificate of another CA", cert: other.issue(t, "admin", "system:masters", time.Hour, x509.ExtKeyUsageClientAuth)},
		{what: "an administrator's certificate that has ended", cert: cluster.issue(t, "admin", "system:masters", -time.Minute, x509.ExtKeyUsageClientAuth)},
		{what: "a server's certificate", cert: cluster.issue(t, "admin", "system:masters", time.Hour, x509.ExtKeyUsageServerAuth)},
	} {
		every(c, http.StatusUnauthorized)
	}
	for _, c := range []caller{
		{what: "a token without rights", token: token("nobody")},
		{what: "a certificate without rights", cert: cluster.issue(t, "jane", "devs", time.Hour, x509.ExtKeyUsageClientAuth)},
		{what: "the node's own certificate", cert: &nodeCert},
	} {
		every(c, http.StatusForbidden)
	}
	// A client that may use one subresource of nodes gets an answer from its endpoints, and 403 from all others.
	for _, c := range []caller{{what: "metrics and stats", token: token("reader")}} {
		for _, e := range nodeEndpoints {
			may := e.method == "GET" && (e.subresource == "metrics" || e.subresource == "stats")
			status, body, err := c.do(e.method, base+e.path)
			if err != nil || may != (status != http.StatusForbidden && status != http.StatusUnauthorized) {
				t.Errorf("%s %s with the right to %s: %d %.200q %v", e.method, e.path, c.what, status, body, err)
			}
		}
	}
	for _, c := range []caller{
		{what: "an administrator's token", token: token("admin")},
		{what: "an administrator's certificate", cert: cluster.issue(t, s.name+"-admin", "x", time.Hour, x509.ExtKeyUsageClientAuth)},
	} {
		for _, e := range nodeEndpoints {
			if e.subresource == "configz" || e.subresource == "statusz" || e.subresource == "checkpoint" || e.subresource == "healthz" || e.subresource == "pods" {
				continue // in some versions of Kubernetes the role of node administrators lacks these subresources
			}
			status, body, err := c.do(e.method, base+e.path)
			if err != nil || status == http.StatusForbidden || status == http.StatusUnauthorized {
				t.Errorf("%s %s with %s: %d %.200q %v", e.method, e.path, c.what, status, body, err)
			}
		}
		if status, body, err := c.do("GET", base+"/pods"); err != nil || status != http.StatusOK || !strings.Contains(body, `"kind":"PodList"`) {
			t.Errorf("pods with %s: %d %.200q %v", c.what, status, body, err)
		}
	}
}
