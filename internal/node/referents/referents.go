package referents

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/edge/mirror"
	"github.com/wherry-node/wherry/internal/edge/objects"
)

// Config configures Referents.
type Config struct {
	// Local has the ConfigMaps and Secrets that came with the manifests of static pods, or with pods that were pushed. Required.
	Local *objects.Local
	// API has the objects of the API server; nil: there is no API server, and Classes is not used.
	API     *objects.Objects
	Classes Classes
	// Handlers returns the names of the runtime's handlers, if the runtime reports them.
	Handlers func() []string
	// APIForStatic lets static pods use objects of the API if no manifest has them (feature gate PreventStaticPodAPIReferences is
	// off).
	APIForStatic bool
}

// Classes reads RuntimeClass objects.
type Classes interface {
	Get(ctx context.Context, name string, opts metav1.GetOptions) (*nodev1.RuntimeClass, error)
}

// Referents finds the objects that pods refer to by name. Methods may be called concurrently.
type Referents struct {
	local        *objects.Local
	api          *objects.Objects
	classes      runtimeClasses
	handlers     func() []string
	apiForStatic bool
}

// New returns Referents. It does no IO and starts nothing.
func New(cfg Config) *Referents {
	return &Referents{local: cfg.Local, api: cfg.API, classes: runtimeClasses{api: cfg.Classes}, handlers: cfg.Handlers, apiForStatic: cfg.APIForStatic}
}

// ConfigMap returns the ConfigMap that a pod refers to by a name.
func (r *Referents) ConfigMap(ctx context.Context, p *v1.Pod, name string) (*v1.ConfigMap, error) {
	return lookUp(ctx, r, p, name, r.local.ConfigMap, (*objects.Objects).ConfigMap)
}

// Secret returns the Secret that a pod refers to by a name.
func (r *Referents) Secret(ctx context.Context, p *v1.Pod, name string) (*v1.Secret, error) {
	return lookUp(ctx, r, p, name, r.local.Secret, (*objects.Objects).Secret)
}

// lookUp finds a ConfigMap or a Secret.
func lookUp[T any](ctx context.Context, r *Referents, p *v1.Pod, name string, local func(ns, name string) (T, error),
	api func(o *objects.Objects, ctx context.Context, ns, name string) (T, error)) (T, error) {
	if !r.isLocal(p) {
		return api(r.api, ctx, p.Namespace, name)
	}
	got, err := local(p.Namespace, name)
	if r.api == nil || !r.apiForStatic || !apierrors.IsNotFound(err) {
		return got, err
	}
	got, err = api(r.api, ctx, p.Namespace, name)
	if apierrors.IsForbidden(err) { // the API server lets a node read only the objects that pods of the API refer to
		return got, fmt.Errorf("none of the manifests of static pods has it, and the API server does not give it to them: put it beside the pod's manifest: %w", err)
	}
	return got, err
}

// isLocal reports whether the pod's objects come from manifests.
func (r *Referents) isLocal(p *v1.Pod) bool { return r.api == nil || pod.IsStatic(p) }

// Missing returns a function. The function returns the names of the objects that a static pod refers to and that no manifest contains.
// Missing returns nil if static pods may use objects of the API, or if there is no API server; in both cases such a pod waits for its
// objects.
func (r *Referents) Missing() func(p *v1.Pod) []string {
	if r.api == nil || r.apiForStatic {
		return nil
	}
	return r.local.Missing
}

// Has reports whether the object that a static pod refers to by a name came with this node's manifests. If static pods may not use
// objects of the API, their objects always come with manifests, and Has returns true.
func (r *Referents) Has(kind, namespace, name string) bool {
	if !r.apiForStatic {
		return true
	}
	var err error
	if kind == mirror.KindSecret {
		_, err = r.local.Secret(namespace, name)
	} else {
		_, err = r.local.ConfigMap(namespace, name)
	}
	return err == nil
}

// ServiceAccountToken requests a token for a pod that the API server knows.
func (r *Referents) ServiceAccountToken(ctx context.Context, p *v1.Pod, audience string, expirationSeconds *int64) (string, time.Time, error) {
	switch {
	case r.api == nil:
		return "", time.Time{}, errors.New("this node has no API server that could issue a token: remove the serviceAccountToken source from the pod's volumes, or give it a Secret")
	case pod.IsStatic(p):
		return "", time.Time{}, errors.New("a static pod has no service account in the API server: remove the serviceAccountToken source from the pod's volumes, or give it a Secret")
	}
	return r.api.ServiceAccountToken(ctx, p, audience, expirationSeconds)
}

// TrustAnchors returns the certificates that a clusterTrustBundle source of a pod selects.
func (r *Referents) TrustAnchors(ctx context.Context, p *v1.Pod, src *v1.ClusterTrustBundleProjection) ([]byte, error) {
	if err := r.signs(p, "clusterTrustBundle", "put the certificates into a ConfigMap beside the pod's manifest"); err != nil {
		return nil, err
	}
	return r.api.TrustAnchors(ctx, p.UID, src)
}

// PodCertificate returns the private key and the certificate chain for a podCertificate source of a pod.
func (r *Referents) PodCertificate(ctx context.Context, p *v1.Pod, volume string, source int, have []byte) ([]byte, error) {
	if err := r.signs(p, "podCertificate", "put key and certificate into a Secret beside the pod's manifest"); err != nil {
		return nil, err
	}
	return r.api.PodCertificate(ctx, p, volume, source, have)
}

// signs returns an error if the pod cannot use a source that needs the API server's trust anchors or certificates: this node has no API
// server, or the pod is static. source is the name of the source, and do says what the user can do instead.
func (r *Referents) signs(p *v1.Pod, source, do string) error {
	switch {
	case r.api == nil:
		return fmt.Errorf("%s: this node has no API server: %s", source, do)
	case pod.IsStatic(p):
		return fmt.Errorf("%s: a static pod has no identity in the API server: %s", source, do)
	}
	return nil
}

// Services lists the services of a namespace.
func (r *Referents) Services(namespace string) (services []*v1.Service, synced bool) {
	if r.api == nil {
		return nil, true
	}
	return r.api.Services(namespace)
}

// Track follows the objects that a pod refers to. For a static pod it watches nothing in the API, because the API server would
// refuse that.
func (r *Referents) Track(p *v1.Pod) {
	if r.isLocal(p) {
		r.local.Track(p)
		return
	}
	r.api.Track(p)
}

// Forget ends the tracking of a pod's objects.
func (r *Referents) Forget(uid types.UID) {
	r.local.Forget(uid)
	if r.api != nil {
		r.api.Forget(uid)
	}
}

// Begin starts to follow the tracked objects, until ctx ends. It returns at once. The function join waits until this work has ended.
func (r *Referents) Begin(ctx context.Context) (join func()) {
	if r.api == nil {
		return func() {}
	}
	return r.api.Begin(ctx)
}

// RuntimeHandler resolves spec.runtimeClassName. Without an API server, the name of a class is the name of a handler in the
// runtime's configuration.
func (r *Referents) RuntimeHandler(ctx context.Context, class string) (string, error) {
	if r.api != nil {
		return r.classes.handler(ctx, class)
	}
	names := slices.DeleteFunc(r.handlers(), func(n string) bool { return n == "" })
	if len(names) > 0 && !slices.Contains(names, class) {
		return "", fmt.Errorf("without an API server the name of a runtime class must be a handler of the container runtime: it has no handler %q, only %s",
			class, strings.Join(names, ", "))
	}
	return class, nil
}

// runtimeClasses reads RuntimeClass objects when pods need them, and remembers their handlers for a minute. The handler of a class never
// changes ("handler is immutable"), but a class of the same name may be created again.
type runtimeClasses struct {
	api Classes

	mu   sync.Mutex
	seen map[string]seenClass
}

type seenClass struct {
	handler string
	at      time.Time
}

func (r *runtimeClasses) handler(ctx context.Context, name string) (string, error) {
	r.mu.Lock()
	c, ok := r.seen[name]
	r.mu.Unlock()
	if ok && time.Since(c.at) < time.Minute {
		return c.handler, nil
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	rc, err := r.api.Get(ctx, name, metav1.GetOptions{})
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
