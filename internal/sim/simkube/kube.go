package simkube

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"maps"
	"net/http"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
)

// Config configures a Kube. The zero value answers at once.
type Config struct {
	// Seed is the seed of the UIDs.
	Seed uint64
	// Latency is the duration of a request. WatchLatency is how long a change takes to reach a watch.
	Latency, WatchLatency time.Duration
	// History is how many changes a watch may be behind before it must list again (410 Gone). Default: 4096.
	History int
	// NoStreamedLists refuses sendInitialEvents, like API servers before 1.32.
	NoStreamedLists bool
	// TokenVolumes adds the volume with a service account token to every pod, as API servers do.
	TokenVolumes bool
	// OnChange is called for each change, in order and with the lock held, so it must not call methods of the Kube. old is nil for Added.
	// For Deleted, old and obj are both the last state.
	OnChange func(typ watch.EventType, old, obj runtime.Object)
	// OnRequest is called at the end of each request, even if the connection broke; concurrently.
	OnRequest func(Request)
}

// Request is one request, as in an API server's audit log.
type Request struct {
	At                                     time.Time
	Agent                                  string // User-Agent
	Verb, Resource, Subresource, Namespace string
	Name                                   string
	Code                                   int // 0: the connection broke
	Took                                   time.Duration
}

// String prints the request as "verb resource[/subresource] [namespace/]name code".
func (r Request) String() string {
	res, name := r.Resource, r.Name
	if r.Subresource != "" {
		res += "/" + r.Subresource
	}
	if r.Namespace != "" {
		name = r.Namespace + "/" + name
	}
	return fmt.Sprintf("%s %s %s %d", r.Verb, res, name, r.Code)
}

// Kube is an API server in memory. All methods may be called concurrently.
type Kube struct {
	cfg Config

	mu      sync.Mutex
	kinds   map[string]*kind // by group/version/resource
	rv      uint64
	log     []change
	oldest  uint64 // a watch from an older version must list again
	watches map[*subscription]bool
	faults  []*Fault
	outage  error
	counts  map[string]int
	made    struct {
		at   int64              // an instant
		uids map[types.UID]bool // the UIDs that were made then
	}
}

// New returns a Kube with the namespaces that every cluster has.
func New(cfg Config) *Kube {
	if cfg.History == 0 {
		cfg.History = 4096
	}
	k := &Kube{cfg: cfg, kinds: kinds(), rv: 1, oldest: 1, watches: map[*subscription]bool{}, counts: map[string]int{}}
	k.made.uids = map[types.UID]bool{}
	for _, ns := range []string{"default", "kube-system", "kube-public", "kube-node-lease"} {
		k.addNamespace(ns)
	}
	return k
}

// addNamespace adds a namespace with the objects that controllers create in each namespace (see fillNamespace).
func (k *Kube) addNamespace(name string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.add("v1/namespaces", &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	k.fillNamespace(name)
}

// fillNamespace adds the objects that controllers create in every namespace. The caller holds the lock.
func (k *Kube) fillNamespace(name string) {
	k.add("v1/serviceaccounts", &v1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "default"}})
	k.add("v1/configmaps", &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "kube-root-ca.crt"}, Data: map[string]string{"ca.crt": "simulated"}})
}

// add stores a valid object. The caller holds the lock.
func (k *Kube) add(which string, obj runtime.Object) {
	kd := k.kinds[which]
	k.prepareCreate(kd, obj)
	k.commit(kd, nil, obj)
}

// RESTConfig returns a client configuration for this Kube. agent is its User-Agent.
func (k *Kube) RESTConfig(agent string) *rest.Config {
	return &rest.Config{Host: "http://simkube", Transport: k, UserAgent: agent, QPS: -1}
}

// uid derives the UID of a new object from its kind, its name and the time, and not from a count: in virtual time, the order of what is created at the
// same instant changes from run to run. The caller holds the lock.
func (k *Kube) uid(kind, namespace, name string) types.UID {
	now := time.Now().UnixNano()
	if now != k.made.at {
		k.made.at = now
		clear(k.made.uids)
	}
	for n := 0; ; n++ { // more than once for an object that is deleted and created again at the same instant
		b := sha256.Sum256(fmt.Appendf(nil, "%d %s %s/%s %d %d", k.cfg.Seed, kind, namespace, name, now, n))
		b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
		uid := types.UID(fmt.Sprintf("%x-%x-%x-%x-%x", b[0:4], b[4:6], b[6:8], b[8:10], b[10:16]))
		if !k.made.uids[uid] {
			k.made.uids[uid] = true
			return uid
		}
	}
}

// Count returns the number of requests by "verb resource[/subresource]".
func (k *Kube) Count(what string) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.counts[what]
}

// Counts returns the numbers of requests by the same names as Count.
func (k *Kube) Counts() map[string]int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return maps.Clone(k.counts)
}

// Total returns the number of all requests.
func (k *Kube) Total() (n int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, c := range k.counts {
		n += c
	}
	return n
}

// RoundTrip answers a request in process.
func (k *Kube) RoundTrip(r *http.Request) (*http.Response, error) {
	began := time.Now()
	req, a, err := k.answer(r)
	if r.Body != nil {
		_ = r.Body.Close() // a reader in memory
	}
	if req != nil {
		k.note(req, a, began)
	}
	if err != nil {
		return nil, err
	}
	return &http.Response{
		Status: fmt.Sprintf("%d %s", a.code, http.StatusText(a.code)), StatusCode: a.code, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: a.body, ContentLength: -1, Request: r,
	}, nil
}

// ServeHTTP answers a request over a connection.
func (k *Kube) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	resp, err := k.RoundTrip(r)
	if err != nil {
		panic(http.ErrAbortHandler) // this breaks the connection, which is the injected fault
	}
	defer func() { _ = resp.Body.Close() }()
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(resp.StatusCode)
	flush := func() {
		if f, ok := w.(http.Flusher); ok {
			f.Flush()
		}
	}
	flush() // so that the client sees that the watch has begun, although there is no event yet
	buf := make([]byte, 32<<10)
	for err == nil {
		var n int
		n, err = resp.Body.Read(buf)
		if _, failed := w.Write(buf[:n]); failed != nil {
			return
		}
		flush()
	}
	if err != io.EOF {
		panic(http.ErrAbortHandler) // a watch that an injected fault cut: the client sees a broken connection
	}
}

func (k *Kube) note(req *request, a answer, began time.Time) {
	what := req.verb + " " + req.resource
	if req.sub != "" {
		what += "/" + req.sub
	}
	k.mu.Lock()
	k.counts[what]++
	k.mu.Unlock()
	if k.cfg.OnRequest != nil {
		k.cfg.OnRequest(Request{At: began, Agent: req.agent, Verb: req.verb, Resource: req.resource, Subresource: req.sub,
			Namespace: req.namespace, Name: req.name, Code: a.code, Took: time.Since(began)})
	}
}

// answer performs a request, with its latency and its faults.
func (k *Kube) answer(r *http.Request) (*request, answer, error) {
	req, body, err := readRequest(r)
	if err != nil {
		return nil, failure(err), nil
	}
	ctx := r.Context()
	f := k.fault(req)
	wait := k.cfg.Latency
	if f != nil && f.Effect != Lost {
		wait += f.Delay
	}
	if f != nil && f.Effect == Hang {
		wait = -1
	}
	if err := k.pause(ctx, wait); err != nil {
		return req, answer{}, err
	}
	if f != nil && f.Effect == Refuse {
		return req, failure(f.Err), nil
	}
	if f != nil && f.Effect == Break {
		return req, answer{}, errReset
	}
	a, err := k.do(ctx, req, body)
	if err != nil {
		a = failure(err)
	}
	if f != nil && f.Effect == Lost {
		_ = a.body.Close()
		if err := k.pause(ctx, f.Delay); err != nil {
			return req, answer{}, err
		}
		return req, answer{}, errReset
	}
	return req, a, nil
}

// pause waits for d, or until ctx ends if d is negative. It fails during an outage.
func (k *Kube) pause(ctx context.Context, d time.Duration) error {
	if err := k.down(); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if d == 0 {
		return nil
	}
	var fired <-chan time.Time
	if d > 0 {
		t := time.NewTimer(d)
		defer t.Stop()
		fired = t.C
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-fired:
	}
	return k.down()
}

// answer is a response.
type answer struct {
	code int
	body io.ReadCloser
}
