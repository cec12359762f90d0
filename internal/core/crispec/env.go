package crispec

import (
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/wherry-node/wherry/internal/core/pod"
)

// EnvInput is the input of Env.
type EnvInput struct {
	Pod       *v1.Pod
	Container *v1.Container
	// PodIPs and HostIPs are the addresses in the pod's status, the primary one first.
	PodIPs  []string
	HostIPs []string
	// NodeName is used if the pod does not name its node (static pods).
	NodeName string
	// NodeAllocatable has the values that a resourceFieldRef gets for a limit that neither the container nor the pod sets.
	NodeAllocatable v1.ResourceList
	// Services are the services of the pod's namespace and of "default". ServicesPending says that they have not been
	// listed yet: a pod of the API waits for them, because KUBERNETES_SERVICE_HOST must not be missing.
	Services        []*v1.Service
	ServicesPending bool
	// ConfigMap and Secret read an object; nil means that this node has no source of such objects.
	ConfigMap func(namespace, name string) (*v1.ConfigMap, error)
	Secret    func(namespace, name string) (*v1.Secret, error)
	// EnvFile reads a file of an emptyDir volume for fileKeyRef. For a missing file, the error is fs.ErrNotExist.
	EnvFile func(volume, path string) ([]byte, error)
}

// environment is an ordered set of variables.
type environment struct {
	list  []EnvVar
	index map[string]int
	bytes int // the size of all names and values that were ever set
}

// fits returns an error if the environment has become too large.
func (e *environment) fits(c *v1.Container) error {
	if e.bytes > maxAllExpanded {
		return containerErr("the environment of container %s is larger than %d bytes", c.Name, maxAllExpanded)
	}
	return nil
}

func (e *environment) set(name, value string) {
	e.bytes += len(name) + len(value)
	if i, ok := e.index[name]; ok {
		e.list[i].Value = value
		return
	}
	e.index[name] = len(e.list)
	e.list = append(e.list, EnvVar{Name: name, Value: value})
}

func (e *environment) get(name string) (string, bool) {
	if i, ok := e.index[name]; ok {
		return e.list[i].Value, true
	}
	return "", false
}

// Env resolves the environment of a container: first envFrom in order, then env in order ("values defined by an Env
// with a duplicate key will take precedence"), then service variables with names that are still free. A reference
// $(NAME) can use the variables before it, and then those of services. It is an error if the whole environment is larger than 8 MiB. Each
// error is an *Error with ReasonContainerConfig.
func Env(in EnvInput) ([]EnvVar, error) {
	if in.ServicesPending && !pod.IsStatic(in.Pod) {
		return nil, containerErr("services have not yet been read at least once, cannot construct envvars")
	}
	env := &environment{index: map[string]int{}}
	for i := range in.Container.EnvFrom {
		if err := in.envFrom(env, &in.Container.EnvFrom[i]); err != nil {
			return nil, err
		}
		if err := env.fits(in.Container); err != nil {
			return nil, err
		}
	}
	links := in.Pod.Spec.EnableServiceLinks == nil || *in.Pod.Spec.EnableServiceLinks
	services := ServiceEnv(in.Services, in.Pod.Namespace, links)
	lookup := func(name string) (string, bool) {
		if v, ok := env.get(name); ok {
			return v, true
		}
		v, ok := services[name]
		return v, ok
	}
	for i := range in.Container.Env {
		v := &in.Container.Env[i]
		value, ok, err := in.value(v, lookup)
		if err != nil {
			return nil, err
		}
		if ok {
			env.set(v.Name, value)
		}
		if err := env.fits(in.Container); err != nil {
			return nil, err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(services)) {
		if _, ok := env.get(name); !ok {
			env.set(name, services[name])
		}
	}
	if err := env.fits(in.Container); err != nil {
		return nil, err
	}
	return env.list, nil
}

func (in *EnvInput) envFrom(env *environment, from *v1.EnvFromSource) error {
	switch {
	case from.ConfigMapRef != nil:
		cm, err := in.configMap(from.ConfigMapRef.Name, isTrue(from.ConfigMapRef.Optional))
		if err != nil || cm == nil {
			return err
		}
		for _, k := range slices.Sorted(maps.Keys(cm.Data)) {
			env.set(from.Prefix+k, cm.Data[k])
		}
	case from.SecretRef != nil:
		s, err := in.secret(from.SecretRef.Name, isTrue(from.SecretRef.Optional))
		if err != nil || s == nil {
			return err
		}
		for _, k := range slices.Sorted(maps.Keys(s.Data)) {
			env.set(from.Prefix+k, string(s.Data[k]))
		}
	}
	return nil
}

// value resolves one variable of env. ok is false if its optional source is missing; then the variable is left out.
func (in *EnvInput) value(v *v1.EnvVar, lookup func(string) (string, bool)) (value string, ok bool, err error) {
	if v.Value == "" && v.ValueFrom != nil {
		return in.valueFrom(v)
	}
	if value, err = Expand(v.Value, lookup); err != nil {
		return "", false, containerErr("env %s: %w", v.Name, err)
	}
	return value, true, nil
}

// valueFrom resolves one source. ok is false if an optional source is missing; then the variable is left out.
func (in *EnvInput) valueFrom(v *v1.EnvVar) (value string, ok bool, err error) {
	switch from := v.ValueFrom; {
	case from.FieldRef != nil:
		value, err = Field(FieldInput{Pod: in.Pod, PodIPs: in.PodIPs, HostIPs: in.HostIPs, NodeName: in.NodeName},
			from.FieldRef)
	case from.ResourceFieldRef != nil:
		value, err = ResourceField(from.ResourceFieldRef, in.Pod, in.Container, in.NodeAllocatable)
	case from.ConfigMapKeyRef != nil:
		return in.configMapKey(from.ConfigMapKeyRef)
	case from.SecretKeyRef != nil:
		return in.secretKey(from.SecretKeyRef)
	case from.FileKeyRef != nil:
		return in.fileKey(from.FileKeyRef)
	}
	if err != nil {
		return "", false, containerErr("%w", err)
	}
	return value, true, nil
}

func (in *EnvInput) configMapKey(ref *v1.ConfigMapKeySelector) (string, bool, error) {
	optional := isTrue(ref.Optional)
	cm, err := in.configMap(ref.Name, optional)
	if err != nil || cm == nil {
		return "", false, err
	}
	value, ok := cm.Data[ref.Key]
	if !ok && !optional {
		return "", false, containerErr("couldn't find key %s in ConfigMap %s/%s", ref.Key, in.Pod.Namespace, ref.Name)
	}
	return value, ok, nil
}

func (in *EnvInput) secretKey(ref *v1.SecretKeySelector) (string, bool, error) {
	optional := isTrue(ref.Optional)
	s, err := in.secret(ref.Name, optional)
	if err != nil || s == nil {
		return "", false, err
	}
	value, ok := s.Data[ref.Key]
	if !ok && !optional {
		return "", false, containerErr("couldn't find key %s in Secret %s/%s", ref.Key, in.Pod.Namespace, ref.Name)
	}
	return string(value), ok, nil
}

// configMap reads an object. It returns nil without an error if the object is optional and missing.
func (in *EnvInput) configMap(name string, optional bool) (*v1.ConfigMap, error) {
	if in.ConfigMap == nil {
		return nil, containerErr("couldn't get configMap %s/%s: this node has no source of ConfigMaps", in.Pod.Namespace, name)
	}
	cm, err := in.ConfigMap(in.Pod.Namespace, name)
	if err != nil {
		return nil, objectErr("configmap", name, optional, err)
	}
	return cm, nil
}

func (in *EnvInput) secret(name string, optional bool) (*v1.Secret, error) {
	if in.Secret == nil {
		return nil, containerErr("couldn't get secret %s/%s: this node has no source of Secrets", in.Pod.Namespace, name)
	}
	s, err := in.Secret(in.Pod.Namespace, name)
	if err != nil {
		return nil, objectErr("secret", name, optional, err)
	}
	return s, nil
}

// objectErr returns the error of a failed read in the text that users know: configmap "x" not found.
func objectErr(kind, name string, optional bool, err error) error {
	if apierrors.IsNotFound(err) {
		if optional {
			return nil
		}
		return &Error{Reason: ReasonContainerConfig, Message: kind + " \"" + name + "\" not found", Err: err}
	}
	return containerErr("read %s %q: %w", kind, name, err)
}

func isTrue(b *bool) bool { return b != nil && *b }
