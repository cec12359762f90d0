package objects

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/wherry-node/wherry/internal/base/kubeclient"
	"github.com/wherry-node/wherry/internal/base/rounds"
	"github.com/wherry-node/wherry/internal/core/nodeclock"
)

// Strategy is how Objects finds changes of ConfigMaps and Secrets: configMapAndSecretChangeDetectionStrategy of
// KubeletConfiguration.
type Strategy string

// These are the strategies, with their names in the configuration.
const (
	StrategyWatch Strategy = "Watch" // the default
	StrategyCache Strategy = "Cache" // read again when older than CacheTTL
	StrategyGet   Strategy = "Get"   // read each time
)

// API is the part of the API server that Objects reads. Calls are concurrent.
type API struct {
	ConfigMaps      func(namespace string) Reader[*v1.ConfigMap, *v1.ConfigMapList]
	Secrets         func(namespace string) Reader[*v1.Secret, *v1.SecretList]
	ServiceAccounts func(namespace string) ServiceAccounts
	// Services lists and watches the services of all namespaces. It is not used if NoServices is set.
	Services Watcher[*v1.ServiceList]
	// ClusterTrustBundles and CertificateRequests are nil if their projections are off.
	ClusterTrustBundles Watcher[*certificatesv1beta1.ClusterTrustBundleList]
	CertificateRequests func(namespace string) CertificateRequests
}

// Watcher lists and watches objects.
type Watcher[L any] interface {
	List(ctx context.Context, opts metav1.ListOptions) (L, error)
	Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error)
}

// Reader is a Watcher that also reads a single object.
type Reader[T, L any] interface {
	Watcher[L]
	Get(ctx context.Context, name string, opts metav1.GetOptions) (T, error)
}

// ServiceAccounts reads the service accounts of one namespace and requests tokens for them.
type ServiceAccounts interface {
	Get(ctx context.Context, name string, opts metav1.GetOptions) (*v1.ServiceAccount, error)
	CreateToken(ctx context.Context, name string, req *authenticationv1.TokenRequest, opts metav1.CreateOptions) (*authenticationv1.TokenRequest, error)
}

// Config configures Objects.
type Config struct {
	API API
	Log *slog.Logger
	// Notify is called, from any goroutine, after an object that the pod refers to has changed, and when a token of the pod is due for
	// renewal. It must not block.
	Notify func(uid types.UID)
	// Strategy says how changes of objects are found; default: StrategyWatch.
	Strategy Strategy
	// CacheTTL is how old a stored answer may be with StrategyCache (default: 1 minute). With StrategyCache and StrategyGet it is also
	// how often Notify is called for every pod.
	CacheTTL time.Duration
	// Follow, if set, is used instead of API to list and watch one ConfigMap or Secret, or all Services, until ctx ends or f is
	// done. resource is "configmaps", "secrets" or "services". Follow returns at once; join waits for the end of the watch. For services,
	// f has a method Share, which Follow may call instead of Replace and Apply, so that several Objects share one *Services.
	Follow func(ctx context.Context, resource, namespace, name string, f kubeclient.Followed) (join func())
	// Node returns the name and the UID of this node; the UID is empty until the node is registered. It is called only if
	// API.CertificateRequests is set. It must not block.
	Node func() (name string, uid types.UID)
	// NoServices: do not watch the Services of the cluster. Services then returns an empty, complete list.
	NoServices bool
	// Changed, if set, is called, from any goroutine, after every change of the data that State returns. It must not block.
	Changed func()
	// Expired, if set, is called when a pod gets an expired token because the API server has not answered since Recall (the start from the
	// answers that an earlier agent got). It must not block.
	Expired func(p *v1.Pod, serviceAccount string, expired time.Time)
	// Clock is the node's clock, for the times of certificates. Tokens need no clock: they say how long they are valid.
	Clock nodeclock.Clock
}

// Objects is a view of the API objects that this node's pods refer to.
type Objects struct {
	cfg          Config
	services     *serviceStore
	tokens       *tokens
	certificates certificates
	bundles      bundles

	mu      sync.Mutex
	running context.Context // context of Run; nil: Run does not run
	wg      sync.WaitGroup
	joins   []func()                // functions that each wait for the end of one piece of work that Begin started
	pods    map[types.UID][]*object // the objects that each pod refers to, sorted by key, each once
	watched map[key]*object         // the objects that any pod refers to

	recall recalled
}

// kind is a kind of object that pods refer to.
type kind uint8

const (
	configMap kind = iota
	secret
)

func (k kind) String() string {
	if k == secret {
		return "secret"
	}
	return "configmap"
}

// key names one object.
type key struct {
	kind            kind
	namespace, name string
}

// compareKeys orders keys.
func compareKeys(a, b key) int {
	return cmp.Or(cmp.Compare(a.kind, b.kind), cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.name, b.name))
}

func (k key) String() string { return k.kind.String() + " " + k.namespace + "/" + k.name }

// New returns Objects with the configuration cfg. It does no IO and starts nothing.
func New(cfg Config) *Objects {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Notify == nil {
		cfg.Notify = func(types.UID) {}
	}
	if cfg.Strategy == "" {
		cfg.Strategy = StrategyWatch
	}
	if cfg.CacheTTL <= 0 {
		cfg.CacheTTL = time.Minute
	}
	if cfg.Changed == nil {
		cfg.Changed = func() {}
	}
	if cfg.Expired == nil {
		cfg.Expired = func(*v1.Pod, string, time.Time) {}
	}
	o := &Objects{
		cfg: cfg, services: newServiceStore(cfg), tokens: newTokens(cfg),
		pods: map[types.UID][]*object{}, watched: map[key]*object{},
	}
	o.certificates = certificates{
		requests: cfg.API.CertificateRequests, accounts: cfg.API.ServiceAccounts, node: cfg.Node, log: cfg.Log,
		clock: cfg.Clock, follow: o.followRequest, notify: cfg.Notify, wake: o.tokens.rounds.Wake, pods: map[types.UID]map[certKey]*certificate{},
	}
	o.tokens.also = o.certificates.dueSince
	return o
}

// Begin starts watching until ctx ends. It returns at once; join waits until all goroutines of Objects have ended. Begin may be
// called once.
func (o *Objects) Begin(ctx context.Context) (join func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.running = ctx
	if !o.cfg.NoServices {
		o.follow(ctx, "services", key{}, o.services, func() {}, func(join func()) { o.joins = append(o.joins, join) })
	}
	for _, obj := range o.watched {
		o.start(obj)
	}
	o.startBundles()
	o.joins = append(o.joins, o.tokens.remind(ctx, o.cfg.Notify))
	if o.cfg.Strategy != StrategyWatch {
		o.wg.Go(func() { o.remind(ctx) })
	}
	return o.join
}

// join waits until all goroutines have ended. It must be called after the context of Begin has ended.
func (o *Objects) join() {
	// The context has ended. The method start checks the context while it holds the lock, so after this point it adds no goroutine to the
	// group, and Wait is safe.
	o.mu.Lock()
	//lint:ignore SA2001 a barrier, not a critical section
	o.mu.Unlock()
	o.wg.Wait()
	o.mu.Lock()
	joins := slices.Clone(o.joins)
	for _, obj := range o.watched {
		if obj.join != nil {
			joins = append(joins, obj.join)
		}
	}
	o.mu.Unlock()
	for _, join := range joins {
		join()
	}
}

// Run does the same as Begin, but blocks until ctx has ended and all goroutines of Objects have ended. It may be called once.
func (o *Objects) Run(ctx context.Context) error {
	o.mu.Lock()
	ran := o.running != nil
	o.mu.Unlock()
	if ran {
		return errors.New("objects: Run called twice")
	}
	return rounds.Until(ctx, o.Begin)
}

// remind calls Notify periodically for all pods that refer to an object. It is for the strategies that do not watch objects.
func (o *Objects) remind(ctx context.Context) {
	tick := time.NewTicker(o.cfg.CacheTTL)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		o.mu.Lock()
		var uids []types.UID
		for uid, refs := range o.pods {
			if len(refs) > 0 {
				uids = append(uids, uid)
			}
		}
		o.mu.Unlock()
		for _, uid := range uids {
			o.cfg.Notify(uid)
		}
	}
}

// longestWait is the longest back-off of a watch. It is long because a node watches many objects, and a cluster has many nodes.
const longestWait = 30 * time.Second

// start begins the watch of an object. The lock is held.
func (o *Objects) start(obj *object) {
	if o.cfg.Strategy != StrategyWatch || o.running == nil || o.running.Err() != nil {
		return
	}
	ctx, cancel := context.WithCancel(o.running)
	obj.cancel = cancel
	o.follow(ctx, obj.key.kind.String()+"s", obj.key, obj, cancel, func(join func()) { obj.join = join })
}

// follow lists and watches one object, or all Services, until ctx ends or f is done. Without Config.Follow a goroutine does that,
// and calls ended when it ends. With Config.Follow, follow calls keep, with the lock held, with a function that waits for the end.
func (o *Objects) follow(ctx context.Context, resource string, k key, f kubeclient.Followed, ended func(), keep func(join func())) {
	if o.cfg.Follow == nil {
		o.wg.Go(func() {
			defer ended()
			kubeclient.Follow(ctx, f, longestWait)
		})
		return
	}
	o.wg.Go(func() { // in a goroutine, because Config.Follow calls f, which takes the lock that the caller of follow holds
		join := o.cfg.Follow(ctx, resource, k.namespace, k.name, f)
		o.mu.Lock()
		defer o.mu.Unlock()
		keep(join)
	})
}

// Track stores which objects a pod refers to. It may be called for every change of the pod, and is cheap when the references are
// the same. A pod that has succeeded or failed needs no objects. Nothing is followed for a pod that refers to too many: see TooMany.
// If only its debug containers make them too many, what the pod itself refers to is followed.
func (o *Objects) Track(p *v1.Pod) {
	var wanted []key
	none := p.Status.Phase == v1.PodSucceeded || p.Status.Phase == v1.PodFailed
	if !none {
		wanted = references(p)
		if tooMany(p, wanted) != nil {
			wanted = references(withoutDebug(p))
		}
		if none = tooMany(p, wanted) != nil; none {
			wanted = nil
		}
	}
	o.certificates.track(p, none)
	o.mu.Lock()
	defer o.mu.Unlock()
	before := o.pods[p.UID]
	now := make([]*object, len(wanted))
	for i, k := range wanted {
		obj := o.watched[k]
		if obj == nil {
			obj = newObject(o, k)
			o.watched[k] = obj
			if c, ok := o.recall.object(k); ok {
				obj.recall(c)
			}
			o.start(obj)
		}
		now[i] = obj
	}
	o.pods[p.UID] = now
	changes(before, now, compareKeys, o.unref, func(obj *object) {
		obj.refs++
		obj.expire() // a new pod gets the newest objects, also with a strategy that does not watch
		if p.Status.StartTime == nil {
			o.readAgain(obj)
		}
	})
	o.tokens.track(p)
	o.trackBundles(p, none)
}

// readAgain begins a new watch of an object if the last one has ended because the object is immutable. It is for a pod that is new on this
// node: who changes an immutable object deletes it, and makes another of the same name. The lock is held.
func (o *Objects) readAgain(obj *object) {
	if o.running == nil || o.running.Err() != nil || (o.cfg.Follow != nil && obj.join == nil) { // without join, a goroutine is about to store it
		return
	}
	if !obj.reopen() {
		return
	}
	obj.cancel()
	obj.join = nil
	o.start(obj)
}

// changes calls gone for each object that is only in before, and come for each that is only in now. Both lists are sorted by compare and have
// no duplicates, so each object is compared once: the author of a pod chooses how many there are, and the lock of all pods is held.
func changes(before, now []*object, compare func(a, b key) int, gone, come func(*object)) {
	for len(before) > 0 && len(now) > 0 {
		switch order := compare(before[0].key, now[0].key); {
		case order < 0:
			gone(before[0])
			before = before[1:]
		case order > 0:
			come(now[0])
			now = now[1:]
		default:
			before, now = before[1:], now[1:]
		}
	}
	for _, obj := range before {
		gone(obj)
	}
	for _, obj := range now {
		come(obj)
	}
}

// Forget drops the references of a pod.
func (o *Objects) Forget(uid types.UID) {
	o.certificates.forget(uid)
	o.mu.Lock()
	defer o.mu.Unlock()
	before := o.pods[uid]
	delete(o.pods, uid)
	for _, obj := range before {
		o.unref(obj)
	}
	o.tokens.forget(uid)
	o.forgetBundles(uid)
}

// unref drops the reference of one pod to an object. The lock is held.
func (o *Objects) unref(obj *object) {
	if obj.refs--; obj.refs > 0 {
		return
	}
	delete(o.watched, obj.key)
	if obj.cancel != nil {
		obj.cancel()
	}
}

// interested lists the pods that refer to an object. It searches all pods, because objects seldom change.
func (o *Objects) interested(obj *object) []types.UID {
	o.mu.Lock()
	defer o.mu.Unlock()
	var uids []types.UID
	for uid, refs := range o.pods {
		i, found := slices.BinarySearchFunc(refs, obj.key, func(have *object, k key) int { return compareKeys(have.key, k) })
		if found && refs[i] == obj {
			uids = append(uids, uid)
		}
	}
	return uids
}

// ConfigMap returns a ConfigMap, which is shared and must not be changed. It waits for the first answer of the watch. If no
// tracked pod refers to the object, it reads the object from the API server. If the object is missing, the error satisfies
// apierrors.IsNotFound.
func (o *Objects) ConfigMap(ctx context.Context, namespace, name string) (*v1.ConfigMap, error) {
	c, err := o.read(ctx, key{configMap, namespace, name})
	return c.configMap, err
}

// Secret returns a Secret, which is shared and must not be changed. Like ConfigMap, it waits for the first answer of the watch. If the
// Secret is missing, the error satisfies apierrors.IsNotFound.
func (o *Objects) Secret(ctx context.Context, namespace, name string) (*v1.Secret, error) {
	c, err := o.read(ctx, key{secret, namespace, name})
	return c.secret, err
}

func (o *Objects) read(ctx context.Context, k key) (content, error) {
	o.mu.Lock()
	obj, running := o.watched[k], o.running != nil
	o.mu.Unlock()
	if o.recall.offline.Load() { // send no request, because it may hang
		return o.recalledContent(obj, k)
	}
	switch {
	case obj != nil && o.cfg.Strategy == StrategyGet:
		return obj.fetch(ctx)
	case obj == nil || (o.cfg.Strategy == StrategyWatch && !running):
		return o.get(ctx, k)
	case o.cfg.Strategy == StrategyCache:
		return obj.cached(ctx)
	}
	return obj.wait(ctx)
}

// get reads one object from the API server.
func (o *Objects) get(ctx context.Context, k key) (content, error) {
	if k.kind == secret {
		s, err := o.cfg.API.Secrets(k.namespace).Get(ctx, k.name, metav1.GetOptions{})
		if err != nil {
			return content{}, err
		}
		return contentOf(s), nil
	}
	c, err := o.cfg.API.ConfigMaps(k.namespace).Get(ctx, k.name, metav1.GetOptions{})
	if err != nil {
		return content{}, err
	}
	return contentOf(c), nil
}

// ServiceAccountToken returns a token of the pod's service account that is bound to the pod and for the audience
// (empty: the API server's own). It is renewed at 80 % of its life or after a day; while a renewal fails, the old
// one is returned as long as it is valid. Expires is a time of the node's clock.
func (o *Objects) ServiceAccountToken(ctx context.Context, p *v1.Pod, audience string, expirationSeconds *int64) (token string, expires time.Time, err error) {
	return o.tokens.get(ctx, p, audience, expirationSeconds)
}

// Services lists the services of a namespace, with only the fields that environments need. They are shared and must not be
// changed. synced is false until the API server has listed all services once, or Recall has restored those of this namespace.
func (o *Objects) Services(namespace string) (services []*v1.Service, synced bool) {
	if o.cfg.NoServices {
		return nil, true
	}
	return o.services.services(namespace)
}
