package push

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/wherry-node/wherry/internal/core/pod"
)

var errNotPushed = errors.New("no such pod was pushed")

// end ends a pod. grace is in seconds; nil is the pod's own grace period. If keep is set, the pod is only stopped; otherwise it
// is removed once nothing of it runs.
func (p *Source) end(namespace, name string, grace *int64, keep bool) (*v1.Pod, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.records[recordKey(kindPod, namespace, name)]
	if r == nil && p.cfg.Suffix {
		r = p.records[recordKey(kindPod, namespace, name+pod.StaticSuffix(p.cfg.NodeName))]
	}
	if r == nil {
		return nil, errNotPushed
	}
	n := r.Pod.DeepCopy()
	if keep && leaving(n) {
		keep = false // the pod is being removed already, which cannot be undone
	}
	g := int64(v1.DefaultTerminationGracePeriodSeconds)
	if s := n.Spec.TerminationGracePeriodSeconds; s != nil {
		g = *s
	}
	if s := n.DeletionGracePeriodSeconds; s != nil {
		g = *s
	}
	if grace != nil && (n.DeletionTimestamp == nil || *grace < g) {
		g = *grace // once the pod is ending, the grace period can only become shorter
	}
	if n.DeletionTimestamp == nil {
		at := metav1.NewTime(time.Now().Add(time.Duration(g) * time.Second).Truncate(time.Second))
		n.DeletionTimestamp = &at
	}
	n.DeletionGracePeriodSeconds = &g
	delete(n.Annotations, AnnotationStopped)
	if keep {
		if n.Annotations == nil {
			n.Annotations = map[string]string{}
		}
		n.Annotations[AnnotationStopped] = "true"
	}
	now := &record{Pod: n}
	if !keep && p.hasEnded(n.UID) {
		return n, p.drop(now)
	}
	if err := p.store.save(now); err != nil {
		return nil, err
	}
	p.records[now.key()] = now
	p.cfg.Target.Upsert(pod.SourcePush, n)
	return n, nil
}

// deleteObject removes a ConfigMap or Secret. Pods that use it keep its content until their volumes are set up again.
func (p *Source) deleteObject(kind, namespace, name string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.records[recordKey(kind, namespace, name)]
	if r == nil {
		return fmt.Errorf("no %s %s/%s was pushed", strings.ToLower(kind), namespace, name)
	}
	if err := p.store.remove(r); err != nil {
		return err
	}
	delete(p.records, r.key())
	p.tellObjects()
	return nil
}

// list returns kind, namespace, name and UID of each pushed object, without the contents.
func (p *Source) list() []Pushed {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := []Pushed{}
	for _, key := range slices.Sorted(maps.Keys(p.records)) {
		r := p.records[key]
		out = append(out, Pushed{Kind: r.kind(), Namespace: r.meta().Namespace, Name: r.meta().Name, UID: r.meta().UID})
	}
	return out
}
