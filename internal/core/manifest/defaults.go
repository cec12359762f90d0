package manifest

import (
	"maps"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/wherry-node/wherry/internal/core/crispec"
)

// ownFields drops the fields that only an API server sets, so that the output of `kubectl get -o yaml` can be a
// manifest.
func ownFields(p *v1.Pod) {
	p.ObjectMeta = metav1.ObjectMeta{
		Name: p.Name, Namespace: namespaceOf(p.Namespace), UID: p.UID, Labels: p.Labels, Annotations: p.Annotations,
	}
	p.Status = v1.PodStatus{}
}

// SetDefaults sets the defaults that the API server would have set. It changes no field that is set.
func SetDefaults(p *v1.Pod) {
	s := &p.Spec
	orElse(&s.DNSPolicy, v1.DNSClusterFirst)
	orElse(&s.RestartPolicy, v1.RestartPolicyAlways)
	orElse(&s.SchedulerName, v1.DefaultSchedulerName)
	orElse(&s.SecurityContext, &v1.PodSecurityContext{})
	orPointer(&s.TerminationGracePeriodSeconds, v1.DefaultTerminationGracePeriodSeconds)
	orPointer(&s.EnableServiceLinks, v1.DefaultEnableServiceLinks)
	for i := range s.Volumes {
		defaultVolume(&s.Volumes[i])
	}
	for _, list := range [][]v1.Container{s.InitContainers, s.Containers} {
		for i := range list {
			defaultContainer(&list[i], s.HostNetwork)
		}
	}
	defaultPodResources(p)
}

func defaultContainer(c *v1.Container, hostNetwork bool) {
	orElse(&c.ImagePullPolicy, crispec.DefaultPullPolicy(c.Image))
	orElse(&c.TerminationMessagePath, v1.TerminationMessagePathDefault)
	orElse(&c.TerminationMessagePolicy, v1.TerminationMessageReadFile)
	for i := range c.Ports {
		p := &c.Ports[i]
		orElse(&p.Protocol, v1.ProtocolTCP)
		if hostNetwork {
			orElse(&p.HostPort, p.ContainerPort)
		}
	}
	for i := range c.Env {
		if from := c.Env[i].ValueFrom; from != nil && from.FieldRef != nil {
			orElse(&from.FieldRef.APIVersion, "v1")
		}
	}
	for _, p := range []*v1.Probe{c.LivenessProbe, c.ReadinessProbe, c.StartupProbe} {
		if p == nil {
			continue
		}
		orElse(&p.TimeoutSeconds, 1)
		orElse(&p.PeriodSeconds, 10)
		orElse(&p.SuccessThreshold, 1)
		orElse(&p.FailureThreshold, 3)
		defaultHTTP(p.HTTPGet)
		if p.GRPC != nil {
			orPointer(&p.GRPC.Service, "")
		}
	}
	if l := c.Lifecycle; l != nil {
		for _, h := range []*v1.LifecycleHandler{l.PostStart, l.PreStop} {
			if h != nil {
				defaultHTTP(h.HTTPGet)
			}
		}
	}
	// "If a container specifies its own limit, but does not specify a request, the request is the limit."
	for name, q := range c.Resources.Limits {
		if _, set := c.Resources.Requests[name]; set {
			continue
		}
		if c.Resources.Requests == nil {
			c.Resources.Requests = v1.ResourceList{}
		}
		c.Resources.Requests[name] = q.DeepCopy()
	}
}

func defaultHTTP(h *v1.HTTPGetAction) {
	if h != nil {
		orElse(&h.Path, "/")
		orElse(&h.Scheme, v1.URISchemeHTTP)
	}
}

// defaultPodResources sets the requests of a pod-level resources field. A missing request becomes the sum of the
// containers' requests or, if they have none, the pod's limit.
func defaultPodResources(p *v1.Pod) {
	r := p.Spec.Resources
	if r == nil || len(r.Limits) == 0 && len(r.Requests) == 0 {
		return
	}
	asked := resourcehelper.PodRequests(p, resourcehelper.PodResourcesOptions{SkipPodLevelResources: true})
	want := maps.Clone(r.Limits)
	if want == nil {
		want = v1.ResourceList{}
	}
	for name, q := range asked {
		if resourcehelper.IsSupportedPodLevelResource(name) {
			want[name] = q
		}
	}
	maps.Copy(want, r.Requests)
	r.Requests = want
}

func defaultVolume(v *v1.Volume) {
	if v.VolumeSource == (v1.VolumeSource{}) {
		v.EmptyDir = &v1.EmptyDirVolumeSource{}
	}
	switch {
	case v.Secret != nil:
		orPointer(&v.Secret.DefaultMode, v1.SecretVolumeSourceDefaultMode)
	case v.ConfigMap != nil:
		orPointer(&v.ConfigMap.DefaultMode, v1.ConfigMapVolumeSourceDefaultMode)
	case v.DownwardAPI != nil:
		orPointer(&v.DownwardAPI.DefaultMode, v1.DownwardAPIVolumeSourceDefaultMode)
		defaultFieldRefs(v.DownwardAPI.Items)
	case v.HostPath != nil:
		orPointer(&v.HostPath.Type, v1.HostPathUnset)
	case v.Image != nil:
		orElse(&v.Image.PullPolicy, crispec.DefaultPullPolicy(v.Image.Reference))
	case v.ISCSI != nil:
		orElse(&v.ISCSI.ISCSIInterface, "default")
	case v.Projected != nil:
		orPointer(&v.Projected.DefaultMode, v1.ProjectedVolumeSourceDefaultMode)
		for i := range v.Projected.Sources {
			if d := v.Projected.Sources[i].DownwardAPI; d != nil {
				defaultFieldRefs(d.Items)
			}
		}
	}
}

func defaultFieldRefs(items []v1.DownwardAPIVolumeFile) {
	for i := range items {
		if items[i].FieldRef != nil {
			orElse(&items[i].FieldRef.APIVersion, "v1")
		}
	}
}

// defaultSecret moves stringData to data: "values in stringData overwrite those in data".
func defaultSecret(s *v1.Secret) {
	orElse(&s.Type, v1.SecretTypeOpaque)
	for k, v := range s.StringData {
		if s.Data == nil {
			s.Data = map[string][]byte{}
		}
		s.Data[k] = []byte(v)
	}
	s.StringData = nil
}

func orElse[T comparable](p *T, value T) {
	var zero T
	if *p == zero {
		*p = value
	}
}

func orPointer[T any](p **T, value T) {
	if *p == nil {
		*p = &value
	}
}
