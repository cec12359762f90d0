package identity_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"strings"
	"testing"
	"time"

	"github.com/wherry-node/wherry/internal/base/kubeclient"
	"github.com/wherry-node/wherry/internal/edge/identity"
	certificates "k8s.io/api/certificates/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// hand returns a request for n1's identity with the bootstrap token.
func hand(t *testing.T, a *api, out *lines) identity.HandRequest {
	t.Helper()
	target := &rest.Config{Host: a.server.URL, BearerToken: a.token, TLSClientConfig: rest.TLSClientConfig{CAData: a.ca.pem}}
	return identity.HandRequest{
		Client: must(kubeclient.New(target))(t).CertificateSigningRequests(), Target: target,
		Subject: pkix.Name{CommonName: "system:node:n1", Organization: []string{"system:nodes"}},
		Signer:  certificates.KubeAPIServerClientKubeletSignerName, Usages: []string{"client auth"}, Expiration: time.Hour,
		Dir: t.TempDir(), Base: "n1", Out: out, Patience: 50 * time.Millisecond,
	}
}

// ByHand makes key and request, waits for approval, and writes the certificate and a kubeconfig that works.
func TestByHand(t *testing.T) {
	t.Parallel()
	a, out := newAPI(t), newLines()
	h := hand(t, a, out)
	done := make(chan error, 1)
	go func() { done <- identity.ByHand(soon(t), h) }()
	out.wait(t, 2, "Waiting for approval: kubectl certificate approve n1-")
	a.change(func(csr *certificates.CertificateSigningRequest) {
		if csr.Spec.ExpirationSeconds == nil || *csr.Spec.ExpirationSeconds != 3600 {
			t.Errorf("expiration %v, want 3600", csr.Spec.ExpirationSeconds)
		}
		a.sign(csr)
	})
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	out.wait(t, 1, "The API server knows you as system:node:n1")
	m := modes(t, h.Dir)
	if m["n1.key"] != 0o600 || m["n1.kubeconfig"] != 0o600 || m["n1.crt"] == 0 || m["n1.csr"] == 0 {
		t.Errorf("files %v", m)
	}
	cfg := must(clientcmd.LoadFromFile(h.Dir + "/n1.kubeconfig"))(t)
	if user := cfg.AuthInfos["n1"]; user.Token != "" || len(user.ClientKeyData) == 0 || cfg.Clusters["cluster"].Server != a.server.URL {
		t.Errorf("kubeconfig %+v", cfg)
	}
	// A second call finds the existing files and the request.
	if err := identity.ByHand(soon(t), h); err != nil {
		t.Fatal(err)
	}
	if len(a.created) != 1 {
		t.Errorf("made requests %v, want one", a.created)
	}
}

// If From is a request that openssl made, and its private key is not given, ByHand writes the certificate but no kubeconfig.
func TestByHandFrom(t *testing.T) {
	t.Parallel()
	a, out := newAPI(t), newLines()
	a.approve = true
	h := hand(t, a, out)
	key := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	der := must(x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: h.Subject}, key))(t)
	h.From, h.Object = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}), "testcsr"
	if err := identity.ByHand(soon(t), h); err != nil {
		t.Fatal(err)
	}
	out.wait(t, 1, "No kubeconfig written")
	if m := modes(t, h.Dir); len(m) != 1 || m["n1.crt"] == 0 {
		t.Errorf("files %v", m)
	}
	// A request for another key, but with the same name, is refused.
	h.From = nil
	if err := identity.ByHand(soon(t), h); err == nil || !strings.Contains(err.Error(), "there is another certificate request named testcsr") {
		t.Errorf("same name, other key: %v", err)
	}
}

func TestByHandTrouble(t *testing.T) {
	t.Parallel()
	a, out := newAPI(t), newLines()
	h := hand(t, a, out)
	done := make(chan error, 1)
	go func() { done <- identity.ByHand(soon(t), h) }()
	a.change(a.deny)
	if err := <-done; err == nil || !strings.Contains(err.Error(), "was refused (Denied: NotMine who is this?): kubectl delete csr n1-") {
		t.Errorf("denied: %v", err)
	}
	h.Expiration = time.Minute
	if err := identity.ByHand(soon(t), h); err == nil || !strings.Contains(err.Error(), "10m at least") {
		t.Errorf("too short: %v", err)
	}
	h.Expiration, h.From = 0, []byte("no request")
	if err := identity.ByHand(soon(t), h); err == nil || !strings.Contains(err.Error(), "BEGIN CERTIFICATE REQUEST") {
		t.Errorf("no request: %v", err)
	}
}
