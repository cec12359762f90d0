package manifest

import (
	"fmt"
	"path"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// This file and container.go make the checks of the API server's validation on which a node relies. They check values that become a path, a
// name in the runtime or a number in a calculation, and they find mistakes that people would otherwise notice late or never. Pods from
// the API have passed these checks in the API server.

// validatePod validates a pod that has its defaults.
func validatePod(p *v1.Pod) field.ErrorList {
	meta, spec := field.NewPath("metadata"), field.NewPath("spec")
	v := &validator{volumes: map[string]bool{}, containers: map[string]bool{}}
	v.metadata(p.Name, p.Namespace, p.Labels, p.Annotations, meta)
	// The systemd driver writes '-' as '_' in the name of a pod's cgroup, so the cgroup of a UID with '_' would be taken for that of another pod.
	if p.UID != "" && (strings.Trim(string(p.UID), "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-") != "" || len(p.UID) > 128) {
		v.bad(meta.Child("uid"), p.UID, "letters, digits and '-' only, at most 128 of them; or leave it out")
	}
	v.static(&p.Spec, spec)
	oneOf(v, spec.Child("restartPolicy"), p.Spec.RestartPolicy, v1.RestartPolicyAlways, v1.RestartPolicyOnFailure, v1.RestartPolicyNever)
	oneOf(v, spec.Child("dnsPolicy"), p.Spec.DNSPolicy, v1.DNSClusterFirst, v1.DNSClusterFirstWithHostNet, v1.DNSDefault, v1.DNSNone)
	if p.Spec.DNSPolicy == v1.DNSNone && (p.Spec.DNSConfig == nil || len(p.Spec.DNSConfig.Nameservers) == 0) {
		v.add(field.Required(spec.Child("dnsConfig", "nameservers"), "with dnsPolicy None at least one nameserver is needed"))
	}
	v.atLeast(spec.Child("terminationGracePeriodSeconds"), *p.Spec.TerminationGracePeriodSeconds, 0)
	if s := p.Spec.ActiveDeadlineSeconds; s != nil {
		v.atLeast(spec.Child("activeDeadlineSeconds"), *s, 1)
	}
	if p.Spec.Hostname != "" {
		v.names(spec.Child("hostname"), p.Spec.Hostname, validation.IsDNS1123Label)
	}
	if p.Spec.Subdomain != "" {
		v.names(spec.Child("subdomain"), p.Spec.Subdomain, validation.IsDNS1123Label)
	}
	for i := range p.Spec.Volumes {
		v.volume(&p.Spec.Volumes[i], spec.Child("volumes").Index(i))
	}
	if r := p.Spec.Resources; r != nil {
		v.resources(r, spec.Child("resources"))
	}
	if len(p.Spec.Containers) == 0 {
		v.add(field.Required(spec.Child("containers"), "a pod has at least one container"))
	}
	for i := range p.Spec.InitContainers {
		c, at := &p.Spec.InitContainers[i], spec.Child("initContainers").Index(i)
		v.container(c, at)
		v.initContainer(c, at)
	}
	for i := range p.Spec.Containers {
		v.container(&p.Spec.Containers[i], spec.Child("containers").Index(i))
	}
	v.hostPorts(&p.Spec, spec)
	v.namespaces(&p.Spec, spec)
	return v.errs
}

type validator struct {
	errs       field.ErrorList
	volumes    map[string]bool
	containers map[string]bool
}

// add adds an error. It keeps the first maxErrors errors, and one more, so that (*decoder).fail can say that there are more. It drops all
// others.
func (v *validator) add(e *field.Error) {
	if len(v.errs) <= maxErrors {
		v.errs = append(v.errs, e)
	}
}

func (v *validator) bad(at *field.Path, value any, detail string) {
	v.add(field.Invalid(at, value, detail))
}

// names checks a name against the rule for names of its kind. An empty name is an error too.
func (v *validator) names(at *field.Path, name string, rule func(string) []string) {
	if name == "" {
		v.add(field.Required(at, "give it a name"))
		return
	}
	for _, why := range rule(name) {
		v.bad(at, name, why)
	}
}

func (v *validator) atLeast(at *field.Path, n, least int64) {
	if n < least {
		v.bad(at, n, fmt.Sprintf("must be at least %d", least))
	}
}

// oneOf checks a value against the allowed ones. An empty value is allowed.
func oneOf[T ~string](v *validator, at *field.Path, value T, allowed ...T) {
	if value != "" && !slices.Contains(allowed, value) {
		v.add(field.NotSupported(at, value, allowed))
	}
}

func (v *validator) metadata(name, namespace string, labels, annotations map[string]string, meta *field.Path) {
	v.names(meta.Child("name"), name, validation.IsDNS1123Subdomain)
	if namespace != "" {
		v.names(meta.Child("namespace"), namespace, validation.IsDNS1123Label)
	}
	for _, k := range sortedKeys(labels) {
		for _, why := range append(validation.IsQualifiedName(k), validation.IsValidLabelValue(labels[k])...) {
			v.bad(meta.Child("labels").Key(k), labels[k], why)
		}
	}
	for _, k := range sortedKeys(annotations) {
		for _, why := range validation.IsQualifiedName(strings.ToLower(k)) {
			v.bad(meta.Child("annotations").Key(k), k, why)
		}
	}
}

// static refuses fields of a static pod that need an API server.
func (v *validator) static(s *v1.PodSpec, at *field.Path) {
	refuse := func(set bool, at *field.Path, why string) {
		if set {
			v.add(field.Forbidden(at, why))
		}
	}
	refuse(s.ServiceAccountName != "", at.Child("serviceAccountName"), "a pod of a node has no service account: its tokens come from the API server; remove it")
	refuse(s.DeprecatedServiceAccount != "", at.Child("serviceAccount"), "a pod of a node has no service account: its tokens come from the API server; remove it")
	refuse(len(s.EphemeralContainers) > 0, at.Child("ephemeralContainers"), "they can only be added to a running pod; make them containers")
	refuse(len(s.ResourceClaims) > 0, at.Child("resourceClaims"), "claims are allocated through the API server; remove them")
	refuse(len(s.SchedulingGates) > 0, at.Child("schedulingGates"), "the pod is on its node already; remove them")
	for i := range s.Volumes {
		src, vol := &s.Volumes[i].VolumeSource, at.Child("volumes").Index(i)
		refuse(src.PersistentVolumeClaim != nil, vol.Child("persistentVolumeClaim"), "claims are bound through the API server; use hostPath")
		refuse(secretOf(src), vol, "a volume of this kind reads its Secret from the API server; use another kind, or remove the reference")
		refuse(src.Ephemeral != nil, vol.Child("ephemeral"), "claims are bound through the API server; use emptyDir")
		if src.Projected == nil {
			continue
		}
		for j := range src.Projected.Sources {
			ps, from := &src.Projected.Sources[j], vol.Child("projected", "sources").Index(j)
			refuse(ps.ServiceAccountToken != nil, from.Child("serviceAccountToken"), "tokens come from the API server; remove it")
			refuse(ps.ClusterTrustBundle != nil, from.Child("clusterTrustBundle"), "bundles come from the API server; use a configMap")
			refuse(ps.PodCertificate != nil, from.Child("podCertificate"), "certificates come from the API server; use a secret")
		}
	}
}

// secretOf reports whether a volume that a storage driver mounts, such as CSI or iSCSI, refers to a Secret.
func secretOf(v *v1.VolumeSource) bool {
	switch {
	case v.AzureFile != nil:
		return v.AzureFile.SecretName != ""
	case v.CSI != nil:
		return v.CSI.NodePublishSecretRef != nil
	case v.CephFS != nil:
		return v.CephFS.SecretRef != nil
	case v.Cinder != nil:
		return v.Cinder.SecretRef != nil
	case v.FlexVolume != nil:
		return v.FlexVolume.SecretRef != nil
	case v.ISCSI != nil:
		return v.ISCSI.SecretRef != nil
	case v.RBD != nil:
		return v.RBD.SecretRef != nil
	case v.ScaleIO != nil:
		return v.ScaleIO.SecretRef != nil
	case v.StorageOS != nil:
		return v.StorageOS.SecretRef != nil
	}
	return false
}

func (v *validator) volume(vol *v1.Volume, at *field.Path) {
	v.names(at.Child("name"), vol.Name, validation.IsDNS1123Label)
	if v.volumes[vol.Name] {
		v.add(field.Duplicate(at.Child("name"), vol.Name))
	}
	v.volumes[vol.Name] = true
	if kinds := kindsOf(vol); len(kinds) > 1 {
		v.add(field.Forbidden(at, "a volume is of one kind, this one is "+strings.Join(kinds, " and ")+"; make them two"))
	}
	switch {
	case vol.HostPath != nil:
		h := at.Child("hostPath", "path")
		if vol.HostPath.Path == "" {
			v.add(field.Required(h, "name a path on the node"))
		} else if slices.Contains(strings.Split(vol.HostPath.Path, "/"), "..") {
			v.bad(h, vol.HostPath.Path, "must not contain '..'; write the path that is meant")
		}
		oneOf(v, at.Child("hostPath", "type"), *vol.HostPath.Type, v1.HostPathUnset, v1.HostPathDirectoryOrCreate, v1.HostPathDirectory,
			v1.HostPathFileOrCreate, v1.HostPathFile, v1.HostPathSocket, v1.HostPathCharDev, v1.HostPathBlockDev)
	case vol.ConfigMap != nil:
		v.names(at.Child("configMap", "name"), vol.ConfigMap.Name, validation.IsDNS1123Subdomain)
		v.items(vol.ConfigMap.Items, vol.ConfigMap.DefaultMode, at.Child("configMap"))
	case vol.Secret != nil:
		v.names(at.Child("secret", "secretName"), vol.Secret.SecretName, validation.IsDNS1123Subdomain)
		v.items(vol.Secret.Items, vol.Secret.DefaultMode, at.Child("secret"))
	case vol.EmptyDir != nil:
		if q := vol.EmptyDir.SizeLimit; q != nil && q.Sign() < 0 {
			v.bad(at.Child("emptyDir", "sizeLimit"), q.String(), "must not be negative")
		}
	case vol.NFS != nil:
		if vol.NFS.Server == "" {
			v.add(field.Required(at.Child("nfs", "server"), "name the server"))
		}
		if !strings.HasPrefix(vol.NFS.Path, "/") {
			v.bad(at.Child("nfs", "path"), vol.NFS.Path, "must be an absolute path on the server")
		}
	case vol.Image != nil:
		if vol.Image.Reference == "" {
			v.add(field.Required(at.Child("image", "reference"), "name an image"))
		}
	}
}

func (v *validator) items(items []v1.KeyToPath, mode *int32, at *field.Path) {
	v.mode(at.Child("defaultMode"), mode)
	for i, it := range items {
		here := at.Child("items").Index(i)
		if it.Key == "" {
			v.add(field.Required(here.Child("key"), "name a key"))
		}
		v.below(here.Child("path"), it.Path)
		v.mode(here.Child("mode"), it.Mode)
	}
}

func (v *validator) mode(at *field.Path, mode *int32) {
	if mode != nil && (*mode < 0 || *mode > 0o777) {
		v.bad(at, *mode, "a file mode is between 0 and 0777 (octal; in JSON 511)")
	}
}

// below checks that a path is relative and cannot lead out of its volume.
func (v *validator) below(at *field.Path, p string) {
	switch {
	case p == "":
		v.add(field.Required(at, "name a file"))
	case path.IsAbs(p), slices.Contains(strings.Split(p, "/"), ".."):
		v.bad(at, p, "must be a relative path without '..'")
	}
}

func (v *validator) resources(r *v1.ResourceRequirements, at *field.Path) {
	for _, side := range []struct {
		name string
		list v1.ResourceList
	}{{"limits", r.Limits}, {"requests", r.Requests}} {
		for _, name := range sortedKeys(side.list) {
			here, q := at.Child(side.name).Key(string(name)), side.list[name]
			if why := validation.IsQualifiedName(string(name)); len(why) > 0 {
				v.bad(here, name, strings.Join(why, "; "))
			}
			if q.Sign() < 0 {
				v.bad(here, q.String(), "must not be negative")
			}
			if limit, ok := r.Limits[name]; side.name == "requests" && ok && q.Cmp(limit) > 0 {
				v.bad(here, q.String(), "must be at most the limit, "+limit.String())
			}
		}
	}
	if len(r.Claims) > 0 {
		v.add(field.Forbidden(at.Child("claims"), "claims are allocated through the API server; remove them"))
	}
}
