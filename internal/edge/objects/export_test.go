package objects

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// NextRenewal returns when the first token of the pod is due for renewal; zero: never.
func (o *Objects) NextRenewal(uid types.UID) time.Time {
	o.tokens.mu.Lock()
	defer o.tokens.mu.Unlock()
	var first time.Time
	for h := o.tokens.pods[uid]; h != nil; h = h.next {
		if first.IsZero() || h.renew.Before(first) {
			first = h.renew
		}
	}
	return first
}
