package agenttest

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/wherry-node/wherry/agent"
)

// withCredentials gives a pod a volume that projects a trust bundle (ClusterTrustBundle) and a certificate (PodCertificateRequest).
func withCredentials(p *v1.Pod) {
	bundle := "roots"
	p.Spec.Volumes = []v1.Volume{{Name: "id", VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{
		{ClusterTrustBundle: &v1.ClusterTrustBundleProjection{Name: &bundle, Path: "roots.pem"}},
		{PodCertificate: &v1.PodCertificateProjection{SignerName: "example.com/s", KeyType: "ECDSAP256", CredentialBundlePath: "id.pem"}},
	}}}}}
	p.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "id", MountPath: "/id"}}
}

// certificateRequests returns the PodCertificateRequests in the API, the oldest first.
func (w *World) certificateRequests() []certificatesv1beta1.PodCertificateRequest {
	w.Helper()
	list, err := w.Admin.CertificatesV1beta1().PodCertificateRequests(Namespace).List(context.Background(), metav1.ListOptions{})
	if err != nil {
		w.Fatal(err)
	}
	slices.SortFunc(list.Items, func(a, b certificatesv1beta1.PodCertificateRequest) int {
		return a.CreationTimestamp.Compare(b.CreationTimestamp.Time)
	})
	return list.Items
}

// issueCertificate answers a PodCertificateRequest with a certificate that is valid for an hour and has to be renewed after half of that
// time.
func (w *World) issueCertificate(req *certificatesv1beta1.PodCertificateRequest) {
	w.Helper()
	csr, err := x509.ParseCertificateRequest(req.Spec.StubPKCS10Request)
	if err != nil {
		w.Fatal(err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		w.Fatal(err)
	}
	begin, end := metav1.NewTime(time.Now().Add(30*time.Minute)), metav1.NewTime(time.Now().Add(time.Hour))
	leaf := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now(), NotAfter: end.Time}
	der, err := x509.CreateCertificate(rand.Reader, leaf, leaf, csr.PublicKey, key)
	if err != nil {
		w.Fatal(err)
	}
	req.Status.CertificateChain = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	req.Status.BeginRefreshAt, req.Status.NotAfter = &begin, &end
	req.Status.Conditions = []metav1.Condition{{Type: certificatesv1beta1.PodCertificateRequestConditionTypeIssued, Status: metav1.ConditionTrue}}
	if _, err := w.Admin.CertificatesV1beta1().PodCertificateRequests(Namespace).UpdateStatus(context.Background(), req, metav1.UpdateOptions{}); err != nil {
		w.Fatal(err)
	}
}

// credentialGates turns on the feature gates of both projections.
func credentialGates(c *agent.Config) {
	c.Kubelet.FeatureGates = map[string]bool{"ClusterTrustBundleProjection": true, "PodCertificateRequest": true}
}

func (w *World) createTrustBundle(name string) {
	w.Helper()
	if _, err := w.Admin.CertificatesV1beta1().ClusterTrustBundles().Create(context.Background(), &certificatesv1beta1.ClusterTrustBundle{
		ObjectMeta: metav1.ObjectMeta{Name: name},
	}, metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
}

// A pod waits until its trust bundle and its certificate exist, and an event says what is missing. The agent renews the certificate in
// time. It creates one PodCertificateRequest for the first certificate and one for the renewal, and no more. A metric shows the state of the
// certificate.
func TestCredentialProjections(t *testing.T) {
	t.Parallel()
	r := &reading{}
	Run(t, Config{Agent: credentialGates, Deps: func(d *agent.Deps) { r.reg = prometheus.NewRegistry(); d.Metrics = r.reg }}, func(w *World) {
		r.World = w
		state := func(want float64, state string) {
			t.Helper()
			r.want(want, "kubelet_podcertificate_states", "signer_name", "example.com/s", "state", state)
		}
		w.Create(Pod("web", withCredentials))
		w.awaitFailedMount("web", `clustertrustbundle "roots" not found`)
		w.awaitFailedMount("web", `waits for signer "example.com/s" to issue podcertificaterequest "req-`)
		w.createTrustBundle("roots")
		req := w.certificateRequests()[0]
		node, err := w.Admin.CoreV1().Nodes().Get(context.Background(), string(req.Spec.NodeName), metav1.GetOptions{})
		if err != nil {
			w.Fatal(err)
		}
		if req.Spec.NodeUID != node.UID || req.Spec.PodName != "web" {
			t.Errorf("request %+v", req.Spec)
		}
		state(1, "not_yet_issued")
		w.issueCertificate(&req)
		w.WaitReady("web")
		state(1, "fresh")
		time.Sleep(29 * time.Minute)
		if n := len(w.certificateRequests()); n != 1 {
			t.Errorf("%d requests before the renewal is due", n)
		}
		w.Await("a request for the renewal", 10*time.Minute, func() bool { return len(w.certificateRequests()) == 2 })
		req = w.certificateRequests()[1]
		w.issueCertificate(&req)
		time.Sleep(20 * time.Minute)
		if n := len(w.certificateRequests()); n != 2 {
			t.Errorf("%d requests after the renewal", n)
		}
		w.Delete("web", 1)
		w.WaitGone("web")
		state(-1, "fresh")
	})
}

// If the feature gates are off, which is the default, the pod does not start, and an event names the gates.
func TestCredentialProjectionsNeedTheirGates(t *testing.T) {
	t.Parallel()
	Run(t, Config{}, func(w *World) {
		w.Create(Pod("web", withCredentials))
		w.awaitFailedMount("web", "set the feature gate ClusterTrustBundleProjection")
		w.awaitFailedMount("web", "set the feature gate PodCertificateRequest")
		if n := len(w.certificateRequests()); n != 0 {
			t.Errorf("%d requests with the gate off", n)
		}
	})
}
