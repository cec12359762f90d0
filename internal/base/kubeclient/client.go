package kubeclient

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
)

// Client sends requests to one API server as one user.
type Client struct {
	cfg   *rest.Config // of all groups, without a version
	http  *http.Client
	meter Meter // nil: the requests are not counted

	core, authentication, authorization, certificates, certificatesBeta, coordination, node, storage group
}

// group has the client of one version of an API group. The client is made when it is first used, because an agent uses few of the groups, and a
// process may have thousands of agents.
type group struct {
	version *schema.GroupVersion
	once    sync.Once
	client  rest.Interface
}

// New returns a client for the server and user in cfg. It does no IO. All resources share one rate limit:
// cfg.RateLimiter, or a limiter with cfg.QPS and cfg.Burst (0: those of client-go; below 0: no limit). Without a
// content type, the client sends protobuf and accepts JSON, too.
func New(cfg *rest.Config) (*Client, error) { return NewMetered(cfg, nil) }

// NewMetered returns a client as New does. If meter is not nil, it counts the client's requests.
func NewMetered(cfg *rest.Config, meter Meter) (*Client, error) {
	own := rest.CopyConfig(cfg)
	if own.UserAgent == "" {
		own.UserAgent = rest.DefaultKubernetesUserAgent()
	}
	if own.RateLimiter == nil && own.QPS >= 0 {
		if own.QPS == 0 {
			own.QPS, own.Burst = rest.DefaultQPS, max(own.Burst, rest.DefaultBurst)
		}
		if own.Burst <= 0 {
			return nil, errors.New("make API client: the burst of requests must be above 0 where their rate is limited")
		}
		own.RateLimiter = flowcontrol.NewTokenBucketRateLimiter(own.QPS, own.Burst)
	}
	if own.ContentType == "" && own.AcceptContentTypes == "" {
		own.ContentType = runtime.ContentTypeProtobuf
		own.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	}
	own.NegotiatedSerializer = codecs()
	h, err := rest.HTTPClientFor(own)
	if err != nil {
		return nil, fmt.Errorf("make API client: %w", err)
	}
	transport := http.RoundTripper(bounded{h.Transport})
	if meter != nil {
		transport = metered{transport, meter, hostOf(own.Host)}
	}
	h = &http.Client{Transport: transport, CheckRedirect: h.CheckRedirect, Jar: h.Jar, Timeout: h.Timeout}
	c := &Client{
		cfg: own, http: h, meter: meter, core: group{version: &v1.SchemeGroupVersion}, authentication: group{version: &authenticationv1.SchemeGroupVersion},
		authorization: group{version: &authorizationv1.SchemeGroupVersion}, certificates: group{version: &certificatesv1.SchemeGroupVersion},
		certificatesBeta: group{version: &certificatesv1beta1.SchemeGroupVersion}, coordination: group{version: &coordinationv1.SchemeGroupVersion},
		node: group{version: &nodev1.SchemeGroupVersion}, storage: group{version: &storagev1.SchemeGroupVersion},
	}
	if _, err := c.make(c.core.version); err != nil {
		return nil, fmt.Errorf("make API client: %w", err)
	}
	return c, nil
}

// in returns the client of a group.
func (c *Client) in(g *group) rest.Interface {
	g.once.Do(func() {
		made, err := c.make(g.version)
		if err != nil { // NewMetered has made a client with the same configuration, and the version cannot be wrong
			panic(fmt.Sprintf("kubeclient: %v", err))
		}
		g.client = made
	})
	return g.client
}

func (c *Client) make(version *schema.GroupVersion) (rest.Interface, error) {
	own := *c.cfg
	own.GroupVersion, own.APIPath = version, "/apis"
	if version.Group == "" {
		own.APIPath = "/api"
	}
	made, err := rest.RESTClientForConfigAndClient(&own, c.http)
	if err != nil || c.meter == nil {
		return made, err
	}
	return newMeteredClient(made, c.meter, hostOf(own.Host)), nil
}

// hostOf returns the host and port of an API server's address, which is a URL or only host and port.
func hostOf(server string) string {
	if u, err := url.Parse(server); err == nil && u.Host != "" {
		return u.Host
	}
	return server
}

// CreateJSON creates an object of any kind. path is the path of its collection, for example /apis/apps/v1/namespaces/default/deployments, and
// body is the object in JSON.
func (c *Client) CreateJSON(ctx context.Context, path string, body []byte) error {
	return c.in(&c.core).Post().AbsPath(path).SetHeader("Content-Type", runtime.ContentTypeJSON).Body(body).Do(ctx).Error()
}

// HasNamespace reports whether the cluster has a namespace of this name, which must be a valid one.
func (c *Client) HasNamespace(ctx context.Context, name string) (bool, error) {
	err := c.in(&c.core).Get().AbsPath("/api/v1/namespaces/" + name).Do(ctx).Error()
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil, err
}

// DeleteAll deletes the objects of any kind that opts selects. path is the path of their collection, as for CreateJSON. A label selector is
// required, so that a mistake cannot empty a collection.
func (c *Client) DeleteAll(ctx context.Context, path string, opts metav1.ListOptions) error {
	if opts.LabelSelector == "" {
		return errors.New("delete the objects of " + path + ": no label selector")
	}
	return c.in(&c.core).Delete().AbsPath(path).VersionedParams(&opts, params{}).Do(ctx).Error()
}

// Nodes returns the nodes of the cluster.
func (c *Client) Nodes() *Resource[*v1.Node, *v1.NodeList] {
	return resource[v1.Node, v1.NodeList](c.in(&c.core), "nodes", "")
}

// Pods returns the pods of a namespace; "" means all namespaces.
func (c *Client) Pods(namespace string) *Resource[*v1.Pod, *v1.PodList] {
	return resource[v1.Pod, v1.PodList](c.in(&c.core), "pods", namespace)
}

// ConfigMaps returns the ConfigMaps of a namespace.
func (c *Client) ConfigMaps(namespace string) *Resource[*v1.ConfigMap, *v1.ConfigMapList] {
	return resource[v1.ConfigMap, v1.ConfigMapList](c.in(&c.core), "configmaps", namespace)
}

// Secrets returns the Secrets of a namespace.
func (c *Client) Secrets(namespace string) *Resource[*v1.Secret, *v1.SecretList] {
	return resource[v1.Secret, v1.SecretList](c.in(&c.core), "secrets", namespace)
}

// PersistentVolumeClaims returns the PersistentVolumeClaims of a namespace.
func (c *Client) PersistentVolumeClaims(namespace string) *Resource[*v1.PersistentVolumeClaim, *v1.PersistentVolumeClaimList] {
	return resource[v1.PersistentVolumeClaim, v1.PersistentVolumeClaimList](c.in(&c.core), "persistentvolumeclaims", namespace)
}

// PersistentVolumes returns the PersistentVolumes of the cluster.
func (c *Client) PersistentVolumes() *Resource[*v1.PersistentVolume, *v1.PersistentVolumeList] {
	return resource[v1.PersistentVolume, v1.PersistentVolumeList](c.in(&c.core), "persistentvolumes", "")
}

// Services returns the Services of a namespace; "" means all namespaces.
func (c *Client) Services(namespace string) *Resource[*v1.Service, *v1.ServiceList] {
	return resource[v1.Service, v1.ServiceList](c.in(&c.core), "services", namespace)
}

// Events returns the Events of a namespace.
func (c *Client) Events(namespace string) *Resource[*v1.Event, *v1.EventList] {
	return resource[v1.Event, v1.EventList](c.in(&c.core), "events", namespace)
}

// Leases returns the Leases of a namespace.
func (c *Client) Leases(namespace string) *Resource[*coordinationv1.Lease, *coordinationv1.LeaseList] {
	return resource[coordinationv1.Lease, coordinationv1.LeaseList](c.in(&c.coordination), "leases", namespace)
}

// CertificateSigningRequests returns the certificate requests of the cluster.
func (c *Client) CertificateSigningRequests() *Resource[*certificatesv1.CertificateSigningRequest, *certificatesv1.CertificateSigningRequestList] {
	return resource[certificatesv1.CertificateSigningRequest, certificatesv1.CertificateSigningRequestList](c.in(&c.certificates), "certificatesigningrequests", "")
}

// ClusterTrustBundles returns the trust anchors of the cluster.
func (c *Client) ClusterTrustBundles() *Resource[*certificatesv1beta1.ClusterTrustBundle, *certificatesv1beta1.ClusterTrustBundleList] {
	return resource[certificatesv1beta1.ClusterTrustBundle, certificatesv1beta1.ClusterTrustBundleList](c.in(&c.certificatesBeta), "clustertrustbundles", "")
}

// PodCertificateRequests returns the certificate requests of the pods of a namespace.
func (c *Client) PodCertificateRequests(namespace string) *Resource[*certificatesv1beta1.PodCertificateRequest, *certificatesv1beta1.PodCertificateRequestList] {
	return resource[certificatesv1beta1.PodCertificateRequest, certificatesv1beta1.PodCertificateRequestList](c.in(&c.certificatesBeta), "podcertificaterequests", namespace)
}

// RuntimeClasses returns the RuntimeClasses of the cluster.
func (c *Client) RuntimeClasses() *Resource[*nodev1.RuntimeClass, *nodev1.RuntimeClassList] {
	return resource[nodev1.RuntimeClass, nodev1.RuntimeClassList](c.in(&c.node), "runtimeclasses", "")
}

// CSINodes returns the CSINodes of the cluster.
func (c *Client) CSINodes() *Resource[*storagev1.CSINode, *storagev1.CSINodeList] {
	return resource[storagev1.CSINode, storagev1.CSINodeList](c.in(&c.storage), "csinodes", "")
}

// CSIDrivers returns the CSIDrivers of the cluster.
func (c *Client) CSIDrivers() *Resource[*storagev1.CSIDriver, *storagev1.CSIDriverList] {
	return resource[storagev1.CSIDriver, storagev1.CSIDriverList](c.in(&c.storage), "csidrivers", "")
}

// StorageClasses returns the StorageClasses of the cluster.
func (c *Client) StorageClasses() *Resource[*storagev1.StorageClass, *storagev1.StorageClassList] {
	return resource[storagev1.StorageClass, storagev1.StorageClassList](c.in(&c.storage), "storageclasses", "")
}

// VolumeAttachments returns the VolumeAttachments of the cluster.
func (c *Client) VolumeAttachments() *Resource[*storagev1.VolumeAttachment, *storagev1.VolumeAttachmentList] {
	return resource[storagev1.VolumeAttachment, storagev1.VolumeAttachmentList](c.in(&c.storage), "volumeattachments", "")
}

// TokenReviews returns the resource that answers which user a bearer token belongs to.
func (c *Client) TokenReviews() *Question[*authenticationv1.TokenReview] {
	return question[authenticationv1.TokenReview](c.in(&c.authentication), "tokenreviews")
}

// SelfSubjectReviews returns the resource that answers which user this client is.
func (c *Client) SelfSubjectReviews() *Question[*authenticationv1.SelfSubjectReview] {
	return question[authenticationv1.SelfSubjectReview](c.in(&c.authentication), "selfsubjectreviews")
}

// SubjectAccessReviews returns the resource that answers what a user may do.
func (c *Client) SubjectAccessReviews() *Question[*authorizationv1.SubjectAccessReview] {
	return question[authorizationv1.SubjectAccessReview](c.in(&c.authorization), "subjectaccessreviews")
}

// ServiceAccounts returns the service accounts of a namespace.
func (c *Client) ServiceAccounts(namespace string) *ServiceAccounts {
	return &ServiceAccounts{c.in(&c.core), namespace}
}

// ServiceAccounts reads the service accounts of a namespace, and requests tokens for them.
type ServiceAccounts struct {
	client    rest.Interface
	namespace string
}

// Get reads a service account.
func (s *ServiceAccounts) Get(ctx context.Context, name string, opts metav1.GetOptions) (*v1.ServiceAccount, error) {
	got := new(v1.ServiceAccount)
	err := s.client.Get().Namespace(s.namespace).Resource("serviceaccounts").Name(name).VersionedParams(&opts, params{}).Do(ctx).Into(got)
	return got, err
}

// CreateToken requests a token of the service account.
func (s *ServiceAccounts) CreateToken(ctx context.Context, name string, req *authenticationv1.TokenRequest, opts metav1.CreateOptions) (*authenticationv1.TokenRequest, error) {
	got := new(authenticationv1.TokenRequest)
	err := s.client.Post().Namespace(s.namespace).Resource("serviceaccounts").Name(name).SubResource("token").
		VersionedParams(&opts, params{}).Body(req).Do(ctx).Into(got)
	return got, err
}
