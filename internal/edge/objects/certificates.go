package objects

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/wherry-node/wherry/internal/base/kubeclient"
	"github.com/wherry-node/wherry/internal/core/nodeclock"
	"github.com/wherry-node/wherry/internal/core/pod"
)

// CertificateRequests creates and follows the PodCertificateRequests of one namespace.
type CertificateRequests interface {
	Watcher[*certificatesv1beta1.PodCertificateRequestList]
	Create(ctx context.Context, req *certificatesv1beta1.PodCertificateRequest, opts metav1.CreateOptions) (*certificatesv1beta1.PodCertificateRequest, error)
}

// renewSpread is the time over which renewals are spread, so that pods which started together do not renew together.
const renewSpread = 5 * time.Minute

// certificates requests the certificates of podCertificate projections from signers. A certificate of a pod has these states:
//
//	none ──ask──► pending ──issued──► held ──due──► held and pending ──issued──► held
//	                 │                                     │
//	                 └──denied, failed──► refused ◄────────┘  (the old certificate stays in use as long as it is valid)
//
// A refusal is final for the pod, as Kubernetes documents it. The agent requests a certificate while it sets up the pod's volume. It
// watches only requests that are pending.
type certificates struct {
	requests func(namespace string) CertificateRequests // nil: the feature gate is off
	accounts func(namespace string) ServiceAccounts
	node     func() (name string, uid types.UID)
	log      *slog.Logger
	clock    nodeclock.Clock    // Config.Clock
	follow   func(*certRequest) // begins the watch of a request; it must not block
	notify   func(types.UID)
	wake     func() // makes tokens.round check again which renewals are due

	mu sync.Mutex
	// pods has the certificates of each tracked pod that projects one.
	pods map[types.UID]map[certKey]*certificate
}

// certKey names a podCertificate source of a pod: the volume, and the index of the source in it.
type certKey struct {
	volume string
	source int
}

// certificate is the state of one podCertificate source.
type certificate struct {
	signer  string
	held    *credential  // nil: none was issued
	pending *certRequest // nil: none is pending
	refused error        // nil: the signer has not refused
}

// track stores which podCertificate sources a pod has. none means that the pod needs no certificates, or none any more.
func (c *certificates) track(p *v1.Pod, none bool) {
	if c.requests == nil {
		return
	}
	now := map[certKey]*certificate{}
	for i := range p.Spec.Volumes {
		src := p.Spec.Volumes[i].Projected
		if src == nil || none {
			continue
		}
		for j := range src.Sources {
			if s := src.Sources[j].PodCertificate; s != nil {
				now[certKey{p.Spec.Volumes[i].Name, j}] = &certificate{signer: s.SignerName}
			}
		}
	}
	if len(now) == 0 {
		c.forget(p.UID)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pods[p.UID] == nil { // the sources of a pod never change
		c.pods[p.UID] = now
	}
}

func (c *certificates) forget(uid types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, cert := range c.pods[uid] {
		if cert.pending != nil && cert.pending.cancel != nil {
			cert.pending.cancel()
		}
	}
	delete(c.pods, uid)
}

// PodCertificate returns the private key and the certificate chain for a podCertificate source of a pod: volume is the name of the volume,
// source the index in its sources. Both are in PEM format, the key first. If there is none yet, the call requests one from the signer and
// returns an error, and Notify is called when the signer has answered. have is what the volume contains already, for example from before a
// restart of the agent. It is used as long as it is valid. The pod has to be tracked.
func (o *Objects) PodCertificate(ctx context.Context, p *v1.Pod, volume string, source int, have []byte) (bundle []byte, err error) {
	c := &o.certificates
	if c.requests == nil {
		return nil, gateOff("podCertificate", "PodCertificateRequest")
	}
	k := certKey{volume, source}
	held, ask, err := c.state(p, k, have)
	if !ask {
		return held.bundle(), err
	}
	req, err := c.request(ctx, p, k)
	c.mu.Lock()
	defer c.mu.Unlock()
	cert := c.pods[p.UID][k]
	switch {
	case cert == nil:
		return nil, errors.New("podCertificate: the pod has ended")
	case err == nil:
		cert.pending = req
		c.follow(req)
	case held == nil:
		return nil, err
	default:
		c.log.Warn("cannot request a new pod certificate, keeping the old one", "pod", p.Namespace+"/"+p.Name,
			"signer", cert.signer, "expires", held.expires, "err", err)
		held.renew = time.Now().Add(renewRetry + rand.N(renewRetry))
		c.remindSoon()
	}
	if held == nil {
		return nil, cert.waits()
	}
	return held.bundle(), nil
}

// state returns the certificate that the pod can use now. ask reports whether the caller has to request a new one. If there is no
// certificate and ask is false, the error says why there is none.
func (c *certificates) state(p *v1.Pod, k certKey, have []byte) (held *credential, ask bool, err error) {
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	cert := c.pods[p.UID][k]
	if cert == nil {
		return nil, false, errors.New("podCertificate: the pod has ended")
	}
	if cert.held == nil && len(have) > 0 {
		cert.held = adopted(have, now, c.clock)
		c.remindSoon()
	}
	if cert.held != nil && now.Before(cert.held.expires) {
		held = cert.held
	}
	if cert.pending != nil && cert.pending.cancel == nil { // Run had not begun when the request was created
		c.follow(cert.pending)
	}
	switch {
	case held != nil && now.Before(held.renew):
		return held, false, nil
	case cert.refused == nil && cert.pending == nil:
		return held, true, nil
	case held != nil:
		return held, false, nil
	case cert.refused != nil:
		return nil, false, cert.refused
	}
	return nil, false, cert.waits()
}

// waits returns the error that a pod gets while its certificate request is pending. It names the request and the signer.
func (cert *certificate) waits() error {
	text := fmt.Sprintf("waits for signer %q to issue podcertificaterequest %q", cert.signer, cert.pending.name)
	if err := cert.pending.lastError(); err != nil {
		text += fmt.Sprintf(" (cannot watch it: %v)", err)
	}
	return &pod.Lacking{What: pod.LackCertificate, Err: errors.New(text)}
}

// request creates a PodCertificateRequest with a new key.
func (c *certificates) request(ctx context.Context, p *v1.Pod, k certKey) (*certRequest, error) {
	src := projectionAt(p, k)
	if src == nil {
		return nil, errors.New("podCertificate: the pod has no such source")
	}
	account := p.Spec.ServiceAccountName
	if account == "" {
		account = "default"
	}
	nodeName, nodeUID := c.node()
	if nodeUID == "" {
		return nil, errors.New("podCertificate: the node is not registered with the API server yet")
	}
	key, csr, err := newKey(src.KeyType)
	if err != nil {
		return nil, err
	}
	req := &certificatesv1beta1.PodCertificateRequest{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: p.Namespace, GenerateName: "req-",
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: p.Name, UID: p.UID}},
		},
		Spec: certificatesv1beta1.PodCertificateRequestSpec{
			SignerName: src.SignerName, PodName: p.Name, PodUID: p.UID, ServiceAccountName: account,
			NodeName: types.NodeName(nodeName), NodeUID: nodeUID, MaxExpirationSeconds: src.MaxExpirationSeconds,
			StubPKCS10Request: csr, UnverifiedUserAnnotations: src.UserAnnotations,
		},
	}
	var made *certificatesv1beta1.PodCertificateRequest
	err = insist(ctx, func(ctx context.Context) error {
		got, err := c.accounts(p.Namespace).Get(ctx, account, metav1.GetOptions{})
		if err != nil {
			return fmt.Errorf("read serviceaccount %s/%s: %w", p.Namespace, account, err)
		}
		req.Spec.ServiceAccountUID = got.UID
		if made, err = c.requests(p.Namespace).Create(ctx, req, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("create podcertificaterequest for signer %s: %w", src.SignerName, err)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return &certRequest{owner: c, pod: p.UID, source: k, namespace: p.Namespace, name: made.Name, node: nodeName, key: key}, nil
}

func projectionAt(p *v1.Pod, k certKey) *v1.PodCertificateProjection {
	for i := range p.Spec.Volumes {
		if vol := &p.Spec.Volumes[i]; vol.Name == k.volume && vol.Projected != nil && k.source < len(vol.Projected.Sources) {
			return vol.Projected.Sources[k.source].PodCertificate
		}
	}
	return nil
}

// dueSince lists the pods with a certificate whose renewal became due after since and not after now. It also returns the earlier of
// next and the time at which another renewal becomes due.
func (c *certificates) dueSince(since, now, next time.Time) ([]types.UID, time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var uids []types.UID
	for uid, certs := range c.pods {
		due := false
		for _, cert := range certs {
			if cert.held == nil {
				continue
			}
			switch at := cert.held.renew; {
			case at.After(now) && at.Before(next):
				next = at
			case at.After(since) && !at.After(now):
				due = true
			}
		}
		if due {
			uids = append(uids, uid)
		}
	}
	return uids, next
}

func (c *certificates) remindSoon() {
	c.wake()
}

// certRequest is a PodCertificateRequest that a signer has not answered. Its key is only in memory.
type certRequest struct {
	owner           *certificates
	pod             types.UID
	source          certKey
	namespace, name string
	node            string
	key             []byte             // the private key, in PEM format
	cancel          context.CancelFunc // ends the watch; nil until it has begun; guarded by owner.mu

	mu       sync.Mutex
	err      error // the last failure of the watch
	failures int
}

var _ kubeclient.Followed = (*certRequest)(nil)

// one restricts opts to this request. It also selects by the node's name, because the API server allows a node no other lists.
func (r *certRequest) one(opts metav1.ListOptions) metav1.ListOptions {
	opts.FieldSelector = fields.AndSelectors(fields.OneTermEqualSelector("spec.nodeName", r.node), fields.OneTermEqualSelector(metav1.ObjectNameField, r.name)).String()
	return opts
}

// List reads the request.
func (r *certRequest) List(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	return r.owner.requests(r.namespace).List(ctx, r.one(opts))
}

// Watch watches the request.
func (r *certRequest) Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	return r.owner.requests(r.namespace).Watch(ctx, r.one(opts))
}

// Replace stores the request. If the request does not exist any more, the next set-up of the volume creates another one.
func (r *certRequest) Replace(items []runtime.Object) (done bool) {
	for _, item := range items {
		if req, ok := item.(*certificatesv1beta1.PodCertificateRequest); ok && req.Name == r.name {
			return r.Apply(watch.Added, req)
		}
	}
	r.end(nil, nil)
	return true
}

// Apply stores a change of the request.
func (r *certRequest) Apply(event watch.EventType, obj runtime.Object) (done bool) {
	req, ok := obj.(*certificatesv1beta1.PodCertificateRequest)
	if !ok || req.Name != r.name {
		return false
	}
	r.mu.Lock()
	r.err, r.failures = nil, 0
	r.mu.Unlock()
	if event == watch.Deleted {
		r.end(nil, nil)
		return true
	}
	for i := range req.Status.Conditions {
		cond := &req.Status.Conditions[i]
		switch {
		case cond.Status != metav1.ConditionTrue:
		case cond.Type == certificatesv1beta1.PodCertificateRequestConditionTypeIssued:
			r.end(issued(req, r.key, time.Now(), r.owner.clock))
			return true
		case cond.Type == certificatesv1beta1.PodCertificateRequestConditionTypeDenied, cond.Type == certificatesv1beta1.PodCertificateRequestConditionTypeFailed:
			answer := fmt.Errorf("signer %q answered podcertificaterequest %q with %s: %s: %s (the pod keeps this answer: create another pod)",
				req.Spec.SignerName, req.Name, cond.Type, cond.Reason, cond.Message)
			if cond.Type == certificatesv1beta1.PodCertificateRequestConditionTypeDenied {
				answer = denial{answer}
			}
			r.end(nil, answer)
			return true
		}
	}
	return false
}

// end stores the answer: a certificate, a refusal, or neither if the request was deleted.
func (r *certRequest) end(held *credential, refused error) {
	c := r.owner
	c.mu.Lock()
	cert := c.pods[r.pod][r.source]
	if cert == nil || cert.pending != r {
		c.mu.Unlock()
		return
	}
	cert.pending = nil
	if held != nil {
		cert.held = held
	}
	if refused != nil {
		cert.refused = &pod.Lacking{What: pod.LackCertificate, Err: refused}
		c.log.Warn("a signer refused a pod certificate", "podUID", r.pod, "volume", r.source.volume, "err", refused)
	}
	c.remindSoon()
	c.mu.Unlock()
	c.notify(r.pod)
}

// Failed records a failed watch, which Follow tries again.
func (r *certRequest) Failed(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failures++
	r.err = err
	if r.failures == patience {
		r.owner.log.Warn("cannot read podcertificaterequest, will try again", "request", r.namespace+"/"+r.name, "err", err)
	}
}

// lastError returns why the request could not be watched lately, or nil.
func (r *certRequest) lastError() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failures < patience {
		return nil
	}
	return r.err
}

// followRequest begins the watch of a request. The lock of certificates is held.
func (o *Objects) followRequest(r *certRequest) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.running == nil || o.running.Err() != nil {
		return
	}
	ctx, cancel := context.WithCancel(o.running)
	r.cancel = cancel
	o.wg.Go(func() {
		defer cancel()
		kubeclient.Follow(ctx, r, longestWait)
	})
}
