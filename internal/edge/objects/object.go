package objects

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
)

// content is a ConfigMap or a Secret; the zero value is neither. The object is read-only.
type content struct {
	configMap *v1.ConfigMap
	secret    *v1.Secret
}

// contentOf keeps the data of an API object. It drops the metadata to save memory, because kubectl stores a copy of the whole object
// in an annotation.
func contentOf(obj runtime.Object) content {
	slim := func(m metav1.ObjectMeta) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: m.Namespace, Name: m.Name, UID: m.UID, ResourceVersion: m.ResourceVersion}
	}
	switch obj := obj.(type) {
	case *v1.ConfigMap:
		return content{configMap: &v1.ConfigMap{ObjectMeta: slim(obj.ObjectMeta), Data: obj.Data, BinaryData: obj.BinaryData, Immutable: obj.Immutable}}
	case *v1.Secret:
		return content{secret: &v1.Secret{ObjectMeta: slim(obj.ObjectMeta), Data: obj.Data, Type: obj.Type, Immutable: obj.Immutable}}
	}
	return content{}
}

func (c content) exists() bool { return c.configMap != nil || c.secret != nil }

func (c content) immutable() bool {
	switch {
	case c.configMap != nil:
		return c.configMap.Immutable != nil && *c.configMap.Immutable
	case c.secret != nil:
		return c.secret.Immutable != nil && *c.secret.Immutable
	}
	return false
}

// same reports whether the data of two objects are equal.
func (c content) same(d content) bool {
	switch {
	case c.configMap != nil && d.configMap != nil:
		return maps.Equal(c.configMap.Data, d.configMap.Data) && maps.EqualFunc(c.configMap.BinaryData, d.configMap.BinaryData, bytes.Equal)
	case c.secret != nil && d.secret != nil:
		return c.secret.Type == d.secret.Type && maps.EqualFunc(c.secret.Data, d.secret.Data, bytes.Equal)
	}
	return !c.exists() && !d.exists()
}

// patience is how many reads of an object may fail in a row. After that, callers that wait for the first answer get the error.
const patience = 7

// object is one ConfigMap or Secret that pods refer to.
type object struct {
	owner  *Objects
	key    key
	refs   int                // how many pods refer to it; guarded by owner.mu
	cancel context.CancelFunc // ends the watch; nil: the object is not watched; guarded by owner.mu
	join   func()             // waits for the end of a Feed; nil: no Feed follows the object; guarded by owner.mu

	mu       sync.Mutex
	answered chan struct{} // closed when the first answer has come
	content  content
	err      error // why there is no content: NotFound, or the last failure
	failures int   // number of failures in a row
	missed   bool  // a caller of wait gave up before the first answer, so the pods must be notified of that answer
	read     time.Time
	ended    bool          // an answer has ended the watch, because the object is immutable
	again    chan struct{} // closed when the first read after that has answered or failed; nil: there is none
}

func newObject(owner *Objects, k key) *object {
	return &object{owner: owner, key: k, answered: make(chan struct{})}
}

// wait returns the newest content. Before the API server's first answer about the object, wait blocks until that answer or the end of
// ctx.
func (o *object) wait(ctx context.Context) (content, error) {
	select {
	case <-o.answered:
	case <-ctx.Done():
		o.mu.Lock()
		defer o.mu.Unlock()
		select {
		case <-o.answered: // the answer came at the same time as the end of ctx
			return o.content, o.err
		default:
		}
		o.missed = true
		if o.err != nil {
			return content{}, fmt.Errorf("read %s: %w (last answer: %w)", o.key, ctx.Err(), o.err)
		}
		return content{}, fmt.Errorf("read %s: no answer from the API server yet: %w", o.key, ctx.Err())
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if again := o.again; again != nil {
		o.mu.Unlock()
		select {
		case <-again:
		case <-ctx.Done():
		}
		o.mu.Lock()
	}
	return o.content, o.err
}

// reopen reports whether the watch has ended because the object is immutable. If so, it prepares the object for a new watch: wait then
// waits for the first answer of that, but returns the known content if the first read fails.
func (o *object) reopen() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.ended {
		return false
	}
	o.ended, o.again = false, make(chan struct{})
	return true
}

// readAgain ends the waiting of wait for the first read after reopen. The lock is held.
func (o *object) readAgain() {
	if o.again != nil {
		close(o.again)
		o.again = nil
	}
}

// answer stores what the API server has answered. It reports whether the watch ends, because an immutable object does not change.
func (o *object) answer(c content) (done bool) {
	o.mu.Lock()
	o.ended = c.immutable()
	o.setLocked(c, nil)
	return c.immutable()
}

// set stores a new state of the object, and notifies the pods that refer to the object if the state has changed.
func (o *object) set(c content, err error) {
	o.mu.Lock()
	o.setLocked(c, err)
}

// setLocked does the same as set. It is called with the lock held and releases it.
func (o *object) setLocked(c content, err error) {
	news := o.missed
	select {
	case <-o.answered:
		news = !o.content.same(c) || (err == nil) != (o.err == nil)
	default:
		close(o.answered)
	}
	o.content, o.err, o.missed = c, err, false
	o.readAgain()
	o.mu.Unlock()
	o.owner.cfg.Changed()
	if !news {
		return
	}
	for _, uid := range o.owner.interested(o) {
		o.owner.cfg.Notify(uid)
	}
}

func (k key) notFound() error {
	return apierrors.NewNotFound(schema.GroupResource{Resource: k.kind.String() + "s"}, k.name)
}

// one restricts opts to this object, because the Node authorizer does not let a node list or watch more.
func (o *object) one(opts metav1.ListOptions) metav1.ListOptions {
	opts.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, o.key.name).String()
	return opts
}

func (o *object) List(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	api := &o.owner.cfg.API
	if o.key.kind == secret {
		return api.Secrets(o.key.namespace).List(ctx, o.one(opts))
	}
	return api.ConfigMaps(o.key.namespace).List(ctx, o.one(opts))
}

func (o *object) Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	api := &o.owner.cfg.API
	if o.key.kind == secret {
		return api.Secrets(o.key.namespace).Watch(ctx, o.one(opts))
	}
	return api.ConfigMaps(o.key.namespace).Watch(ctx, o.one(opts))
}

func (o *object) Replace(items []runtime.Object) (done bool) {
	o.healthy()
	for _, item := range items {
		if m, ok := item.(metav1.Object); ok && m.GetName() == o.key.name {
			return o.answer(contentOf(item))
		}
	}
	o.set(content{}, o.key.notFound())
	return false
}

func (o *object) Apply(event watch.EventType, obj runtime.Object) (done bool) {
	o.healthy()
	if m, ok := obj.(metav1.Object); !ok || m.GetName() != o.key.name {
		return false
	}
	if event == watch.Deleted {
		o.set(content{}, o.key.notFound())
		return false
	}
	return o.answer(contentOf(obj))
}

func (o *object) healthy() {
	o.mu.Lock()
	o.failures = 0
	o.mu.Unlock()
}

// Failed records a failed read. An earlier answer stays valid. If there is none, callers of wait get the error after as many
// failures as patience says.
func (o *object) Failed(err error) {
	o.mu.Lock()
	o.failures++
	o.readAgain()
	n, empty := o.failures, !o.content.exists()
	first := false
	select {
	case <-o.answered:
	default:
		first = true
		o.err = err
	}
	o.mu.Unlock()
	if n == patience {
		o.owner.cfg.Log.Warn("cannot read object, will try again", "object", o.key.String(), "err", err)
	}
	if first && empty && n >= patience {
		o.set(content{}, err)
	}
}

// expire makes the next call of cached send a request.
func (o *object) expire() {
	o.mu.Lock()
	o.read = time.Time{}
	o.mu.Unlock()
}

// cached returns the last answer if it is recent enough, and otherwise reads the object.
func (o *object) cached(ctx context.Context) (content, error) {
	o.mu.Lock()
	c, err, fresh := o.content, o.err, !o.read.IsZero() && time.Since(o.read) < o.owner.cfg.CacheTTL
	o.mu.Unlock()
	if fresh {
		return c, err
	}
	return o.fetch(ctx)
}

// fetch reads the object from the API server and stores the answer.
func (o *object) fetch(ctx context.Context) (content, error) {
	began := time.Now()
	c, err := o.owner.get(ctx, o.key)
	if err != nil && !apierrors.IsNotFound(err) {
		return c, err // a failed read is not stored
	}
	o.mu.Lock()
	o.content, o.err, o.read = c, err, began
	o.mu.Unlock()
	o.owner.cfg.Changed()
	return c, err
}

// recall stores the answer c that an earlier agent got from the API server, unless this agent has got an answer already. A later answer of
// the watch replaces c.
func (o *object) recall(c content) {
	var err error
	if !c.exists() {
		err = o.key.notFound()
	}
	o.mu.Lock()
	if o.known() {
		o.mu.Unlock()
		return
	}
	o.setLocked(c, err)
}

// known reports whether the API server has answered that the object exists or that it does not. It is called with the lock held.
func (o *object) known() bool { return o.content.exists() || apierrors.IsNotFound(o.err) }
