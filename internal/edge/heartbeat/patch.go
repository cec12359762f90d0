package heartbeat

import (
	"encoding/json"

	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/internal/core/mergepatch"
)

// statusPatch is the strategic merge patch from one Node to another: its status, labels and annotations. The rest is others'.
//
// status.addresses is declared as merging by type, but a dual-stack node has two of one type: a merge would lose one.
// It therefore goes whole. (conditions do merge by type: others' conditions are not sent.)
func statusPatch(base, next *v1.Node) ([]byte, error) {
	status := mergepatch.Struct(&base.Status, &next.Status)
	delete(status, "conditions")
	byType := func(c *v1.NodeCondition) string { return string(c.Type) }
	if conditions := mergepatch.Keyed("type", byType, base.Status.Conditions, next.Status.Conditions); len(conditions) > 0 {
		status["conditions"] = conditions
	}
	if _, ok := status["addresses"]; ok && len(base.Status.Addresses) > 0 {
		status["addresses"] = mergepatch.Replace(next.Status.Addresses)
	}
	patch := map[string]any{}
	if len(status) > 0 {
		patch["status"] = status
	}
	meta := mergepatch.Struct(
		&ours{Labels: base.Labels, Annotations: base.Annotations},
		&ours{Labels: next.Labels, Annotations: next.Annotations},
	)
	if len(meta) > 0 {
		patch["metadata"] = meta
	}
	return json.Marshal(patch)
}

// ours is what of a Node's metadata may be this agent's.
type ours struct {
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}
