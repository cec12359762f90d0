package heartbeat

import (
	"encoding/json"

	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/internal/core/mergepatch"
)

// statusPatch returns the strategic merge patch from one Node to another. It contains status, labels and annotations;
// other components own the rest.
//
// The API merges status.addresses by type, but a dual-stack node has two addresses of one type, and a merge would lose
// one. The patch therefore replaces the whole list. The API merges conditions by type, too, so the patch contains only
// the agent's own.
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

// ours is the part of a Node's metadata that the agent may change.
type ours struct {
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}
