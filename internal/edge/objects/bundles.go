package objects

import (
	"bytes"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"

	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/wherry-node/wherry/internal/base/kubeclient"
	"github.com/wherry-node/wherry/internal/core/pod"
)

// bundles follows the ClusterTrustBundles of the cluster while a pod of this node projects one. The API server lets a node list all
// of them, and a pod may select bundles by signer and labels, so there is one watch for all pods.
type bundles struct {
	pods map[types.UID][]*v1.ClusterTrustBundleProjection // guarded by Objects.mu
	list *bundleList                                      // nil: no pod needs a bundle; guarded by Objects.mu
}

// bundle is the part of a ClusterTrustBundle that pods depend on.
type bundle struct {
	name, signer, anchors string
	labels                map[string]string
}

func bundleOf(b *certificatesv1beta1.ClusterTrustBundle) bundle {
	return bundle{name: b.Name, signer: b.Spec.SignerName, anchors: b.Spec.TrustBundle, labels: b.Labels}
}

func (b bundle) same(other bundle) bool {
	return b.name == other.name && b.signer == other.signer && b.anchors == other.anchors && maps.Equal(b.labels, other.labels)
}

// trackBundles stores which ClusterTrustBundles a pod projects. none means that the pod needs none. The caller holds o.mu.
func (o *Objects) trackBundles(p *v1.Pod, none bool) {
	var wanted []*v1.ClusterTrustBundleProjection
	for i := range p.Spec.Volumes {
		src := p.Spec.Volumes[i].Projected
		if src == nil || none {
			continue
		}
		for j := range src.Sources {
			if s := src.Sources[j].ClusterTrustBundle; s != nil {
				wanted = append(wanted, s)
			}
		}
	}
	if len(wanted) == 0 || o.cfg.API.ClusterTrustBundles == nil {
		o.forgetBundles(p.UID)
		return
	}
	if o.bundles.pods == nil {
		o.bundles.pods = map[types.UID][]*v1.ClusterTrustBundleProjection{}
	}
	o.bundles.pods[p.UID] = wanted
	if o.bundles.list == nil {
		o.bundles.list = &bundleList{owner: o, answered: make(chan struct{})}
		o.startBundles()
	}
}

// startBundles begins the watch, if a pod needs it and Run runs. The lock is held.
func (o *Objects) startBundles() {
	l := o.bundles.list
	if l == nil || l.cancel != nil || o.running == nil || o.running.Err() != nil {
		return
	}
	ctx, cancel := context.WithCancel(o.running)
	l.cancel = cancel
	o.wg.Go(func() {
		defer cancel()
		kubeclient.Follow(ctx, l, longestWait)
	})
}

// forgetBundles drops the bundles of a pod. It ends the watch if no other pod needs it. The lock is held.
func (o *Objects) forgetBundles(uid types.UID) {
	delete(o.bundles.pods, uid)
	if l := o.bundles.list; l != nil && len(o.bundles.pods) == 0 {
		if l.cancel != nil {
			l.cancel()
		}
		o.bundles.list = nil
	}
}

// TrustAnchors returns the certificates of the bundles that a source of a pod's projected volume selects, in PEM format without
// headers and comments. Each certificate occurs once. The order depends only on the certificates. The call waits until the API
// server has answered for the first time, or until ctx ends. The pod has to be tracked.
func (o *Objects) TrustAnchors(ctx context.Context, uid types.UID, src *v1.ClusterTrustBundleProjection) ([]byte, error) {
	if o.cfg.API.ClusterTrustBundles == nil {
		return nil, gateOff("clusterTrustBundle", "ClusterTrustBundleProjection")
	}
	o.mu.Lock()
	l := o.bundles.list
	_, tracked := o.bundles.pods[uid]
	o.mu.Unlock()
	if !tracked {
		return nil, errors.New("clusterTrustBundle: the pod has ended")
	}
	all, err := l.wait(ctx)
	if err != nil {
		return nil, fmt.Errorf("read clustertrustbundles: %w", err)
	}
	return anchors(all, src)
}

// gateOff returns the error for a projection whose feature gate is off.
func gateOff(projection, gate string) error {
	return &pod.Lacking{What: pod.LackSupport, Err: fmt.Errorf("%s projections are off on this node: set the feature gate %s of the node agent, and of the API server", projection, gate)}
}

// anchors returns the certificates that src selects.
func anchors(all map[string]bundle, src *v1.ClusterTrustBundleProjection) ([]byte, error) {
	optional := src.Optional != nil && *src.Optional
	if src.Name != nil {
		b, ok := all[*src.Name]
		if !ok && !optional {
			return nil, &pod.Lacking{What: pod.LackBundle, Err: fmt.Errorf(
				"clustertrustbundle %q not found: create it, or mark the source optional; the volume is made as soon as it exists", *src.Name)}
		}
		return merge([]bundle{b}), nil
	}
	if src.SignerName == nil {
		return nil, errors.New("clusterTrustBundle: neither name nor signerName is set")
	}
	selector, err := metav1.LabelSelectorAsSelector(src.LabelSelector) // a nil selector selects nothing, an empty selector selects everything
	if err != nil {
		return nil, fmt.Errorf("clusterTrustBundle: labelSelector: %w", err)
	}
	var selected []bundle
	for _, b := range all {
		if b.signer == *src.SignerName && selector.Matches(labels.Set(b.labels)) {
			selected = append(selected, b)
		}
	}
	if len(selected) == 0 && !optional {
		return nil, &pod.Lacking{What: pod.LackBundle, Err: fmt.Errorf(
			"no clustertrustbundle of signer %q matches the labelSelector %q: create one, or mark the source optional; the volume is made as soon as it exists", *src.SignerName, selector)}
	}
	return merge(selected), nil
}

// merge returns the certificates of the bundles as PEM blocks without headers or other text. The certificates are sorted, and each
// occurs once.
func merge(from []bundle) []byte {
	var certificates [][]byte
	for _, b := range from {
		for block, rest := pem.Decode([]byte(b.anchors)); block != nil; block, rest = pem.Decode(rest) {
			if block.Type == typeCertificate {
				certificates = append(certificates, block.Bytes)
			}
		}
	}
	slices.SortFunc(certificates, bytes.Compare)
	certificates = slices.CompactFunc(certificates, bytes.Equal)
	out := []byte{}
	for _, c := range certificates {
		out = append(out, pem.EncodeToMemory(&pem.Block{Type: typeCertificate, Bytes: c})...)
	}
	return out
}

// bundleList is the state of one watch of all ClusterTrustBundles.
type bundleList struct {
	owner  *Objects
	cancel context.CancelFunc // nil: the watch has not begun; guarded by Objects.mu

	mu       sync.Mutex
	answered chan struct{} // closed when the first answer has come
	byName   map[string]bundle
	err      error // why there is no answer yet; nil: nothing has failed
	failures int   // number of failures in a row
	missed   bool  // a caller gave up waiting, so pods must be notified of the first answer
}

var _ kubeclient.Followed = (*bundleList)(nil)

// wait returns all bundles after the first answer. The map must not be changed.
func (l *bundleList) wait(ctx context.Context) (map[string]bundle, error) {
	select {
	case <-l.answered:
	case <-ctx.Done():
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.byName != nil:
		return l.byName, nil
	case l.err != nil:
		return nil, l.err
	}
	l.missed = true
	return nil, fmt.Errorf("no answer from the API server yet: %w", ctx.Err())
}

// List reads all ClusterTrustBundles of the cluster.
func (l *bundleList) List(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	opts.Limit = kubeclient.PageSize
	return l.owner.cfg.API.ClusterTrustBundles.List(ctx, opts)
}

// Watch watches all bundles.
func (l *bundleList) Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	return l.owner.cfg.API.ClusterTrustBundles.Watch(ctx, opts)
}

// Replace stores all bundles.
func (l *bundleList) Replace(items []runtime.Object) (done bool) {
	now := make(map[string]bundle, len(items))
	for _, item := range items {
		if b, ok := item.(*certificatesv1beta1.ClusterTrustBundle); ok {
			now[b.Name] = bundleOf(b)
		}
	}
	l.set(now)
	return false
}

// Apply stores one change.
func (l *bundleList) Apply(event watch.EventType, obj runtime.Object) (done bool) {
	b, ok := obj.(*certificatesv1beta1.ClusterTrustBundle)
	if !ok {
		return false
	}
	l.mu.Lock()
	now := maps.Clone(l.byName)
	l.mu.Unlock()
	if now == nil {
		now = map[string]bundle{}
	}
	if event == watch.Deleted {
		delete(now, b.Name)
	} else {
		now[b.Name] = bundleOf(b)
	}
	l.set(now)
	return false
}

// set stores the bundles and notifies the pods that project a bundle which has changed.
func (l *bundleList) set(now map[string]bundle) {
	l.mu.Lock()
	before, all := l.byName, l.missed || l.err != nil
	l.byName, l.err, l.failures, l.missed = now, nil, 0, false
	select {
	case <-l.answered:
	default:
		close(l.answered)
	}
	l.mu.Unlock()
	names, signers := map[string]bool{}, map[string]bool{}
	note := func(b bundle) { names[b.name], signers[b.signer] = true, true }
	for name, b := range now {
		if old, ok := before[name]; !ok || !old.same(b) {
			note(b)
			note(old)
		}
	}
	for name, b := range before {
		if _, ok := now[name]; !ok {
			note(b)
		}
	}
	if before == nil && !all { // before is nil when the first list has come: no pod has used older bundles, so none is notified
		return
	}
	for _, uid := range l.owner.trusting(func(s *v1.ClusterTrustBundleProjection) bool {
		return all || (s.Name != nil && names[*s.Name]) || (s.SignerName != nil && signers[*s.SignerName])
	}) {
		l.owner.cfg.Notify(uid)
	}
}

// trusting lists the pods that have a projection of ClusterTrustBundles for which the function concerns returns true.
func (o *Objects) trusting(concerns func(*v1.ClusterTrustBundleProjection) bool) []types.UID {
	o.mu.Lock()
	defer o.mu.Unlock()
	var uids []types.UID
	for uid, wanted := range o.bundles.pods {
		if slices.ContainsFunc(wanted, concerns) {
			uids = append(uids, uid)
		}
	}
	return uids
}

// Failed records a failed read. An earlier answer stays valid. If there is none, callers of wait get the error after as many
// failures as patience says, or at once if the API server does not serve this kind of object.
func (l *bundleList) Failed(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failures++
	if l.failures == patience {
		l.owner.cfg.Log.Warn("cannot read clustertrustbundles, will try again", "err", err)
	}
	unserved := apierrors.IsNotFound(err)
	if l.byName != nil || (l.failures < patience && !unserved) {
		return
	}
	if unserved {
		err = fmt.Errorf("%w (does the API server serve %s? It needs the feature gate ClusterTrustBundle and --runtime-config)", err, strconv.Quote(certificatesv1beta1.SchemeGroupVersion.String()))
	}
	l.err = err
	select {
	case <-l.answered:
	default:
		close(l.answered)
	}
}
