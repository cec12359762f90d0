package heartbeat

import (
	"encoding/json"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

// statusPatch is the strategic merge patch from one Node to another, without spec.
//
// status.addresses is declared as merging by type, but a dual-stack node has two of one type: a merge would lose one.
// It therefore goes whole. (conditions do merge by type: others' conditions are not sent.)
func statusPatch(base, next *v1.Node) ([]byte, error) {
	target := *next
	target.Spec = base.Spec
	target.ResourceVersion = base.ResourceVersion
	whole := len(base.Status.Addresses) > 0 && !equality.Semantic.DeepEqual(base.Status.Addresses, next.Status.Addresses)
	if whole {
		target.Status.Addresses = base.Status.Addresses
	}
	from, err := json.Marshal(base)
	if err != nil {
		return nil, fmt.Errorf("encode the old node: %w", err)
	}
	to, err := json.Marshal(&target)
	if err != nil {
		return nil, fmt.Errorf("encode the new node: %w", err)
	}
	patch, err := strategicpatch.CreateTwoWayMergePatch(from, to, v1.Node{})
	if err != nil || !whole {
		return patch, err
	}
	var doc map[string]any
	if err := json.Unmarshal(patch, &doc); err != nil {
		return nil, fmt.Errorf("decode the patch: %w", err)
	}
	status, ok := doc["status"].(map[string]any)
	if !ok {
		status = map[string]any{}
		doc["status"] = status
	}
	addresses := []any{}
	for _, a := range next.Status.Addresses {
		addresses = append(addresses, a)
	}
	status["addresses"] = append(addresses, map[string]string{"$patch": "replace"})
	return json.Marshal(doc)
}
