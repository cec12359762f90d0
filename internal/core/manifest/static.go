package manifest

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/core/pod"
)

// The priority classes whose values the node knows. A static pod without a class and without a priority gets nodeCritical.
const (
	nodeCritical      = "system-node-critical"
	nodeCriticalValue = 2000001000
	clusterCritical   = "system-cluster-critical"
)

// Origin says where the pods of a manifest come from.
type Origin struct {
	Source   pod.Source
	Name     string // the name of the file or URL; the same manifest under another name makes another pod
	NodeName string
	Seen     time.Time
}

// Static makes a decoded pod a static pod of this node: "the kubelet appends the node's name to the static pod's". If it has no
// UID, its UID is computed from the manifest, its origin and the node, so that an agent that restarts finds the pod again, and an
// edited manifest makes a new pod. Static changes and returns p.
func (o Origin) Static(p *v1.Pod) *v1.Pod {
	if p.Annotations == nil {
		p.Annotations = map[string]string{}
	}
	hash := p.Annotations[pod.AnnotationHash]
	p.Name += pod.StaticSuffix(o.NodeName)
	if p.UID == "" {
		sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%s\x00%s\x00%s\x00%s\x00%s", o.NodeName, o.Source, o.Name, p.Namespace, p.Name, hash))
		p.UID = types.UID(hex.EncodeToString(sum[:16]))
		// "kubectl describe" looks for the events of a mirror under the UID that its annotation names.
		p.Annotations[pod.AnnotationHash] = string(p.UID)
	}
	p.Annotations[pod.AnnotationSource] = o.Source.String()
	p.Annotations[pod.AnnotationSeen] = o.Seen.Format(time.RFC3339Nano)
	delete(p.Annotations, pod.AnnotationMirror)
	p.Spec.NodeName = o.NodeName
	tolerateAll(p)
	prioritize(p)
	p.Status = v1.PodStatus{Phase: v1.PodPending}
	return p
}

// tolerateAll makes sure that no taint ends a static pod, because nothing could start it elsewhere.
func tolerateAll(p *v1.Pod) {
	for _, t := range p.Spec.Tolerations {
		if t.Operator == v1.TolerationOpExists && t.Key == "" && (t.Effect == "" || t.Effect == v1.TaintEffectNoExecute) && t.TolerationSeconds == nil {
			return
		}
	}
	p.Spec.Tolerations = append(p.Spec.Tolerations, v1.Toleration{Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoExecute})
}

// prioritize sets the priority of the pod's class. A pod without a class and without a priority gets system-node-critical. Only
// the API server knows the values of other classes.
func prioritize(p *v1.Pod) {
	value := int32(nodeCriticalValue)
	switch p.Spec.PriorityClassName {
	case "":
		if p.Spec.Priority != nil {
			return
		}
		p.Spec.PriorityClassName = nodeCritical
	case nodeCritical:
	case clusterCritical:
		value = 2000000000
	default:
		return
	}
	p.Spec.Priority = &value
}

// Unresolved returns the message with which the node refuses a static pod that refers to objects which no manifest has. missing
// lists these objects.
func Unresolved(missing []string) string {
	return "it refers to " + strings.Join(missing, ", ") + ", which no manifest of this node has, and static pods may not refer to objects of the API server: " +
		"put it beside the pod's manifest, or remove the reference"
}
