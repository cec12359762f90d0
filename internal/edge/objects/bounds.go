package objects

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/internal/core/claims"
	"github.com/wherry-node/wherry/internal/core/crispec"
)

// These constants bound what one pod may refer to. The author of the pod chooses the numbers, and the requests and watches of all pods share
// the node's memory and the limit of its requests.
const (
	maxObjects = 1024 // ConfigMaps, Secrets and persistent volume claims, each counted once, however often the pod names it
	maxIssued  = 128  // sources of projected volumes that are tokens, certificates or trust bundles
)

// TooMany returns an error if a pod refers to more objects, or has more sources of tokens, certificates and trust bundles, than a pod may have.
// Such a pod does not start, and Track follows nothing for it. What debug (ephemeral) containers refer to does not count: they are added while the pod
// runs, and must not end the renewal of its volumes.
func TooMany(p *v1.Pod) error {
	p = withoutDebug(p)
	return tooMany(p, references(p))
}

// TooManyFor returns the error of TooMany for a container that is to be started. For a debug container, what all debug containers of the pod refer to
// counts too; if that is too much, the debug container does not start, and Track follows only what the pod itself refers to.
func TooManyFor(p *v1.Pod, container string) error {
	err := TooMany(p)
	if err != nil || crispec.Kind(p, container) != crispec.KindEphemeral {
		return err
	}
	if err := tooMany(p, references(p)); err != nil {
		return fmt.Errorf("with its debug containers, %w", err)
	}
	return nil
}

// withoutDebug returns the pod without its debug containers. The result shares the rest with p.
func withoutDebug(p *v1.Pod) *v1.Pod {
	if len(p.Spec.EphemeralContainers) == 0 {
		return p
	}
	own := *p
	own.Spec.EphemeralContainers = nil
	return &own
}

// tooMany does the same as TooMany, with the debug containers of p. refs is what references returns for the pod.
func tooMany(p *v1.Pod, refs []key) error {
	var claimed []string
	issued := 0
	for i := range p.Spec.Volumes {
		v := &p.Spec.Volumes[i]
		if name := claims.Name(p, v); name != "" {
			claimed = append(claimed, name)
		}
		if v.Projected == nil {
			continue
		}
		for j := range v.Projected.Sources {
			if s := &v.Projected.Sources[j]; s.ServiceAccountToken != nil || s.PodCertificate != nil || s.ClusterTrustBundle != nil {
				issued++
			}
		}
	}
	slices.Sort(claimed)
	if n := len(refs) + len(slices.Compact(claimed)); n > maxObjects {
		return fmt.Errorf("the pod refers to %d ConfigMaps, Secrets and PersistentVolumeClaims, and a pod may refer to at most %d: "+
			"put the data of several objects into one, or divide the work between several pods", n, maxObjects)
	}
	if issued > maxIssued {
		return fmt.Errorf("the volumes of the pod have %d sources of service account tokens, certificates and trust bundles, and a pod may have at most %d: "+
			"remove those that no container needs, or divide the work between several pods", issued, maxIssued)
	}
	return nil
}
