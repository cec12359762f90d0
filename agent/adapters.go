package agent

import (
	"context"
	"fmt"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/wherry-node/wherry/internal/objects"
	"github.com/wherry-node/wherry/internal/perform"
	"github.com/wherry-node/wherry/internal/pleg"
	"github.com/wherry-node/wherry/internal/pod"
	"github.com/wherry-node/wherry/internal/podset"
	"github.com/wherry-node/wherry/internal/server"
	"github.com/wherry-node/wherry/internal/syncloop"
)

// referents are what pods refer to by name: package objects, and runtime classes.
type referents struct {
	*objects.Objects
	classes runtimeClasses
}

var _ perform.Objects = (*referents)(nil)

// RuntimeHandler resolves spec.runtimeClassName.
func (r *referents) RuntimeHandler(ctx context.Context, class string) (string, error) {
	return r.classes.handler(ctx, class)
}

// runtimeClasses reads RuntimeClass objects when a pod needs one and remembers them for a minute: their handler
// never changes ("handler is immutable").
type runtimeClasses struct {
	client kubernetes.Interface

	mu   sync.Mutex
	seen map[string]seenClass
}

type seenClass struct {
	handler string
	at      time.Time
}

func (r *runtimeClasses) handler(ctx context.Context, name string) (string, error) {
	if r.client == nil {
		return "", errStandalone("get runtime class " + name)
	}
	r.mu.Lock()
	c, ok := r.seen[name]
	r.mu.Unlock()
	if ok && time.Since(c.at) < time.Minute {
		return c.handler, nil
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	rc, err := r.client.NodeV1().RuntimeClasses().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("get runtime class %s: %w", name, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.seen == nil {
		r.seen = map[string]seenClass{}
	}
	r.seen[name] = seenClass{rc.Handler, time.Now()}
	return rc.Handler, nil
}

// noObjects is what pods refer to on a node without an API server: nothing that they can have.
type noObjects struct{}

var _ perform.Objects = noObjects{}

func (noObjects) ConfigMap(_ context.Context, ns, name string) (*v1.ConfigMap, error) {
	return nil, errStandalone("get ConfigMap " + ns + "/" + name)
}

func (noObjects) Secret(_ context.Context, ns, name string) (*v1.Secret, error) {
	return nil, errStandalone("get Secret " + ns + "/" + name)
}

func (noObjects) ServiceAccountToken(context.Context, *v1.Pod, string, *int64) (string, time.Time, error) {
	return "", time.Time{}, errStandalone("request service account token")
}

func (noObjects) RuntimeHandler(_ context.Context, class string) (string, error) {
	return "", errStandalone("get runtime class " + class)
}
func (noObjects) NextRefresh(types.UID) time.Time       { return time.Time{} }
func (noObjects) Services(string) ([]*v1.Service, bool) { return nil, true }
func (noObjects) Track(*v1.Pod)                         {}
func (noObjects) Forget(types.UID)                      {}
func (noObjects) Run(ctx context.Context) error         { <-ctx.Done(); return nil }

// podView is what the node's API shows of its pods.
type podView struct {
	set    *podset.Set
	cache  *pleg.Generator
	report *syncloop.Report
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

// Pod finds a pod by name; of two with one name, the one that is not on its way out.
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

func (v *podView) withStatus(p *v1.Pod) *v1.Pod {
	out := *p
	out.TypeMeta = metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"}
	out.Status = v.report.Status(p)
	return &out
}

// running is what /runningpods shows: what the runtime has, whoever wanted it.
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
