package objects

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// NextRenewal is when the first token of the pod is due for renewal; zero: never.
func (o *Objects) NextRenewal(uid types.UID) time.Time { return o.tokens.due(uid) }
