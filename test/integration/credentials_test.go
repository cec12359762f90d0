package integration

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"path/filepath"
	"strings"
	"testing"
	"time"

	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// signingAuthority signs the certificates of a test.
type signingAuthority struct {
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
	pem  string
}

func newSigningAuthority(t *testing.T, name string) *signingAuthority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	cert := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, cert, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return &signingAuthority{key, cert, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))}
}

// issue answers a request with a certificate for a pod.
func (a *signingAuthority) issue(s *space, req *certificatesv1beta1.PodCertificateRequest) error {
	csr, err := x509.ParseCertificateRequest(req.Spec.StubPKCS10Request)
	if err != nil {
		return err
	}
	begin, end := time.Now().Add(-time.Minute).Truncate(time.Second).UTC(), time.Now().Add(90*time.Minute).Truncate(time.Second).UTC()
	leaf := &x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: req.Spec.PodName}, NotBefore: begin, NotAfter: end}
	der, err := x509.CreateCertificate(rand.Reader, leaf, a.cert, csr.PublicKey, a.key)
	if err != nil {
		return err
	}
	refresh := metav1.NewTime(time.Now().Add(45 * time.Minute).Truncate(time.Second))
	notBefore, notAfter := metav1.NewTime(begin), metav1.NewTime(end)
	req.Status = certificatesv1beta1.PodCertificateRequestStatus{
		CertificateChain: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		NotBefore:        &notBefore, NotAfter: &notAfter, BeginRefreshAt: &refresh,
		Conditions: []metav1.Condition{{
			Type: certificatesv1beta1.PodCertificateRequestConditionTypeIssued, Status: metav1.ConditionTrue, Reason: "Issued", LastTransitionTime: metav1.Now(),
		}},
	}
	_, err = s.client().CertificatesV1beta1().PodCertificateRequests(req.Namespace).UpdateStatus(context.Background(), req, metav1.UpdateOptions{})
	return err
}

// With a real API server, its Node authorizer and its admission, a pod gets a trust bundle and a certificate from a signer. When the
// ClusterTrustBundle changes, so does the file in the pod. After a restart the agent keeps the certificate.
func TestCredentialProjections(t *testing.T) {
	const gates = "ClusterTrustBundle=true,ClusterTrustBundleProjection=true,PodCertificateRequest=true"
	e := newPlane(t, use(t), "credentials", "--apiserver-arg", "feature-gates="+gates, "--apiserver-arg", "runtime-config=certificates.k8s.io/v1beta1=true")
	s := newSpaceOn(t, e)
	rt := filepath.Join(the.dir, "rt-credentials")
	the.addRuntime(rt)
	if err := e.runtimeUp(rt, the.subnet(rt)); err != nil {
		t.Fatal(err)
	}
	n, err := e.startNode(nodeConfig{Name: "credentials", Runtime: rt, Config: "featureGates: {ClusterTrustBundleProjection: true, PodCertificateRequest: true}\n"})
	if err != nil {
		t.Fatal(err)
	}
	if err := n.waitReady(patience); err != nil {
		t.Fatal(err)
	}
	ctx, roots := context.Background(), newSigningAuthority(t, "one")
	s.pod("web", credentialPod, onNode(n))
	s.event("web", "FailedMount", `clustertrustbundle "roots" not found`)
	s.event("web", "FailedMount", `waits for signer "example.com/s" to issue podcertificaterequest`)
	bundles := s.client().CertificatesV1beta1().ClusterTrustBundles()
	bundle, err := bundles.Create(ctx, &certificatesv1beta1.ClusterTrustBundle{
		ObjectMeta: metav1.ObjectMeta{Name: "roots"}, Spec: certificatesv1beta1.ClusterTrustBundleSpec{TrustBundle: roots.pem},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	requests := func() []certificatesv1beta1.PodCertificateRequest {
		t.Helper()
		list, err := s.client().CertificatesV1beta1().PodCertificateRequests(s.name).List(ctx, metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return list.Items
	}
	if all := requests(); len(all) != 1 {
		t.Fatalf("%d requests, want 1", len(all))
	} else if err := roots.issue(s, &all[0]); err != nil {
		t.Fatal(err)
	}
	s.ready("web")
	s.same("the trust bundle", s.sh("web", "cat /id/roots.pem"), roots.pem)
	s.same("what the credential bundle contains", s.sh("web", "grep BEGIN /id/id.pem"), "-----BEGIN PRIVATE KEY-----\n-----BEGIN CERTIFICATE-----\n")
	first := s.sh("web", "cat /id/id.pem")

	second := newSigningAuthority(t, "two")
	bundle.Spec.TrustBundle += second.pem
	if _, err := bundles.Update(ctx, bundle, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.eventually("the second root in the pod", func() error {
		if text := s.sh("web", "cat /id/roots.pem"); !strings.Contains(text, strings.TrimSpace(second.pem)) {
			return errors.New(text)
		}
		return nil
	})

	n.kill()
	if err := n.restart(); err != nil {
		t.Fatal(err)
	}
	if err := n.waitReady(patience); err != nil {
		t.Fatal(err)
	}
	s.pod("next", strings.ReplaceAll(credentialPod, "podCertificate: {", "podCertificate: {userAnnotations: {example.com/a: b}, "), onNode(n))
	s.event("next", "FailedMount", `waits for signer "example.com/s"`) // so the restarted agent already sets up volumes
	s.same("the certificate after a new start of the agent", s.sh("web", "cat /id/id.pem"), first)
	if text := fmt.Sprint(len(requests())); text != "2" {
		t.Errorf("%s requests, want one for each pod", text)
	}
}

const credentialPod = `
volumes:
- name: id
  projected:
    sources:
    - clusterTrustBundle: {name: roots, path: roots.pem}
    - podCertificate: {signerName: example.com/s, keyType: ECDSAP256, credentialBundlePath: id.pem}
containers: [{name: main, image: $busybox, command: [sleep, "1000"], volumeMounts: [{name: id, mountPath: /id}]}]`
