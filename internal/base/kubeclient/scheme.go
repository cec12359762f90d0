package kubeclient

import (
	"sync"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
)

// codecs encode and decode the kinds of this package, in JSON and protobuf. They are made with the first client and
// shared by all agents of the process.
var codecs = sync.OnceValue(func() runtime.NegotiatedSerializer {
	return serializer.NewCodecFactory(newScheme()).WithoutConversion()
})

// newScheme returns a scheme with the kinds of this package, and with the kinds that every API group has: options, watch events,
// Status.
func newScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, g := range []struct {
		version schema.GroupVersion
		kinds   []runtime.Object
	}{
		{v1.SchemeGroupVersion, []runtime.Object{
			&v1.Node{}, &v1.NodeList{}, &v1.Pod{}, &v1.PodList{}, &v1.ConfigMap{}, &v1.ConfigMapList{}, &v1.Secret{}, &v1.SecretList{},
			&v1.Service{}, &v1.ServiceList{}, &v1.Event{}, &v1.EventList{},
			&v1.PersistentVolumeClaim{}, &v1.PersistentVolumeClaimList{}, &v1.PersistentVolume{}, &v1.PersistentVolumeList{},
		}},
		{authenticationv1.SchemeGroupVersion, []runtime.Object{
			&authenticationv1.TokenRequest{}, &authenticationv1.TokenReview{}, &authenticationv1.SelfSubjectReview{},
		}},
		{authorizationv1.SchemeGroupVersion, []runtime.Object{&authorizationv1.SubjectAccessReview{}}},
		{certificatesv1.SchemeGroupVersion, []runtime.Object{
			&certificatesv1.CertificateSigningRequest{}, &certificatesv1.CertificateSigningRequestList{},
		}},
		{certificatesv1beta1.SchemeGroupVersion, []runtime.Object{
			&certificatesv1beta1.ClusterTrustBundle{}, &certificatesv1beta1.ClusterTrustBundleList{},
			&certificatesv1beta1.PodCertificateRequest{}, &certificatesv1beta1.PodCertificateRequestList{},
		}},
		{coordinationv1.SchemeGroupVersion, []runtime.Object{&coordinationv1.Lease{}, &coordinationv1.LeaseList{}}},
		{storagev1.SchemeGroupVersion, []runtime.Object{
			&storagev1.CSINode{}, &storagev1.CSINodeList{}, &storagev1.CSIDriver{}, &storagev1.CSIDriverList{},
			&storagev1.VolumeAttachment{}, &storagev1.VolumeAttachmentList{}, &storagev1.StorageClass{}, &storagev1.StorageClassList{},
		}},
		{nodev1.SchemeGroupVersion, []runtime.Object{&nodev1.RuntimeClass{}, &nodev1.RuntimeClassList{}}},
	} {
		s.AddKnownTypes(g.version, g.kinds...)
		metav1.AddToGroupVersion(s, g.version)
	}
	return s
}
