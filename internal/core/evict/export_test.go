package evict

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/internal/core/pressure"
)

// Rank returns the pods in the order of eviction.
func Rank(pods []Pod, s pressure.Signal, l Layout, now time.Time) []*v1.Pod {
	var out []*v1.Pod
	for _, c := range rank(pods, s, l, now) {
		out = append(out, c.pod.Pod)
	}
	return out
}
