package objects

import (
	"fmt"
	"maps"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/core/pod"
)

// Local holds the ConfigMaps and Secrets from manifests, by namespace and name. If two sources have an object of the same name,
// Local uses that of the source with the lower value of pod.Source. Methods may be called concurrently.
type Local struct {
	notify func(uid types.UID)

	mu      sync.Mutex
	sources map[pod.Source]map[key]content
	pods    map[types.UID][]key
}

// NewLocal returns an empty store. It calls notify, with no lock held, for each tracked pod that refers to an object that was
// added, changed or removed. notify must not block.
func NewLocal(notify func(uid types.UID)) *Local {
	return &Local{notify: notify, sources: map[pod.Source]map[key]content{}, pods: map[types.UID][]key{}}
}

// Replace stores the complete state of one source. The objects must not be changed afterwards.
func (l *Local) Replace(src pod.Source, configMaps []*v1.ConfigMap, secrets []*v1.Secret) {
	now := make(map[key]content, len(configMaps)+len(secrets))
	for _, c := range configMaps {
		now[key{configMap, c.Namespace, c.Name}] = contentOf(c)
	}
	for _, s := range secrets {
		now[key{secret, s.Namespace, s.Name}] = contentOf(s)
	}
	l.mu.Lock()
	before := map[key]content{}
	for _, refs := range l.pods {
		for _, k := range refs {
			before[k] = l.find(k)
		}
	}
	l.sources[src] = now
	var changed []types.UID
	for uid, refs := range l.pods {
		if slices.ContainsFunc(refs, func(k key) bool { return !before[k].same(l.find(k)) }) {
			changed = append(changed, uid)
		}
	}
	l.mu.Unlock()
	for _, uid := range changed {
		l.notify(uid)
	}
}

// find returns an object from the first source that has it. It is called with the lock held.
func (l *Local) find(k key) content {
	for _, src := range slices.Sorted(maps.Keys(l.sources)) {
		if c := l.sources[src][k]; c.exists() {
			return c
		}
	}
	return content{}
}

// ConfigMap returns a ConfigMap. The ConfigMap is shared and must not be changed. If it is missing, the error satisfies
// IsNotFound.
func (l *Local) ConfigMap(namespace, name string) (*v1.ConfigMap, error) {
	c, err := l.read(key{configMap, namespace, name})
	return c.configMap, err
}

// Secret returns a Secret, which is shared and must not be changed. If it is missing, the error satisfies IsNotFound.
func (l *Local) Secret(namespace, name string) (*v1.Secret, error) {
	c, err := l.read(key{secret, namespace, name})
	return c.secret, err
}

func (l *Local) read(k key) (content, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.find(k)
	if !c.exists() {
		return c, k.notFound()
	}
	return c, nil
}

// Missing lists the objects that a pod refers to and that no source has, for example "secret ns/key".
func (l *Local) Missing(p *v1.Pod) []string {
	refs := references(p)
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []string
	for _, k := range refs {
		if !l.find(k).exists() {
			out = append(out, fmt.Sprintf("%s %s/%s", k.kind, k.namespace, k.name))
		}
	}
	return out
}

// Track stores which objects a pod refers to. It may be called again for every change of the pod.
func (l *Local) Track(p *v1.Pod) {
	refs := references(p)
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(refs) == 0 {
		delete(l.pods, p.UID)
		return
	}
	l.pods[p.UID] = refs
}

// Forget drops the references of a pod.
func (l *Local) Forget(uid types.UID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.pods, uid)
}
