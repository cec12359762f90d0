package objects

import (
	"cmp"
	"errors"
	"time"

	"github.com/wherry-node/wherry/internal/core/inorder"
)

// overdueAfter is how long after the time of its renewal a certificate counts as overdue, as upstream's kubelet counts it.
const overdueAfter = 10 * time.Minute

// denial is the answer of a signer that denies a certificate, in contrast to a signer that tries to issue one and fails.
type denial struct{ error }

// CertificateCount is the number of podCertificate sources of the node's pods that have the same signer and state.
type CertificateCount struct {
	Signer string
	// State is the state of the certificate in upstream's words: not_yet_issued, fresh, overdue_for_refresh (its renewal was due more than
	// 10 minutes ago), expired, denied or failed. A source whose renewal was denied or failed counts as denied or failed, also while its
	// pod still uses the old certificate.
	State string
	Count int
}

// CertificateCounts counts the podCertificate sources of all tracked pods, by signer and state. The result is sorted. It is empty if the
// feature gate is off. CertificateCounts does no IO.
func (o *Objects) CertificateCounts() []CertificateCount {
	type group struct{ signer, state string }
	counts := map[group]int{}
	c, now := &o.certificates, time.Now()
	c.mu.Lock()
	for _, certs := range c.pods {
		for _, cert := range certs {
			counts[group{cert.signer, cert.state(now)}]++
		}
	}
	c.mu.Unlock()
	out := make([]CertificateCount, 0, len(counts))
	for g, n := range counts {
		out = append(out, CertificateCount{g.signer, g.state, n})
	}
	inorder.Sort(out, func(a, b CertificateCount) int {
		return cmp.Or(cmp.Compare(a.Signer, b.Signer), cmp.Compare(a.State, b.State))
	})
	return out
}

// state returns the state of a certificate for CertificateCount. The caller holds the lock of certificates.
func (cert *certificate) state(now time.Time) string {
	var denied denial
	switch held := cert.held; {
	case errors.As(cert.refused, &denied):
		return "denied"
	case cert.refused != nil:
		return "failed"
	case held == nil:
		return "not_yet_issued"
	case !now.Before(held.expires):
		return "expired"
	case now.After(held.due.Add(overdueAfter)):
		return "overdue_for_refresh"
	}
	return "fresh"
}
