package objects

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
)

// CertificateCounts follows a podCertificate source through all its states. A request for a renewal that fails again and again does not
// hide that the renewal is overdue, although each failure moves the time of the next try.
func TestCertificateCounts(t *testing.T) {
	t.Parallel()
	runCertificates(t, func(t *testing.T, w *certWorld) {
		want := func(when string, counts ...CertificateCount) {
			t.Helper()
			if d := cmp.Diff(append([]CertificateCount{}, counts...), w.CertificateCounts()); d != "" {
				t.Errorf("%s (-want +got):\n%s", when, d)
			}
		}
		in := func(state string) CertificateCount { return CertificateCount{"example.com/s", state, 1} }
		want("without pods")
		p := projecting("1", certifying("ECDSAP256"))
		w.Track(p)
		want("before the request", in("not_yet_issued"))
		w.mustWait(p, "req-1")
		want("while the request is pending", in("not_yet_issued"))
		w.issue("req-1")
		want("issued", in("fresh"))
		time.Sleep(30*time.Minute + renewSpread + time.Second)
		w.mustGet(p)
		want("while the renewal is pending", in("fresh"))
		time.Sleep(overdueAfter)
		want("10 minutes after the renewal was due", in("overdue_for_refresh"))
		time.Sleep(15 * time.Minute)
		want("an hour after the issue", in("expired"))
		w.answer(w.request("req-2"), certificatesv1beta1.PodCertificateRequestConditionTypeDenied, "No", "no")
		want("renewal denied", in("denied"))

		other := projecting("2", certifying("ECDSAP256"))
		other.Spec.Volumes[0].Projected.Sources[0].PodCertificate.SignerName = "example.com/a"
		w.Track(other)
		w.mustWait(other, "req-3")
		w.answer(w.request("req-3"), certificatesv1beta1.PodCertificateRequestConditionTypeFailed, "Broken", "no")
		want("two signers", CertificateCount{"example.com/a", "failed", 1}, in("denied"))
		w.Forget("1")
		w.Forget("2")
		want("after the pods' end")

		third := projecting("3", certifying("ECDSAP256"))
		w.Track(third)
		w.mustWait(third, "req-4")
		w.issue("req-4")
		w.setFail("create podcertificaterequests", errors.New("quota"))
		for range 48 {
			time.Sleep(time.Minute)
			w.mustGet(third)
		}
		want("48 minutes, with requests that fail", in("overdue_for_refresh"))
	})
}
