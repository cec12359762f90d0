package agent

import (
	"context"
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/edge/pleg"
	"github.com/wherry-node/wherry/internal/edge/podset"
	"github.com/wherry-node/wherry/internal/edge/server"
	"github.com/wherry-node/wherry/internal/node/report"
)

// podView is where the servers of the node's API read the node's pods: the desired pods with their newest statuses, and what the runtime
// has.
type podView struct {
	set    *podset.Set
	cache  *pleg.Generator
	report *report.Report
}

var _ server.Pods = (*podView)(nil)

// List returns the desired pods with their newest statuses.
func (v *podView) List() []*v1.Pod {
	pods := v.set.List()
	for i, p := range pods {
		pods[i] = v.withStatus(p)
	}
	return pods
}

// Pod finds a pod by name. If two pods have the name, it returns the one that is not being deleted.
func (v *podView) Pod(namespace, name string) (*v1.Pod, bool) {
	var found *v1.Pod
	for _, p := range v.set.List() {
		if p.Namespace == namespace && p.Name == name && (found == nil || found.DeletionTimestamp != nil) {
			found = p
		}
	}
	if found == nil {
		return nil, false
	}
	return v.withStatus(found), true
}

// Observed returns the newest inspection of a pod.
func (v *podView) Observed(uid types.UID) (*pod.Observed, bool) {
	o, _ := v.cache.Get(uid)
	return o, !o.Empty()
}

// Settled reports whether the pods of all sources are known, and the pods that the API server has with a running container have been inspected.
func (v *podView) Settled() bool {
	if !v.set.Known() || !v.cache.Synced() {
		return false
	}
	for _, p := range v.set.List() {
		o, _ := v.cache.Get(p.UID)
		if o.Empty() && slices.ContainsFunc(p.Status.ContainerStatuses, func(c v1.ContainerStatus) bool { return c.State.Running != nil }) {
			return false
		}
	}
	return true
}

func (v *podView) withStatus(p *v1.Pod) *v1.Pod {
	out := *p
	out.TypeMeta = metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"}
	out.Status = v.report.Status(p)
	return &out
}

// running returns the pods of /runningpods: all pods that have a running container, whatever their source.
func (v *podView) running(context.Context) ([]*v1.Pod, error) {
	var out []*v1.Pod
	for _, o := range v.cache.List() {
		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: o.Ref.Namespace, Name: o.Ref.Name, UID: o.Ref.UID}}
		for i := range o.Containers {
			if c := &o.Containers[i]; c.State == pod.StateRunning {
				p.Spec.Containers = append(p.Spec.Containers, v1.Container{Name: c.Name, Image: c.Image})
			}
		}
		if len(p.Spec.Containers) > 0 {
			out = append(out, p)
		}
	}
	return out, nil
}
