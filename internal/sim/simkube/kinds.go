package simkube

import (
	"sync"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
)

// decoder decodes the served kinds, in JSON and protobuf. It knows no others, because the scheme of all kinds of Kubernetes is large, and this package
// is a part of the binary (wherry fleet --virtual).
var decoder = sync.OnceValue(func() runtime.Decoder {
	s := runtime.NewScheme()
	for _, k := range kinds() {
		s.AddKnownTypeWithName(k.gvk, k.new())
		metav1.AddToGroupVersion(s, k.gvk.GroupVersion())
	}
	s.AddKnownTypes(authenticationv1.SchemeGroupVersion, &authenticationv1.TokenRequest{})
	return serializer.NewCodecFactory(s).UniversalDeserializer()
})

// kind is a resource with its objects.
type kind struct {
	gvk        schema.GroupVersionKind
	resource   string
	namespaced bool
	// status: the resource has a status subresource.
	status  bool
	new     func() runtime.Object
	objects map[string]*object // by namespace/name
}

func (k *kind) gr() schema.GroupResource {
	return schema.GroupResource{Group: k.gvk.Group, Resource: k.resource}
}

// kinds returns the served resources, by group/version/resource. Each call returns new maps.
func kinds() map[string]*kind {
	core := schema.GroupVersion{Version: "v1"}
	list := []*kind{
		{gvk: core.WithKind("Namespace"), resource: "namespaces", status: true, new: func() runtime.Object { return &v1.Namespace{} }},
		{gvk: core.WithKind("Node"), resource: "nodes", status: true, new: func() runtime.Object { return &v1.Node{} }},
		{gvk: core.WithKind("Pod"), resource: "pods", namespaced: true, status: true, new: func() runtime.Object { return &v1.Pod{} }},
		{gvk: core.WithKind("ConfigMap"), resource: "configmaps", namespaced: true, new: func() runtime.Object { return &v1.ConfigMap{} }},
		{gvk: core.WithKind("Secret"), resource: "secrets", namespaced: true, new: func() runtime.Object { return &v1.Secret{} }},
		{gvk: core.WithKind("PersistentVolumeClaim"), resource: "persistentvolumeclaims", namespaced: true, status: true, new: func() runtime.Object { return &v1.PersistentVolumeClaim{} }},
		{gvk: core.WithKind("PersistentVolume"), resource: "persistentvolumes", status: true, new: func() runtime.Object { return &v1.PersistentVolume{} }},
		{gvk: core.WithKind("Service"), resource: "services", namespaced: true, status: true, new: func() runtime.Object { return &v1.Service{} }},
		{gvk: core.WithKind("ServiceAccount"), resource: "serviceaccounts", namespaced: true, new: func() runtime.Object { return &v1.ServiceAccount{} }},
		{gvk: core.WithKind("Event"), resource: "events", namespaced: true, new: func() runtime.Object { return &v1.Event{} }},
		{gvk: coordinationv1.SchemeGroupVersion.WithKind("Lease"), resource: "leases", namespaced: true, new: func() runtime.Object { return &coordinationv1.Lease{} }},
		{gvk: nodev1.SchemeGroupVersion.WithKind("RuntimeClass"), resource: "runtimeclasses", new: func() runtime.Object { return &nodev1.RuntimeClass{} }},
		{gvk: storagev1.SchemeGroupVersion.WithKind("CSINode"), resource: "csinodes", new: func() runtime.Object { return &storagev1.CSINode{} }},
		{gvk: storagev1.SchemeGroupVersion.WithKind("StorageClass"), resource: "storageclasses", new: func() runtime.Object { return &storagev1.StorageClass{} }},
		{gvk: storagev1.SchemeGroupVersion.WithKind("CSIDriver"), resource: "csidrivers", new: func() runtime.Object { return &storagev1.CSIDriver{} }},
		{gvk: storagev1.SchemeGroupVersion.WithKind("VolumeAttachment"), resource: "volumeattachments", status: true, new: func() runtime.Object { return &storagev1.VolumeAttachment{} }},
		{gvk: rbacv1.SchemeGroupVersion.WithKind("ClusterRoleBinding"), resource: "clusterrolebindings", new: func() runtime.Object { return &rbacv1.ClusterRoleBinding{} }},
		{gvk: certificatesv1.SchemeGroupVersion.WithKind("CertificateSigningRequest"), resource: "certificatesigningrequests", status: true, new: func() runtime.Object { return &certificatesv1.CertificateSigningRequest{} }},
		{gvk: certificatesv1beta1.SchemeGroupVersion.WithKind("ClusterTrustBundle"), resource: "clustertrustbundles", new: func() runtime.Object { return &certificatesv1beta1.ClusterTrustBundle{} }},
		{gvk: certificatesv1beta1.SchemeGroupVersion.WithKind("PodCertificateRequest"), resource: "podcertificaterequests", namespaced: true, status: true, new: func() runtime.Object { return &certificatesv1beta1.PodCertificateRequest{} }},
		// Reviews get an answer and are not stored.
		{gvk: authenticationv1.SchemeGroupVersion.WithKind("TokenReview"), resource: "tokenreviews", new: func() runtime.Object { return &authenticationv1.TokenReview{} }},
		{gvk: authorizationv1.SchemeGroupVersion.WithKind("SubjectAccessReview"), resource: "subjectaccessreviews", new: func() runtime.Object { return &authorizationv1.SubjectAccessReview{} }},
	}
	out := map[string]*kind{}
	for _, k := range list {
		k.objects = map[string]*object{}
		out[k.gvk.GroupVersion().String()+"/"+k.resource] = k
	}
	return out
}
