package objects

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// State holds the API server's answers about the objects to which pods refer. The objects are shared and must not be changed.
type State struct {
	ConfigMaps []*v1.ConfigMap
	Secrets    []*v1.Secret
	// Absent are the ConfigMaps and Secrets that do not exist. Unknown are those for which the API server has not answered yet.
	Absent, Unknown []Name
	Tokens          []Token
	// Services are all services of the namespaces ServicesOf. The services of other namespaces are not known.
	Services   []*v1.Service
	ServicesOf []string
}

// Name names a ConfigMap or a Secret.
type Name struct {
	Secret          bool
	Namespace, Name string
}

// Token is a service account token of a pod. Its times are on the node's clock.
type Token struct {
	Pod                      types.UID
	ServiceAccount, Audience string
	Seconds                  int64 // the lifetime that the pod asked for; 0: none
	Value                    string
	Renew, Expires           time.Time
}

// State returns the API server's answers about the objects to which pods refer, with the services of the given namespaces.
func (o *Objects) State(namespaces []string) State {
	var s State
	o.mu.Lock()
	watched := make([]*object, 0, len(o.watched))
	for _, obj := range o.watched {
		watched = append(watched, obj)
	}
	o.mu.Unlock()
	for _, obj := range watched {
		obj.mu.Lock()
		c, err := obj.content, obj.err
		obj.mu.Unlock()
		name := Name{obj.key.kind == secret, obj.key.namespace, obj.key.name}
		switch {
		case c.configMap != nil:
			s.ConfigMaps = append(s.ConfigMaps, c.configMap)
		case c.secret != nil:
			s.Secrets = append(s.Secrets, c.secret)
		case apierrors.IsNotFound(err):
			s.Absent = append(s.Absent, name)
		default:
			s.Unknown = append(s.Unknown, name)
		}
	}
	s.Tokens = o.tokens.state()
	for _, ns := range namespaces {
		if services, synced := o.Services(ns); synced {
			s.Services, s.ServicesOf = append(s.Services, services...), append(s.ServicesOf, ns)
		}
	}
	return s
}

// recalled holds the answers of the API server that an earlier agent got and that Recall has stored.
type recalled struct {
	// offline is true between Recall and Answered. During that time no read sends a request.
	offline atomic.Bool

	mu      sync.Mutex
	objects map[key]content // the zero content: there is no such object
}

func (r *recalled) object(k key) (content, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c, ok := r.objects[k]
	return c, ok
}

// Recall makes Objects return the objects and tokens of s, which an earlier agent got from State, until the API server answers. Until
// Answered is called, no read sends a request, and a token is returned even if it has expired. The watches of ConfigMaps, Secrets and
// Services keep trying, and their answers replace the recalled objects.
func (o *Objects) Recall(s State) {
	objects := map[key]content{}
	for _, c := range s.ConfigMaps {
		objects[key{configMap, c.Namespace, c.Name}] = contentOf(c)
	}
	for _, c := range s.Secrets {
		objects[key{secret, c.Namespace, c.Name}] = contentOf(c)
	}
	for _, n := range s.Absent {
		k := key{configMap, n.Namespace, n.Name}
		if n.Secret {
			k.kind = secret
		}
		objects[k] = content{}
	}
	o.recall.mu.Lock()
	o.recall.objects = objects
	o.recall.mu.Unlock()
	o.recall.offline.Store(true)
	o.tokens.recall(s.Tokens)
	o.services.recall(s.Services, s.ServicesOf)
	o.mu.Lock()
	waiting := make(map[*object]content)
	for k, obj := range o.watched {
		if c, ok := objects[k]; ok {
			waiting[obj] = c
		}
	}
	o.mu.Unlock()
	for obj, c := range waiting {
		obj.recall(c)
	}
}

// Answered ends Recall: reads send requests again. It notifies the pods whose tokens are due for renewal.
func (o *Objects) Answered() {
	if !o.recall.offline.Swap(false) {
		return
	}
	o.recall.mu.Lock()
	o.recall.objects = nil
	o.recall.mu.Unlock()
	for _, uid := range o.tokens.answered() {
		o.cfg.Notify(uid)
	}
}

// Expired lists the tokens of a pod that are in use although they have expired, because the API server has not answered.
func (o *Objects) Expired(uid types.UID) []Token { return o.tokens.expired(uid) }

// recalledContent returns the recalled state of an object, and sends no request. If a watch has already answered for obj, it returns
// that answer. obj may be nil.
func (o *Objects) recalledContent(obj *object, k key) (content, error) {
	if obj != nil {
		obj.mu.Lock()
		defer obj.mu.Unlock()
		if obj.known() {
			return obj.content, obj.err
		}
		obj.missed = true // the pod tries again when the API server answers
	}
	c, ok := o.recall.object(k)
	switch {
	case ok && c.exists():
		return c, nil
	case ok:
		return content{}, k.notFound()
	}
	return content{}, fmt.Errorf("read %s: the API server does not answer, and the record of what it last said does not have the object", k)
}

func (s *serviceStore) recall(services []*v1.Service, namespaces []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.synced {
		return
	}
	for _, svc := range services {
		s.all = s.all.After(watch.Added, svc)
	}
	s.recalled = namespaces
}

// state lists the tokens of all tracked pods.
func (t *tokens) state() (out []Token) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for uid := range t.pods {
		out = append(out, t.of(uid)...)
	}
	return out
}

// of lists the tokens of a pod. The lock is held.
func (t *tokens) of(uid types.UID) (out []Token) {
	for h := t.pods[uid]; h != nil; h = h.next {
		out = append(out, Token{
			Pod: uid, ServiceAccount: h.serviceAccount, Audience: h.audience, Seconds: h.seconds, Value: h.value, Renew: h.renew, Expires: h.expires(),
		})
	}
	return out
}

// recall stores tokens of an earlier agent, also for pods that are not tracked yet.
func (t *tokens) recall(all []Token) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.offline = true
	for _, k := range all {
		request := tokenKey{k.ServiceAccount, k.Audience, k.Seconds}
		if t.has(k.Pod, request).value != "" {
			continue
		}
		t.pods[k.Pod] = &heldToken{request, token{value: k.Value, renew: k.Renew, left: k.Expires.Sub(k.Renew)}, t.pods[k.Pod]}
	}
	t.rounds.Wake()
}

// answered ends the time in which tokens are not renewed. It returns the pods with a token that is due for renewal.
func (t *tokens) answered() (due []types.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.offline = false
	now := time.Now()
	for uid, h := range t.pods {
		for ; h != nil; h = h.next {
			if h.due(now) {
				due = append(due, uid)
				break
			}
		}
	}
	return due
}

func (t *tokens) expired(uid types.UID) (out []Token) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, k := range t.of(uid) {
		if !time.Now().Before(k.Expires) {
			out = append(out, k)
		}
	}
	return out
}

var errNoToken = errors.New("request token: the API server does not answer, and the record of what it last said does not have this token")

// lastKnown returns the token that a pod already has, even if it has expired: the pod can run, and its token is renewed as soon as the
// API server answers.
func (t *tokens) lastKnown(p *v1.Pod, k tokenKey, held token) (string, time.Time, error) {
	if held.value == "" {
		return "", time.Time{}, errNoToken
	}
	if expires := held.expires(); !time.Now().Before(expires) {
		t.log.Warn("the service account token of a pod has expired; the pod uses it until the API server answers", "pod", p.Namespace+"/"+p.Name,
			"serviceAccount", k.serviceAccount, "expired", expires)
		t.expires(p, k.serviceAccount, expires)
	}
	return held.value, held.expires(), nil
}
