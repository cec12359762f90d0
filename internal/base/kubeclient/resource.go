package kubeclient

import (
	"context"
	"errors"
	"net/url"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/conversion/queryparams"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
)

// Resource is a kind of object of the API, in one namespace or in none. T is the type of an object, L that of a list.
type Resource[T, L runtime.Object] struct {
	client          rest.Interface
	name, namespace string
	newOne          func() T
	newList         func() L
}

// object is a pointer to an API type.
type object[T any] interface {
	*T
	runtime.Object
}

func resource[T, L any, PT object[T], PL object[L]](client rest.Interface, name, namespace string) *Resource[PT, PL] {
	return &Resource[PT, PL]{client, name, namespace, func() PT { return new(T) }, func() PL { return new(L) }}
}

// to sets the resource and the namespace of a request.
func (r *Resource[T, L]) to(req *rest.Request) *rest.Request {
	return req.NamespaceIfScoped(r.namespace, r.namespace != "").Resource(r.name)
}

// Get reads one object.
func (r *Resource[T, L]) Get(ctx context.Context, name string, opts metav1.GetOptions) (T, error) {
	got := r.newOne()
	return got, r.to(r.client.Get()).Name(name).VersionedParams(&opts, params{}).Do(ctx).Into(got)
}

// List reads all objects that opts selects.
func (r *Resource[T, L]) List(ctx context.Context, opts metav1.ListOptions) (L, error) {
	got := r.newList()
	return got, r.to(r.client.Get()).VersionedParams(&opts, params{}).Timeout(timeout(opts)).Do(ctx).Into(got)
}

// Watch watches the objects that opts selects.
func (r *Resource[T, L]) Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	opts.Watch = true
	return r.to(r.client.Get()).VersionedParams(&opts, params{}).Timeout(timeout(opts)).Watch(ctx)
}

// timeout returns how long the client waits: as long as the options allow the server to take.
func timeout(opts metav1.ListOptions) time.Duration {
	if opts.TimeoutSeconds == nil {
		return 0
	}
	return time.Duration(*opts.TimeoutSeconds) * time.Second
}

// Create creates an object and returns it as stored.
func (r *Resource[T, L]) Create(ctx context.Context, obj T, opts metav1.CreateOptions) (T, error) {
	got := r.newOne()
	return got, r.to(r.client.Post()).VersionedParams(&opts, params{}).Body(obj).Do(ctx).Into(got)
}

// Update replaces a whole object.
func (r *Resource[T, L]) Update(ctx context.Context, obj T, opts metav1.UpdateOptions) (T, error) {
	got := r.newOne()
	named, ok := any(obj).(metav1.Object)
	if !ok {
		return got, errors.New("update " + r.name + ": the object has no name")
	}
	return got, r.to(r.client.Put()).Name(named.GetName()).VersionedParams(&opts, params{}).Body(obj).Do(ctx).Into(got)
}

// Patch changes an object, or its subresource ("status").
func (r *Resource[T, L]) Patch(ctx context.Context, name string, kind types.PatchType, body []byte, opts metav1.PatchOptions, subresources ...string) (T, error) {
	got := r.newOne()
	return got, r.to(r.client.Patch(kind)).Name(name).SubResource(subresources...).VersionedParams(&opts, params{}).Body(body).Do(ctx).Into(got)
}

// Unread returns the resource for callers that do not need the objects in the answers: they are not decoded.
func (r *Resource[T, L]) Unread() *Unread[T, L] { return &Unread[T, L]{r} }

// Unread writes objects, and reads of the answers only whether the API server has accepted them.
type Unread[T, L runtime.Object] struct{ of *Resource[T, L] }

// Create creates an object.
func (u *Unread[T, L]) Create(ctx context.Context, obj T, opts metav1.CreateOptions) error {
	return u.of.to(u.of.client.Post()).VersionedParams(&opts, params{}).Body(obj).Do(ctx).Error()
}

// Patch changes an object.
func (u *Unread[T, L]) Patch(ctx context.Context, name string, kind types.PatchType, body []byte, opts metav1.PatchOptions) error {
	return u.of.to(u.of.client.Patch(kind)).Name(name).VersionedParams(&opts, params{}).Body(body).Do(ctx).Error()
}

// Delete deletes an object. With a grace period, the API server only marks the object as being deleted.
func (r *Resource[T, L]) Delete(ctx context.Context, name string, opts metav1.DeleteOptions) error {
	return r.to(r.client.Delete()).Name(name).Body(&opts).Do(ctx).Error()
}

// Question is a resource that is not stored: the client creates an object with a question, and the response has the answer.
type Question[T runtime.Object] struct {
	client rest.Interface
	name   string
	newOne func() T
}

func question[T any, PT object[T]](client rest.Interface, name string) *Question[PT] {
	return &Question[PT]{client, name, func() PT { return new(T) }}
}

// Create sends the question and returns it with the answer.
func (q *Question[T]) Create(ctx context.Context, obj T, opts metav1.CreateOptions) (T, error) {
	got := q.newOne()
	return got, q.client.Post().Resource(q.name).VersionedParams(&opts, params{}).Body(obj).Do(ctx).Into(got)
}

// params encodes options into a URL, by their JSON names.
type params struct{}

var _ runtime.ParameterCodec = params{}

// EncodeParameters returns the options as a query.
func (params) EncodeParameters(options runtime.Object, _ schema.GroupVersion) (url.Values, error) {
	return queryparams.Convert(options)
}

// DecodeParameters fails, because only a server decodes options.
func (params) DecodeParameters(url.Values, schema.GroupVersion, runtime.Object) error {
	return errors.New("a client does not read options")
}
