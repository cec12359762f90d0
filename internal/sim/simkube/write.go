package simkube

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/wherry-node/wherry/internal/core/mergepatch"
)

func metaOf(obj runtime.Object) metav1.Object {
	m, err := meta.Accessor(obj)
	if err != nil { // every kind has metadata
		panic(fmt.Sprintf("simkube: %v", err))
	}
	return m
}

// create stores a new object.
func (k *Kube) create(kd *kind, req *request, body []byte) (answer, error) {
	obj, err := decode(kd, body)
	if err != nil {
		return answer{}, err
	}
	m := metaOf(obj)
	if kd.namespaced && m.GetNamespace() == "" {
		m.SetNamespace(req.namespace)
	}
	if kd.namespaced && m.GetNamespace() != req.namespace {
		return answer{}, apierrors.NewBadRequest("the namespace of the provided object does not match the namespace sent on the request")
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if m.GetName() == "" && m.GetGenerateName() != "" {
		m.SetName(m.GetGenerateName() + string(k.uid("", m.GetNamespace(), m.GetGenerateName()))[:5])
	}
	if err := k.check(kd, obj); err != nil {
		return answer{}, err
	}
	if kd.objects[key(m.GetNamespace(), m.GetName())] != nil {
		return answer{}, apierrors.NewAlreadyExists(kd.gr(), m.GetName())
	}
	if m.GetResourceVersion() != "" {
		return answer{}, apierrors.NewBadRequest("resourceVersion should not be set on objects to be created")
	}
	k.prepareCreate(kd, obj)
	o := k.commit(kd, nil, obj)
	if kd.resource == "namespaces" {
		k.fillNamespace(m.GetName())
	}
	return raw(http.StatusCreated, o.json), nil
}

// check performs the few validations that simkube has. The caller holds the lock.
func (k *Kube) check(kd *kind, obj runtime.Object) error {
	m := metaOf(obj)
	if kd.namespaced && k.kinds["v1/namespaces"].objects[key("", m.GetNamespace())] == nil {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, m.GetNamespace())
	}
	var errs field.ErrorList
	if m.GetName() == "" {
		errs = append(errs, field.Required(field.NewPath("metadata", "name"), "name or generateName is required"))
	}
	if p, ok := obj.(*v1.Pod); ok {
		if len(p.Spec.Containers) == 0 {
			errs = append(errs, field.Required(field.NewPath("spec", "containers"), ""))
		}
		for i := range p.Spec.Containers {
			if p.Spec.Containers[i].Name == "" {
				errs = append(errs, field.Required(field.NewPath("spec", "containers").Index(i).Child("name"), ""))
			}
		}
		if err := refuseMirror(p); err != nil {
			return err
		}
		if account := p.Spec.ServiceAccountName; account != "" && k.kinds["v1/serviceaccounts"].objects[key(p.Namespace, account)] == nil {
			return apierrors.NewForbidden(kd.gr(), p.Name, fmt.Errorf("error looking up service account %s/%s: serviceaccount %q not found", p.Namespace, account, account))
		}
	}
	if len(errs) > 0 {
		return apierrors.NewInvalid(kd.gvk.GroupKind(), m.GetName(), errs)
	}
	return nil
}

// prepareCreate sets the fields that the server sets. The caller holds the lock.
func (k *Kube) prepareCreate(kd *kind, obj runtime.Object) {
	m := metaOf(obj)
	m.SetUID(k.uid(kd.resource, m.GetNamespace(), m.GetName()))
	m.SetCreationTimestamp(metav1.NewTime(time.Now().Truncate(time.Second)))
	m.SetDeletionTimestamp(nil)
	m.SetDeletionGracePeriodSeconds(nil)
	m.SetGeneration(0)
	m.SetManagedFields(nil) // simkube tracks none
	switch o := obj.(type) {
	case *v1.Pod:
		o.Generation = 1
		k.defaultPod(o)
		o.Status = v1.PodStatus{Phase: v1.PodPending, QOSClass: qosClass(o)}
	case *v1.Namespace:
		o.Status.Phase = v1.NamespaceActive
		o.Spec.Finalizers = []v1.FinalizerName{v1.FinalizerKubernetes}
	case *v1.Secret:
		if o.Type == "" {
			o.Type = v1.SecretTypeOpaque
		}
	}
}

// update handles PUT and PATCH.
func (k *Kube) update(kd *kind, req *request, body []byte) (answer, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	old, err := k.find(kd, req)
	if err != nil {
		return answer{}, err
	}
	if req.verb == "patch" {
		if body, err = patched(kd, req, old, body); err != nil {
			return answer{}, err
		}
	}
	obj, err := decode(kd, body)
	if err != nil {
		return answer{}, err
	}
	m := metaOf(obj)
	if kd.namespaced && m.GetNamespace() == "" {
		m.SetNamespace(req.namespace)
	}
	if kd.namespaced && m.GetNamespace() != req.namespace {
		return answer{}, apierrors.NewBadRequest("the namespace of the provided object does not match the namespace sent on the request")
	}
	if uid := m.GetUID(); uid != "" && uid != old.meta.GetUID() {
		if req.verb == "patch" {
			return answer{}, apierrors.NewInvalid(kd.gvk.GroupKind(), req.name, field.ErrorList{field.Invalid(field.NewPath("metadata", "uid"), uid, "field is immutable")})
		}
		//lint:ignore ST1005 the text is the API server's
		return answer{}, apierrors.NewConflict(kd.gr(), req.name, fmt.Errorf("Precondition failed: UID in precondition: %v, UID in object meta: %v", uid, old.meta.GetUID()))
	}
	if rv := m.GetResourceVersion(); rv != "" && rv != old.meta.GetResourceVersion() {
		return answer{}, apierrors.NewConflict(kd.gr(), req.name, errors.New("the object has been modified; please apply your changes to the latest version and try again"))
	}
	if m.GetName() != req.name {
		return answer{}, apierrors.NewBadRequest("the name of the object does not match the name on the URL")
	}
	m.SetManagedFields(nil)
	prepareUpdate(old.obj, obj, req.sub)
	if err := checkUpdate(kd, old.obj, obj, req.sub); err != nil {
		return answer{}, err
	}
	m.SetResourceVersion(old.meta.GetResourceVersion())
	obj.GetObjectKind().SetGroupVersionKind(kd.gvk)
	if equality.Semantic.DeepEqual(old.obj, obj) {
		return raw(http.StatusOK, old.json), nil // nothing changes, so the version stays
	}
	o := k.commit(kd, old, obj)
	if grace := m.GetDeletionGracePeriodSeconds(); m.GetDeletionTimestamp() != nil && len(m.GetFinalizers()) == 0 && (grace == nil || *grace == 0) {
		k.commit(kd, o, nil) // the last finalizer is gone
	}
	return raw(http.StatusOK, o.json), nil
}

// patched returns the object after a patch, as JSON.
func patched(kd *kind, req *request, old *object, patch []byte) ([]byte, error) {
	switch types.PatchType(req.contentType) {
	case types.StrategicMergePatchType:
		out, err := mergepatch.Apply(old.json, patch, kd.new())
		if err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		return out, nil
	case types.MergePatchType:
		var from, to any
		if err := errors.Join(utiljson.Unmarshal(old.json, &from), utiljson.Unmarshal(patch, &to)); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		return json.Marshal(merge(from, to))
	}
	return nil, apierrors.NewGenericServerResponse(http.StatusUnsupportedMediaType, "patch", kd.gr(), req.name,
		"simkube applies strategic merge and merge patches, not "+req.contentType, 0, true)
}

// merge applies a merge patch (RFC 7386).
func merge(old, patch any) any {
	p, ok := patch.(map[string]any)
	if !ok {
		return patch
	}
	out, ok := old.(map[string]any)
	if !ok {
		out = map[string]any{}
	}
	for k, v := range p {
		if v == nil {
			delete(out, k)
			continue
		}
		out[k] = merge(out[k], v)
	}
	return out
}

// prepareUpdate restores the fields that the caller may not change: all but the status for the status subresource, otherwise
// the status.
func prepareUpdate(old, obj runtime.Object, sub string) {
	was, m := metaOf(old), metaOf(obj)
	m.SetUID(was.GetUID())
	m.SetCreationTimestamp(was.GetCreationTimestamp())
	m.SetDeletionTimestamp(was.GetDeletionTimestamp())
	m.SetDeletionGracePeriodSeconds(was.GetDeletionGracePeriodSeconds())
	m.SetGeneration(was.GetGeneration())
	switch o := obj.(type) {
	case *v1.Pod:
		b := old.(*v1.Pod)
		switch sub {
		case "status":
			o.Spec, o.OwnerReferences = b.Spec, b.OwnerReferences
			if o.Status.QOSClass == "" {
				o.Status.QOSClass = b.Status.QOSClass
			}
			keepGenerations(&b.Status, &o.Status)
		case "ephemeralcontainers":
			spec := *b.Spec.DeepCopy()
			spec.EphemeralContainers = o.Spec.EphemeralContainers
			o.Spec, o.Status = spec, b.Status
		case "resize": // the resize subresource changes nothing but resources
			spec := *b.Spec.DeepCopy()
			spec.Resources = o.Spec.Resources
			takeResources(spec.InitContainers, o.Spec.InitContainers)
			takeResources(spec.Containers, o.Spec.Containers)
			o.Spec, o.Status = spec, b.Status
		default:
			o.Status = b.Status
		}
		if !equality.Semantic.DeepEqual(o.Spec, b.Spec) {
			o.Generation++
		}
	case *v1.Node:
		if b := old.(*v1.Node); sub == "status" {
			o.Spec = b.Spec
		} else {
			o.Status = b.Status
		}
	case *v1.Namespace:
		if b := old.(*v1.Namespace); sub == "status" {
			o.Spec = b.Spec
		} else {
			o.Status = b.Status
		}
	case *v1.PersistentVolumeClaim:
		if b := old.(*v1.PersistentVolumeClaim); sub == "status" {
			o.Spec = b.Spec
		} else {
			o.Status = b.Status
		}
	case *v1.PersistentVolume:
		if b := old.(*v1.PersistentVolume); sub == "status" {
			o.Spec = b.Spec
		} else {
			o.Status = b.Status
		}
	case *v1.Service:
		if b := old.(*v1.Service); sub == "status" {
			o.Spec = b.Spec
		} else {
			o.Status = b.Status
		}
	case *storagev1.VolumeAttachment:
		if b := old.(*storagev1.VolumeAttachment); sub == "status" {
			o.Spec = b.Spec
		} else {
			o.Status = b.Status
		}
	}
}

// keepGenerations keeps the observed generations that a new status does not set.
func keepGenerations(old, s *v1.PodStatus) {
	if s.ObservedGeneration == 0 {
		s.ObservedGeneration = old.ObservedGeneration
	}
	for i := range s.Conditions {
		c := &s.Conditions[i]
		for _, was := range old.Conditions {
			if c.ObservedGeneration == 0 && was.Type == c.Type {
				c.ObservedGeneration = was.ObservedGeneration
			}
		}
	}
}

func takeResources(to, from []v1.Container) {
	for i := range to {
		for j := range from {
			if from[j].Name == to[i].Name {
				to[i].Resources = from[j].Resources
			}
		}
	}
}

// deleteAll deletes the objects that a request selects, one after another. It returns the list of them.
func (k *Kube) deleteAll(kd *kind, req *request, body []byte) (answer, error) {
	s, err := readSelector(kd, req)
	if err != nil {
		return answer{}, err
	}
	list, err := k.list(kd, req)
	if err != nil {
		return answer{}, err
	}
	k.mu.Lock()
	found := selected(kd, &s)
	k.mu.Unlock()
	for _, o := range found {
		one := *req
		one.namespace, one.name = o.meta.GetNamespace(), o.meta.GetName()
		if _, err := k.delete(kd, &one, body); err != nil && !apierrors.IsNotFound(err) {
			return answer{}, err
		}
	}
	return list, nil
}

// delete removes an object, or starts its deletion.
func (k *Kube) delete(kd *kind, req *request, body []byte) (answer, error) {
	var opts metav1.DeleteOptions
	if len(body) > 0 {
		gvk := schema.GroupVersionKind{Group: kd.gvk.Group, Version: kd.gvk.Version, Kind: "DeleteOptions"}
		if err := read(body, &opts, gvk); err != nil {
			if err = read(body, &opts, metav1.SchemeGroupVersion.WithKind("DeleteOptions")); err != nil {
				return answer{}, err
			}
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	old, err := k.find(kd, req)
	if err != nil {
		return answer{}, err
	}
	if pre := opts.Preconditions; pre != nil {
		if pre.UID != nil && *pre.UID != old.meta.GetUID() {
			return answer{}, apierrors.NewConflict(schema.GroupResource{Resource: kd.gvk.Kind}, req.name, fmt.Errorf("the UID in the precondition (%s) does not match the UID in record (%s). The object might have been deleted and then recreated", *pre.UID, old.meta.GetUID()))
		}
		if pre.ResourceVersion != nil && *pre.ResourceVersion != old.meta.GetResourceVersion() {
			//lint:ignore ST1005 the text is the API server's
			return answer{}, apierrors.NewConflict(kd.gr(), req.name, fmt.Errorf("Precondition failed: ResourceVersion in precondition: %v, ResourceVersion in object meta: %v", *pre.ResourceVersion, old.meta.GetResourceVersion()))
		}
	}
	obj := old.obj.DeepCopyObject()
	grace := int64(0)
	if p, ok := obj.(*v1.Pod); ok {
		grace = graceOf(p, opts.GracePeriodSeconds)
	}
	if grace == 0 && len(old.meta.GetFinalizers()) == 0 {
		if kd.resource == "pods" && ending(metaOf(obj), 0) { // watches first see the pod with a grace period of 0, and then its removal
			old = k.commit(kd, old, obj)
		}
		o := k.commit(kd, old, nil)
		if kd.resource == "pods" {
			return raw(http.StatusOK, o.json), nil
		}
		st := metav1.Status{Status: metav1.StatusSuccess, Details: &metav1.StatusDetails{Name: req.name, Group: kd.gvk.Group, Kind: kd.resource, UID: old.meta.GetUID()}}
		return raw(http.StatusOK, encode(schema.GroupVersionKind{Version: "v1", Kind: "Status"}, &st)), nil
	}
	if !ending(metaOf(obj), grace) {
		return raw(http.StatusOK, old.json), nil
	}
	return raw(http.StatusOK, k.commit(kd, old, obj).json), nil
}

// graceOf returns the grace period of a pod's deletion. It is 0 for pods that are not bound to a node or have ended.
func graceOf(p *v1.Pod, asked *int64) int64 {
	var grace int64
	switch {
	case p.Spec.NodeName == "", p.Status.Phase == v1.PodFailed, p.Status.Phase == v1.PodSucceeded:
	case asked != nil:
		grace = *asked
	case p.DeletionGracePeriodSeconds != nil:
		grace = *p.DeletionGracePeriodSeconds
	case p.Spec.TerminationGracePeriodSeconds != nil:
		grace = *p.Spec.TerminationGracePeriodSeconds
	}
	if grace < 0 {
		grace = 1
	}
	return grace
}

// ending sets the deletion's fields. Once they are set, the time can only get shorter. It reports whether anything changed.
func ending(m metav1.Object, grace int64) bool {
	at := metav1.NewTime(time.Now().Truncate(time.Second).Add(time.Duration(grace) * time.Second))
	if was := m.GetDeletionTimestamp(); was != nil {
		had := int64(0)
		if g := m.GetDeletionGracePeriodSeconds(); g != nil {
			had = *g
		}
		if grace >= had {
			return false
		}
		at = metav1.NewTime(was.Add(time.Duration(grace-had) * time.Second))
	} else if m.GetGeneration() > 0 {
		m.SetGeneration(m.GetGeneration() + 1)
	}
	m.SetDeletionTimestamp(&at)
	m.SetDeletionGracePeriodSeconds(&grace)
	return true
}
