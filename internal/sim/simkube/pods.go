package simkube

import (
	"errors"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// defaultPod sets those defaults of an API server on which a node agent relies.
func (k *Kube) defaultPod(p *v1.Pod) {
	s := &p.Spec
	setDefault(&s.RestartPolicy, v1.RestartPolicyAlways)
	setDefault(&s.DNSPolicy, v1.DNSClusterFirst)
	setDefault(&s.SchedulerName, v1.DefaultSchedulerName)
	_, mirror := p.Annotations[v1.MirrorPodAnnotationKey]
	if !mirror {
		setDefault(&s.ServiceAccountName, "default")
	}
	s.DeprecatedServiceAccount = s.ServiceAccountName
	if s.TerminationGracePeriodSeconds == nil {
		s.TerminationGracePeriodSeconds = new(int64(v1.DefaultTerminationGracePeriodSeconds))
	}
	if s.EnableServiceLinks == nil {
		s.EnableServiceLinks = new(v1.DefaultEnableServiceLinks)
	}
	if s.SecurityContext == nil {
		s.SecurityContext = &v1.PodSecurityContext{}
	}
	for i := range s.InitContainers {
		defaultContainer(&s.InitContainers[i])
	}
	for i := range s.Containers {
		defaultContainer(&s.Containers[i])
	}
	for i := range s.Volumes {
		if src := &s.Volumes[i].VolumeSource; *src == (v1.VolumeSource{}) {
			src.EmptyDir = &v1.EmptyDirVolumeSource{}
		}
	}
	if !mirror && k.cfg.TokenVolumes && (s.AutomountServiceAccountToken == nil || *s.AutomountServiceAccountToken) {
		addTokenVolume(s, "kube-api-access-"+string(k.uid("kube-api-access", p.Namespace, p.Name))[:5])
	}
}

// refuseMirror returns the error of the ServiceAccount and NodeRestriction admission plugins for an invalid mirror pod.
func refuseMirror(p *v1.Pod) error {
	if _, mirror := p.Annotations[v1.MirrorPodAnnotationKey]; !mirror {
		return nil
	}
	refuse := func(why string) error {
		return apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, p.Name, errors.New(why))
	}
	if p.Spec.ServiceAccountName != "" {
		return refuse("a mirror pod may not reference service accounts")
	}
	secrets := len(p.Spec.ImagePullSecrets) > 0
	for i := range p.Spec.Volumes {
		secrets = secrets || p.Spec.Volumes[i].Secret != nil
	}
	for _, list := range [][]v1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range list {
			for _, e := range list[i].Env {
				secrets = secrets || e.ValueFrom != nil && e.ValueFrom.SecretKeyRef != nil
			}
			for _, e := range list[i].EnvFrom {
				secrets = secrets || e.SecretRef != nil
			}
		}
	}
	if secrets {
		return refuse("a mirror pod may not reference secrets")
	}
	return nil
}

// checkUpdate sets the defaults of a changed pod, and rejects forbidden changes of its spec or status.
func checkUpdate(kd *kind, old, obj runtime.Object, sub string) error {
	p, ok := obj.(*v1.Pod)
	if !ok {
		return nil
	}
	was := old.(*v1.Pod)
	invalid := func(path *field.Path, why string) error {
		return apierrors.NewInvalid(kd.gvk.GroupKind(), p.Name, field.ErrorList{field.Forbidden(path, why)})
	}
	switch sub {
	case "status":
		if ip := p.Status.PodIP; ip != "" && len(p.Status.PodIPs) > 0 && p.Status.PodIPs[0].IP != ip {
			p.Status.PodIPs = []v1.PodIP{{IP: ip}}
		}
		if errs := checkStatus(was, p); len(errs) > 0 {
			return apierrors.NewInvalid(kd.gvk.GroupKind(), p.Name, errs)
		}
	case "ephemeralcontainers":
		for i := range p.Spec.EphemeralContainers {
			defaultContainer((*v1.Container)(&p.Spec.EphemeralContainers[i].EphemeralContainerCommon))
		}
		for i := range was.Spec.EphemeralContainers {
			if i >= len(p.Spec.EphemeralContainers) || !equality.Semantic.DeepEqual(was.Spec.EphemeralContainers[i], p.Spec.EphemeralContainers[i]) {
				return invalid(field.NewPath("spec", "ephemeralContainers"), "existing ephemeral containers may not be removed or changed")
			}
		}
	case "":
		spec := *was.Spec.DeepCopy()
		spec.ActiveDeadlineSeconds, spec.Tolerations, spec.TerminationGracePeriodSeconds = p.Spec.ActiveDeadlineSeconds, p.Spec.Tolerations, p.Spec.TerminationGracePeriodSeconds
		takeImages(spec.InitContainers, p.Spec.InitContainers)
		takeImages(spec.Containers, p.Spec.Containers)
		if !equality.Semantic.DeepEqual(spec, p.Spec) {
			return invalid(field.NewPath("spec"), "pod updates may not change fields other than the images of containers, the deadline and tolerations")
		}
	}
	return nil
}

func takeImages(to, from []v1.Container) {
	for i := range min(len(to), len(from)) {
		to[i].Image = from[i].Image
	}
}

func setDefault[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

func defaultContainer(c *v1.Container) {
	setDefault(&c.TerminationMessagePath, v1.TerminationMessagePathDefault)
	setDefault(&c.TerminationMessagePolicy, v1.TerminationMessageReadFile)
	if c.ImagePullPolicy == "" {
		c.ImagePullPolicy = v1.PullIfNotPresent
		name := c.Image[strings.LastIndex(c.Image, "/")+1:]
		if !strings.Contains(name, "@") && (!strings.Contains(name, ":") || strings.HasSuffix(name, ":latest")) {
			c.ImagePullPolicy = v1.PullAlways
		}
	}
	for i := range c.Ports {
		setDefault(&c.Ports[i].Protocol, v1.ProtocolTCP)
	}
	for _, p := range []*v1.Probe{c.LivenessProbe, c.ReadinessProbe, c.StartupProbe} {
		if p == nil {
			continue
		}
		setDefault(&p.TimeoutSeconds, 1)
		setDefault(&p.PeriodSeconds, 10)
		setDefault(&p.SuccessThreshold, 1)
		setDefault(&p.FailureThreshold, 3)
		if p.HTTPGet != nil {
			setDefault(&p.HTTPGet.Path, "/")
			setDefault(&p.HTTPGet.Scheme, v1.URISchemeHTTP)
		}
	}
	for name, q := range c.Resources.Limits {
		if _, ok := c.Resources.Requests[name]; !ok {
			if c.Resources.Requests == nil {
				c.Resources.Requests = v1.ResourceList{}
			}
			c.Resources.Requests[name] = q
		}
	}
}

// addTokenVolume adds the volume of the ServiceAccount admission plugin.
func addTokenVolume(s *v1.PodSpec, name string) {
	s.Volumes = append(s.Volumes, v1.Volume{Name: name, VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{
		DefaultMode: new(int32(0o644)),
		Sources: []v1.VolumeProjection{
			{ServiceAccountToken: &v1.ServiceAccountTokenProjection{ExpirationSeconds: new(int64(3607)), Path: "token"}},
			{ConfigMap: &v1.ConfigMapProjection{LocalObjectReference: v1.LocalObjectReference{Name: "kube-root-ca.crt"}, Items: []v1.KeyToPath{{Key: "ca.crt", Path: "ca.crt"}}}},
			{DownwardAPI: &v1.DownwardAPIProjection{Items: []v1.DownwardAPIVolumeFile{{Path: "namespace", FieldRef: &v1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.namespace"}}}}},
		},
	}}})
	for _, list := range [][]v1.Container{s.InitContainers, s.Containers} {
		for i := range list {
			list[i].VolumeMounts = append(list[i].VolumeMounts, v1.VolumeMount{Name: name, ReadOnly: true, MountPath: "/var/run/secrets/kubernetes.io/serviceaccount"})
		}
	}
}

// qosClass returns the class as documented: Guaranteed if every container has equal limits and requests of CPU and memory,
// BestEffort if no container has any, else Burstable.
func qosClass(p *v1.Pod) v1.PodQOSClass {
	guaranteed, any := true, false
	for _, list := range [][]v1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range list {
			r := &list[i].Resources
			for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} {
				request, limit := r.Requests[name], r.Limits[name]
				any = any || positive(request) || positive(limit)
				guaranteed = guaranteed && positive(limit) && request.Cmp(limit) == 0
			}
		}
	}
	switch {
	case !any:
		return v1.PodQOSBestEffort
	case guaranteed:
		return v1.PodQOSGuaranteed
	}
	return v1.PodQOSBurstable
}

func positive(q resource.Quantity) bool { return q.Sign() > 0 }
