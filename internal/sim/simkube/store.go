package simkube

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// object is one stored version of an API object. It is never modified.
type object struct {
	obj  runtime.Object
	meta metav1.Object
	json []byte
	rv   uint64
}

func key(namespace, name string) string { return namespace + "/" + name }

// commit stores a state under the next version and passes it to the watches. A nil obj deletes old. The caller holds the lock.
func (k *Kube) commit(kd *kind, old *object, obj runtime.Object) *object {
	k.rv++
	typ, o := watch.Modified, &object{obj: obj, rv: k.rv}
	switch {
	case obj == nil:
		typ, o.obj = watch.Deleted, old.obj.DeepCopyObject()
	case old == nil:
		typ = watch.Added
	}
	m := metaOf(o.obj)
	m.SetResourceVersion(strconv.FormatUint(k.rv, 10))
	o.meta, o.json = m, encode(kd.gvk, o.obj)
	id := key(m.GetNamespace(), m.GetName())
	if typ == watch.Deleted {
		delete(kd.objects, id)
	} else {
		kd.objects[id] = o
	}
	c := change{kind: kd, typ: typ, old: old, cur: o}
	k.log = append(k.log, c)
	if over := len(k.log) - k.cfg.History; over > 0 && over >= k.cfg.History/4 {
		k.oldest = k.log[over-1].cur.rv
		k.log = slices.Clone(k.log[over:])
	}
	if k.cfg.OnChange != nil {
		var before runtime.Object
		if old != nil {
			before = old.obj
		}
		k.cfg.OnChange(typ, before, o.obj)
	}
	for s := range k.watches {
		s.offer(c)
	}
	return o
}

// Compact forgets the history of changes. A watch from a version before the current one must list again.
func (k *Kube) Compact() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.log, k.oldest = nil, k.rv
}

// find returns the object that the request names. The caller holds the lock.
func (k *Kube) find(kd *kind, req *request) (*object, error) {
	if o := kd.objects[key(req.namespace, req.name)]; o != nil {
		return o, nil
	}
	return nil, apierrors.NewNotFound(kd.gr(), req.name)
}

func (k *Kube) get(kd *kind, req *request) (answer, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	o, err := k.find(kd, req)
	if err != nil {
		return answer{}, err
	}
	return raw(http.StatusOK, o.json), nil
}

// selector selects the objects of a list or watch.
type selector struct {
	namespace string
	labels    labels.Selector
	fields    fields.Selector
}

func readSelector(kd *kind, req *request) (s selector, err error) {
	s.namespace = req.namespace
	if s.labels, err = labels.Parse(req.query.Get("labelSelector")); err != nil {
		return s, apierrors.NewBadRequest("labelSelector: " + err.Error())
	}
	if s.fields, err = fields.ParseSelector(req.query.Get("fieldSelector")); err != nil {
		return s, apierrors.NewBadRequest("fieldSelector: " + err.Error())
	}
	known := fieldsOf(kd.new())
	for _, r := range s.fields.Requirements() {
		if _, ok := known[r.Field]; !ok {
			return s, apierrors.NewBadRequest(fmt.Sprintf("Unable to find %q that match label selector %q, field selector %q: field label not supported: %s",
				kd.gr(), req.query.Get("labelSelector"), req.query.Get("fieldSelector"), r.Field))
		}
	}
	if req.name != "" { // a watch of one object by its path
		s.fields = fields.AndSelectors(s.fields, fields.OneTermEqualSelector("metadata.name", req.name))
	}
	return s, nil
}

func (s *selector) matches(o *object) bool {
	if o == nil || (s.namespace != "" && s.namespace != o.meta.GetNamespace()) {
		return false
	}
	return s.labels.Matches(labels.Set(o.meta.GetLabels())) && (s.fields.Empty() || s.fields.Matches(fieldsOf(o.obj)))
}

// fieldsOf returns the fields by which objects can be selected.
func fieldsOf(obj runtime.Object) fields.Set {
	m, err := meta.Accessor(obj)
	if err != nil {
		return fields.Set{}
	}
	f := fields.Set{"metadata.name": m.GetName(), "metadata.namespace": m.GetNamespace()}
	switch o := obj.(type) {
	case *v1.Pod:
		f["spec.nodeName"], f["spec.restartPolicy"], f["spec.schedulerName"] = o.Spec.NodeName, string(o.Spec.RestartPolicy), o.Spec.SchedulerName
		f["spec.serviceAccountName"], f["status.phase"], f["status.podIP"] = o.Spec.ServiceAccountName, string(o.Status.Phase), o.Status.PodIP
		f["status.nominatedNodeName"], f["spec.hostNetwork"] = o.Status.NominatedNodeName, strconv.FormatBool(o.Spec.HostNetwork)
	case *v1.Node:
		f["spec.unschedulable"] = strconv.FormatBool(o.Spec.Unschedulable)
	case *v1.Namespace:
		f["status.phase"] = string(o.Status.Phase)
	case *v1.Secret:
		f["type"] = string(o.Type)
	case *certificatesv1.CertificateSigningRequest:
		f["spec.signerName"] = o.Spec.SignerName
	case *certificatesv1beta1.ClusterTrustBundle:
		f["spec.signerName"] = o.Spec.SignerName
	case *certificatesv1beta1.PodCertificateRequest:
		f["spec.nodeName"], f["spec.podName"], f["spec.signerName"] = string(o.Spec.NodeName), o.Spec.PodName, o.Spec.SignerName
	case *v1.Event:
		f["involvedObject.kind"], f["involvedObject.name"], f["involvedObject.namespace"] = o.InvolvedObject.Kind, o.InvolvedObject.Name, o.InvolvedObject.Namespace
		f["involvedObject.uid"], f["involvedObject.fieldPath"] = string(o.InvolvedObject.UID), o.InvolvedObject.FieldPath
		f["reason"], f["type"], f["source"] = o.Reason, o.Type, o.Source.Component
	}
	return f
}

// selected returns the objects that match, sorted by name. The caller holds the lock.
func selected(kd *kind, s *selector) []*object {
	var out []*object
	for _, o := range kd.objects {
		if s.matches(o) {
			out = append(out, o)
		}
	}
	slices.SortFunc(out, func(a, b *object) int {
		return strings.Compare(key(a.meta.GetNamespace(), a.meta.GetName()), key(b.meta.GetNamespace(), b.meta.GetName()))
	})
	return out
}

// list returns all objects that the request selects, in one answer. It ignores the query parameter limit, as an API server may.
func (k *Kube) list(kd *kind, req *request) (answer, error) {
	s, err := readSelector(kd, req)
	if err != nil {
		return answer{}, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if rv, err := version(req); err != nil {
		return answer{}, err
	} else if rv > k.rv {
		return answer{}, tooLarge(rv, k.rv)
	}
	var b strings.Builder
	fmt.Fprintf(&b, `{"kind":"%sList","apiVersion":%q,"metadata":{"resourceVersion":"%d"},"items":[`, kd.gvk.Kind, kd.gvk.GroupVersion().String(), k.rv)
	for i, o := range selected(kd, &s) {
		if i > 0 {
			b.WriteByte(',')
		}
		b.Write(o.json)
	}
	b.WriteString("]}")
	return raw(http.StatusOK, []byte(b.String())), nil
}

// version returns the resourceVersion of a list or watch.
func version(req *request) (uint64, error) {
	s := req.query.Get("resourceVersion")
	if s == "" {
		return 0, nil
	}
	rv, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return 0, apierrors.NewBadRequest("Invalid value: " + strconv.Quote(s) + ": resourceVersion must be a number")
	}
	return rv, nil
}

func tooLarge(want, have uint64) error {
	err := apierrors.NewTimeoutError(fmt.Sprintf("Too large resource version: %d, current: %d", want, have), 1)
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge, Message: "Too large resource version"}}
	return err
}

// Pod returns a pod, read only, or nil.
func (k *Kube) Pod(namespace, name string) *v1.Pod {
	k.mu.Lock()
	defer k.mu.Unlock()
	if o := k.kinds["v1/pods"].objects[key(namespace, name)]; o != nil {
		return o.obj.(*v1.Pod)
	}
	return nil
}

// Restore adds a pod with its old UID and state, like a restored backup. There must be no pod of its name.
func (k *Kube) Restore(p *v1.Pod) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.commit(k.kinds["v1/pods"], nil, p.DeepCopy())
}

// Pods returns all pods by UID, read only.
func (k *Kube) Pods() map[types.UID]*v1.Pod {
	k.mu.Lock()
	defer k.mu.Unlock()
	out := map[types.UID]*v1.Pod{}
	for _, o := range k.kinds["v1/pods"].objects {
		out[o.meta.GetUID()] = o.obj.(*v1.Pod)
	}
	return out
}

// Node returns a node, read only, or nil.
func (k *Kube) Node(name string) *v1.Node {
	k.mu.Lock()
	defer k.mu.Unlock()
	if o := k.kinds["v1/nodes"].objects[key("", name)]; o != nil {
		return o.obj.(*v1.Node)
	}
	return nil
}

// Events returns the events about a pod or node by its name, read only, in no order.
func (k *Kube) Events(namespace, name string) []*v1.Event {
	k.mu.Lock()
	defer k.mu.Unlock()
	var out []*v1.Event
	for _, o := range k.kinds["v1/events"].objects {
		if e := o.obj.(*v1.Event); e.InvolvedObject.Name == name && e.InvolvedObject.Namespace == namespace {
			out = append(out, e)
		}
	}
	return out
}

// ExpireEvents deletes all events, as API servers do after an hour, and forgets the history of all changes. Open watches do not see the
// deletions.
func (k *Kube) ExpireEvents() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.kinds["v1/events"].objects = map[string]*object{}
	k.log, k.oldest = nil, k.rv
}

// RemoveNamespace removes a namespace with all its objects, as its controller does after the deletion.
func (k *Kube) RemoveNamespace(name string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, kd := range k.kinds {
		for _, o := range selected(kd, &selector{namespace: name, labels: labels.Everything(), fields: fields.Everything()}) {
			k.commit(kd, o, nil)
		}
	}
	if o := k.kinds["v1/namespaces"].objects[key("", name)]; o != nil {
		k.commit(k.kinds["v1/namespaces"], o, nil)
	}
}
