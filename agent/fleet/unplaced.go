package fleet

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Unplaced says which pods have no node yet.
type Unplaced struct {
	Pods int
	// Pod is one of them, as NAMESPACE/NAME, and Says what the scheduler says about it; "": it has not tried to place any.
	Pod, Says string
}

// unplaced selects the pods that have no node.
const unplaced = "spec.nodeName="

// Unplaced asks the API server which of the pods that the fleet has created have no node. It costs a list of them.
func (f *Fleet) Unplaced(ctx context.Context) (u Unplaced, err error) {
	err = eachPage(func(opts metav1.ListOptions) (string, error) {
		opts.LabelSelector, opts.FieldSelector = f.selector(), unplaced
		list, err := f.api.Pods(metav1.NamespaceAll).List(ctx, opts)
		if err != nil {
			return "", fmt.Errorf("list the pods that have no node: %w", err)
		}
		for i := range list.Items {
			p := &list.Items[i]
			if u.Pods++; u.Says != "" {
				continue
			}
			for _, c := range p.Status.Conditions {
				if c.Type == v1.PodScheduled && c.Status == v1.ConditionFalse && c.Message != "" {
					u.Pod, u.Says = p.Namespace+"/"+p.Name, c.Message
				}
			}
		}
		return list.Continue, nil
	})
	return u, err
}
