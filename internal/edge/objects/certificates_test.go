package objects

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"

	"github.com/wherry-node/wherry/internal/core/nodeclock"
	"github.com/wherry-node/wherry/internal/core/pod"
)

// aheadBy is a node's clock that is ahead.
type aheadBy time.Duration

func (a aheadBy) Shows(t time.Time) time.Time       { return t.Add(time.Duration(a)) }
func (a aheadBy) Instant(shown time.Time) time.Time { return shown.Add(-time.Duration(a)) }

// signer is a certificate authority of a test.
type signer struct {
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
}

func newSigner(t *testing.T) *signer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return &signer{key, &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, IsCA: true, BasicConstraintsValid: true}}
}

// sign returns the chain for a request, with text between the blocks: the leaf, and the authority as an intermediate.
func (s *signer) sign(t *testing.T, csr []byte, life time.Duration) string {
	t.Helper()
	req, err := x509.ParseCertificateRequest(csr)
	if err != nil || req.CheckSignature() != nil {
		t.Fatalf("the request is not signed with its key: %v", err)
	}
	leaf := &x509.Certificate{SerialNumber: big.NewInt(2), NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(life)}
	der, err := x509.CreateCertificate(rand.Reader, leaf, s.cert, req.PublicKey, s.key)
	if err != nil {
		t.Fatal(err)
	}
	return "leaf\n" + string(pem.EncodeToMemory(&pem.Block{Type: typeCertificate, Headers: map[string]string{"a": "b"}, Bytes: der})) + "and more\n" + plain("intermediate")
}

// certWorld is a world (a fake API server with an Objects that reads from it) whose API server also names and stores
// PodCertificateRequests.
type certWorld struct {
	*world
	t      *testing.T
	signer *signer
}

func certifying(keyType string) v1.VolumeProjection {
	return v1.VolumeProjection{PodCertificate: &v1.PodCertificateProjection{
		SignerName: "example.com/s", KeyType: keyType, CredentialBundlePath: "bundle", MaxExpirationSeconds: ptr(int32(3600)), UserAnnotations: map[string]string{"example.com/a": "b"},
	}}
}

func runCertificates(t *testing.T, f func(t *testing.T, w *certWorld)) {
	t.Helper()
	cfg := watchOnly
	cfg.Node = func() (string, types.UID) { return "node", "node-uid" }
	run(t, cfg, func(t *testing.T, w *world) {
		named := 0
		w.client.PrependReactor("create", "podcertificaterequests", func(a clienttesting.Action) (bool, runtime.Object, error) {
			named++
			a.(clienttesting.CreateAction).GetObject().(*certificatesv1beta1.PodCertificateRequest).Name = fmt.Sprintf("req-%d", named)
			return false, nil, nil
		})
		f(t, &certWorld{w, t, newSigner(t)})
	}, &v1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "robot", UID: "sa-uid"}})
}

// request returns the stored request of this name.
func (w *certWorld) request(name string) *certificatesv1beta1.PodCertificateRequest {
	w.t.Helper()
	req, err := w.client.CertificatesV1beta1().PodCertificateRequests("ns").Get(w.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return req
}

func (w *certWorld) answer(req *certificatesv1beta1.PodCertificateRequest, condition, reason, message string) {
	w.t.Helper()
	req.Status.Conditions = []metav1.Condition{{Type: condition, Status: metav1.ConditionTrue, Reason: reason, Message: message}}
	if _, err := w.client.CertificatesV1beta1().PodCertificateRequests("ns").UpdateStatus(w.t.Context(), req, metav1.UpdateOptions{}); err != nil {
		w.t.Fatal(err)
	}
	synctest.Wait()
}

// issue answers a request with a certificate that is valid for one hour and due for renewal after half an hour.
func (w *certWorld) issue(name string) {
	w.t.Helper()
	req := w.request(name)
	req.Status.CertificateChain = w.signer.sign(w.t, req.Spec.StubPKCS10Request, time.Hour)
	req.Status.BeginRefreshAt, req.Status.NotAfter = ptr(metav1.NewTime(time.Now().Add(30*time.Minute))), ptr(metav1.NewTime(time.Now().Add(time.Hour)))
	w.answer(req, certificatesv1beta1.PodCertificateRequestConditionTypeIssued, "Issued", "")
}

func (w *certWorld) mustWait(p *v1.Pod, text string) {
	w.t.Helper()
	if got, err := w.PodCertificate(w.t.Context(), p, "v", 0, nil); pod.LackOf(err) != pod.LackCertificate || got != nil || !strings.Contains(err.Error(), text) {
		w.t.Fatalf("got %d bytes, error %v, want %q", len(got), err, text)
	}
}

func (w *certWorld) mustGet(p *v1.Pod) []byte {
	w.t.Helper()
	got, err := w.PodCertificate(w.t.Context(), p, "v", 0, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	return got
}

func TestPodCertificateIsRequestedIssuedAndRenewed(t *testing.T) {
	t.Parallel()
	runCertificates(t, func(t *testing.T, w *certWorld) {
		p := projecting("1", certifying("ECDSAP256"))
		w.Track(p)
		w.mustWait(p, `waits for signer "example.com/s" to issue podcertificaterequest "req-1"`)
		w.mustWait(p, "req-1") // requests the certificate only once
		req := w.request("req-1")
		want := certificatesv1beta1.PodCertificateRequestSpec{
			SignerName: "example.com/s", PodName: p.Name, PodUID: "1", ServiceAccountName: "robot", ServiceAccountUID: "sa-uid", NodeName: "node", NodeUID: "node-uid",
			MaxExpirationSeconds: ptr(int32(3600)), UnverifiedUserAnnotations: map[string]string{"example.com/a": "b"}, StubPKCS10Request: req.Spec.StubPKCS10Request,
		}
		if diff := cmp.Diff(want, req.Spec); diff != "" {
			t.Errorf("request (-want +got):\n%s", diff)
		}
		if o := req.OwnerReferences; len(o) != 1 || o[0].UID != "1" || o[0].Kind != "Pod" {
			t.Errorf("owners %v", o)
		}
		w.issue("req-1")
		if n := w.notifications("1"); n != 1 {
			t.Errorf("%d notifications", n)
		}
		if n := w.openWatches(); n != 0 {
			t.Errorf("%d watches while no request is pending", n)
		}
		first := w.mustGet(p)
		key, chain := pem.Decode(first)
		leaf, _ := pem.Decode(chain)
		if key == nil || key.Type != typePrivateKey || leaf == nil || len(leaf.Headers) > 0 || bytes.Contains(first, []byte("more")) || !bytes.HasSuffix(first, []byte(plain("intermediate"))) {
			t.Errorf("the bundle is\n%s", first)
		}

		time.Sleep(29 * time.Minute)
		if w.notifications("1") != 1 || !bytes.Equal(w.mustGet(p), first) || w.made("create podcertificaterequests") != 1 {
			t.Error("renewed too early")
		}
		time.Sleep(6*time.Minute + time.Second) // the time of the renewal plus the largest random delay
		if n := w.notifications("1"); n != 2 {
			t.Fatalf("%d notifications when the renewal is due", n)
		}
		for range 2 {
			if !bytes.Equal(w.mustGet(p), first) {
				t.Error("the pod lost its certificate during the renewal")
			}
		}
		if n := w.made("create podcertificaterequests"); n != 2 {
			t.Errorf("%d requests, want 2", n)
		}
		w.issue("req-2")
		second := w.mustGet(p)
		if bytes.Equal(second, first) || belongs(second, leafOf(t, second)) != nil {
			t.Error("no new key and certificate after the renewal")
		}
		w.Forget("1")
		if _, err := w.PodCertificate(t.Context(), p, "v", 0, nil); err == nil {
			t.Error("a pod that was forgotten got a certificate")
		}
	})
}

func leafOf(t *testing.T, bundle []byte) *x509.Certificate {
	t.Helper()
	_, leaf, err := readChain(bundle)
	if err != nil {
		t.Fatal(err)
	}
	return leaf
}

func TestSignerRefuses(t *testing.T) {
	t.Parallel()
	runCertificates(t, func(t *testing.T, w *certWorld) {
		p := projecting("1", certifying("ED25519"))
		w.Track(p)
		w.mustWait(p, "req-1")
		w.answer(w.request("req-1"), certificatesv1beta1.PodCertificateRequestConditionTypeDenied, "UnsupportedKeyType", "use ECDSAP256")
		for range 2 {
			w.mustWait(p, "Denied: UnsupportedKeyType: use ECDSAP256")
		}
		if n := w.made("create podcertificaterequests"); n != 1 {
			t.Errorf("%d requests: a refusal is final", n)
		}

		// If a renewal is refused, the pod keeps the old certificate until it expires.
		p = projecting("2", certifying("ECDSAP256"))
		w.Track(p)
		w.mustWait(p, "req-2")
		w.issue("req-2")
		time.Sleep(36 * time.Minute)
		first := w.mustGet(p)
		w.answer(w.request("req-3"), certificatesv1beta1.PodCertificateRequestConditionTypeFailed, "Broken", "no more")
		if !bytes.Equal(w.mustGet(p), first) {
			t.Error("the pod lost a valid certificate")
		}
		time.Sleep(25 * time.Minute)
		w.mustWait(p, "Failed: Broken: no more")
	})
}

func TestSignerIssuesWhatCannotBeUsed(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		spoil func(t *testing.T, w *certWorld, req *certificatesv1beta1.PodCertificateRequest)
		want  string
	}{
		"no chain": {func(*testing.T, *certWorld, *certificatesv1beta1.PodCertificateRequest) {}, "the certificate chain is empty"},
		"garbage": {func(_ *testing.T, _ *certWorld, req *certificatesv1beta1.PodCertificateRequest) {
			req.Status.CertificateChain = plain("garbage")
		}, "read the first certificate"},
		"somebody else's key": {func(t *testing.T, w *certWorld, req *certificatesv1beta1.PodCertificateRequest) {
			_, csr, err := newKey("ECDSAP256")
			if err != nil {
				t.Fatal(err)
			}
			req.Status.CertificateChain = w.signer.sign(t, csr, time.Hour)
		}, "not for the pod's key"},
		"expired": {func(t *testing.T, w *certWorld, req *certificatesv1beta1.PodCertificateRequest) {
			req.Status.CertificateChain = w.signer.sign(t, req.Spec.StubPKCS10Request, -time.Second)
		}, "expired at"},
		"too long": {func(_ *testing.T, _ *certWorld, req *certificatesv1beta1.PodCertificateRequest) {
			req.Status.CertificateChain = strings.Repeat("x", maxChain+1)
		}, "longer than"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			runCertificates(t, func(t *testing.T, w *certWorld) {
				p := projecting("1", certifying("ECDSAP256"))
				w.Track(p)
				w.mustWait(p, "req-1")
				req := w.request("req-1")
				tt.spoil(t, w, req)
				w.answer(req, certificatesv1beta1.PodCertificateRequestConditionTypeIssued, "Issued", "")
				w.mustWait(p, tt.want)
			})
		})
	}
}

func TestRequestThatIsDeletedOrCannotBeMade(t *testing.T) {
	t.Parallel()
	runCertificates(t, func(t *testing.T, w *certWorld) {
		p := projecting("1", certifying("ECDSAP256"))
		w.Track(p)
		w.setFail("create podcertificaterequests", errors.New("quota")) // the request that fails has the name req-1
		if _, err := w.PodCertificate(t.Context(), p, "v", 0, nil); err == nil || !strings.Contains(err.Error(), "quota") {
			t.Fatal(err)
		}
		w.setFail("create podcertificaterequests", nil)
		w.mustWait(p, "req-2")
		synctest.Wait()
		if err := w.client.CertificatesV1beta1().PodCertificateRequests("ns").Delete(t.Context(), "req-2", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if n := w.notifications("1"); n != 1 {
			t.Errorf("%d notifications", n)
		}
		w.mustWait(p, "req-3")
		w.issue("req-3")
		first := w.mustGet(p)

		// If the request for a renewal fails, it is tried again, and the pod keeps its certificate.
		w.setFail("create podcertificaterequests", errors.New("quota"))
		time.Sleep(36 * time.Minute)
		if !bytes.Equal(w.mustGet(p), first) {
			t.Error("the pod lost its certificate")
		}
		before := w.notifications("1")
		time.Sleep(2 * renewRetry)
		if w.notifications("1") != before+1 {
			t.Errorf("notified %d times of the next try", w.notifications("1")-before)
		}
	})
}

func TestCertificateOfBeforeARestart(t *testing.T) {
	t.Parallel()
	runCertificates(t, func(t *testing.T, w *certWorld) {
		p := projecting("1", certifying("ECDSAP256"))
		w.Track(p)
		w.mustWait(p, "req-1")
		w.issue("req-1")
		have := w.mustGet(p)
		w.Forget("1") // Forget makes Objects drop the certificate from memory, as a restart of the agent does
		w.Track(p)
		if got, err := w.PodCertificate(t.Context(), p, "v", 0, have); err != nil || !bytes.Equal(got, have) {
			t.Fatalf("the certificate in the volume is not used: %v", err)
		}
		time.Sleep(renewSpread + time.Second)
		if n := w.notifications("1"); n != 2 {
			t.Errorf("%d notifications: a certificate whose renewal time is unknown is renewed soon", n)
		}
		for name, bad := range map[string][]byte{"empty": nil, "garbage": []byte("x"), "no chain": have[:300], "only a chain": have[300:]} {
			w.Forget("1")
			w.Track(p)
			if _, err := w.PodCertificate(t.Context(), p, "v", 0, bad); pod.LackOf(err) != pod.LackCertificate {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

func TestNewKey(t *testing.T) {
	t.Parallel()
	for _, keyType := range []string{"RSA3072", "RSA4096", "ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519"} {
		key, csr, err := newKey(keyType)
		if err != nil {
			t.Fatal(err)
		}
		req, err := x509.ParseCertificateRequest(csr)
		if err != nil || req.CheckSignature() != nil {
			t.Errorf("%s: %v", keyType, err)
		}
		if err := belongs(key, &x509.Certificate{PublicKey: req.PublicKey}); err != nil {
			t.Errorf("%s: %v", keyType, err)
		}
	}
	if _, _, err := newKey("DSA"); err == nil || !strings.Contains(err.Error(), "RSA3072") {
		t.Errorf("unknown type: %v", err)
	}
}

// A certificate expires, and is renewed, when the node's clock says so. An error names the time in the certificate.
func TestCertificatesFollowTheNodesClock(t *testing.T) {
	t.Parallel()
	s := newSigner(t)
	key, csr, err := newKey("ECDSAP256")
	if err != nil {
		t.Fatal(err)
	}
	req := &certificatesv1beta1.PodCertificateRequest{Status: certificatesv1beta1.PodCertificateRequestStatus{CertificateChain: s.sign(t, csr, time.Hour)}}
	now := time.Now()
	for ahead, lasts := range map[time.Duration]time.Duration{0: time.Hour, 30 * time.Minute: 30 * time.Minute, -time.Hour: 2 * time.Hour, 2 * time.Hour: 0} {
		clock := nodeclock.Of(aheadBy(ahead))
		c, err := issued(req, key, now, clock)
		if lasts == 0 {
			if leaf := leafOf(t, []byte(req.Status.CertificateChain)); err == nil || !strings.Contains(err.Error(), "expired at "+leaf.NotAfter.UTC().Format(time.RFC3339)) {
				t.Errorf("%s ahead: %v", ahead, err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if got := c.expires.Sub(now); got < lasts-2*time.Second || got > lasts || !c.renew.Before(c.expires) || c.renew.Before(now.Add(lasts/2)) {
			t.Errorf("%s ahead: expires after %s and is renewed after %s, want %s, and a renewal in the second half", ahead, got, c.renew.Sub(now), lasts)
		}
		again := adopted(c.bundle(), now, clock)
		if again == nil || !again.expires.Equal(c.expires) {
			t.Errorf("%s ahead: the next agent has %+v, want a certificate that expires at %s", ahead, again, c.expires)
		}
	}
}
