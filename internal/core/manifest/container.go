package manifest

import (
	"fmt"
	"reflect"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/wherry-node/wherry/internal/core/pod"
)

func (v *validator) container(c *v1.Container, at *field.Path) {
	v.names(at.Child("name"), c.Name, validation.IsDNS1123Label)
	if v.containers[c.Name] {
		v.add(field.Duplicate(at.Child("name"), c.Name))
	}
	v.containers[c.Name] = true
	if strings.TrimSpace(c.Image) == "" {
		v.add(field.Required(at.Child("image"), "name an image"))
	} else if c.Image != strings.TrimSpace(c.Image) {
		v.bad(at.Child("image"), c.Image, "must not begin or end with a space")
	}
	oneOf(v, at.Child("imagePullPolicy"), c.ImagePullPolicy, v1.PullAlways, v1.PullIfNotPresent, v1.PullNever)
	oneOf(v, at.Child("terminationMessagePolicy"), c.TerminationMessagePolicy, v1.TerminationMessageReadFile, v1.TerminationMessageFallbackToLogsOnError)
	if c.RestartPolicy != nil {
		oneOf(v, at.Child("restartPolicy"), *c.RestartPolicy, v1.ContainerRestartPolicyAlways, v1.ContainerRestartPolicyOnFailure, v1.ContainerRestartPolicyNever)
	}
	v.ports(c.Ports, at.Child("ports"))
	v.env(c, at)
	v.mounts(c, at)
	v.resources(&c.Resources, at.Child("resources"))
	v.probe(c.LivenessProbe, at.Child("livenessProbe"))
	v.probe(c.ReadinessProbe, at.Child("readinessProbe"))
	v.probe(c.StartupProbe, at.Child("startupProbe"))
	v.oneSuccess(c.LivenessProbe, at.Child("livenessProbe"))
	v.oneSuccess(c.StartupProbe, at.Child("startupProbe"))
	if l := c.Lifecycle; l != nil {
		v.hook(l.PostStart, at.Child("lifecycle", "postStart"))
		v.hook(l.PreStop, at.Child("lifecycle", "preStop"))
	}
}

// initContainer refuses probes and hooks for an init container that runs once and ends.
func (v *validator) initContainer(c *v1.Container, at *field.Path) {
	if pod.IsSidecar(c) {
		return
	}
	none := func(set bool, name string) {
		if set {
			v.add(field.Forbidden(at.Child(name), "only an init container with restartPolicy Always may have it; remove it"))
		}
	}
	none(c.LivenessProbe != nil, "livenessProbe")
	none(c.ReadinessProbe != nil, "readinessProbe")
	none(c.StartupProbe != nil, "startupProbe")
	none(c.Lifecycle != nil, "lifecycle")
}

func (v *validator) ports(ports []v1.ContainerPort, at *field.Path) {
	names := map[string]bool{}
	for i, p := range ports {
		here := at.Index(i)
		v.port(here.Child("containerPort"), p.ContainerPort, false)
		v.port(here.Child("hostPort"), p.HostPort, true)
		oneOf(v, here.Child("protocol"), p.Protocol, v1.ProtocolTCP, v1.ProtocolUDP, v1.ProtocolSCTP)
		if p.Name == "" {
			continue
		}
		for _, why := range validation.IsValidPortName(p.Name) {
			v.bad(here.Child("name"), p.Name, why)
		}
		if names[p.Name] {
			v.add(field.Duplicate(here.Child("name"), p.Name))
		}
		names[p.Name] = true
	}
}

func (v *validator) port(at *field.Path, n int32, orNone bool) {
	if (n < 1 || n > 65535) && !(orNone && n == 0) {
		v.bad(at, n, "a port is between 1 and 65535")
	}
}

// hostPorts checks that no two containers of a pod use the same port of the node.
func (v *validator) hostPorts(s *v1.PodSpec, at *field.Path) {
	taken := map[string]bool{}
	for i := range s.Containers {
		for j, p := range s.Containers[i].Ports {
			here := at.Child("containers").Index(i).Child("ports").Index(j)
			if s.HostNetwork && p.HostPort != p.ContainerPort {
				v.bad(here.Child("hostPort"), p.HostPort, fmt.Sprintf("with hostNetwork it is the containerPort, %d; leave it out", p.ContainerPort))
			}
			key := fmt.Sprint(p.Protocol, p.HostIP, p.HostPort)
			if p.HostPort != 0 && taken[key] {
				v.add(field.Duplicate(here.Child("hostPort"), p.HostPort))
			}
			taken[key] = true
		}
	}
}

func (v *validator) env(c *v1.Container, at *field.Path) {
	for i, e := range c.Env {
		here := at.Child("env").Index(i)
		if e.Name == "" || strings.ContainsAny(e.Name, "=\x00") {
			v.bad(here.Child("name"), e.Name, "a variable needs a name without '='")
		}
		if e.ValueFrom == nil {
			continue
		}
		from := here.Child("valueFrom")
		if e.Value != "" {
			v.add(field.Forbidden(from, "value is set too; remove one"))
		}
		if n := pointersSet(*e.ValueFrom); n != 1 {
			v.bad(from, n, "exactly one of fieldRef, resourceFieldRef, configMapKeyRef, secretKeyRef, fileKeyRef is needed")
		}
		if r := e.ValueFrom.ConfigMapKeyRef; r != nil {
			v.names(from.Child("configMapKeyRef", "name"), r.Name, validation.IsDNS1123Subdomain)
		}
		if r := e.ValueFrom.SecretKeyRef; r != nil {
			v.names(from.Child("secretKeyRef", "name"), r.Name, validation.IsDNS1123Subdomain)
		}
	}
	for i, e := range c.EnvFrom {
		here := at.Child("envFrom").Index(i)
		switch {
		case (e.ConfigMapRef == nil) == (e.SecretRef == nil):
			v.bad(here, "", "exactly one of configMapRef and secretRef is needed")
		case e.ConfigMapRef != nil:
			v.names(here.Child("configMapRef", "name"), e.ConfigMapRef.Name, validation.IsDNS1123Subdomain)
		default:
			v.names(here.Child("secretRef", "name"), e.SecretRef.Name, validation.IsDNS1123Subdomain)
		}
	}
}

func (v *validator) mounts(c *v1.Container, at *field.Path) {
	paths := map[string]bool{}
	for i, m := range c.VolumeMounts {
		here := at.Child("volumeMounts").Index(i)
		if !v.volumes[m.Name] {
			v.add(field.NotFound(here.Child("name"), m.Name))
		}
		switch {
		case m.MountPath == "":
			v.add(field.Required(here.Child("mountPath"), "name a path in the container"))
		case paths[m.MountPath]:
			v.bad(here.Child("mountPath"), m.MountPath, "must be unique")
		}
		paths[m.MountPath] = true
		if m.SubPath != "" {
			v.below(here.Child("subPath"), m.SubPath)
		}
		if m.SubPathExpr != "" {
			v.below(here.Child("subPathExpr"), m.SubPathExpr)
			if m.SubPath != "" {
				v.add(field.Forbidden(here.Child("subPathExpr"), "subPath is set too; remove one"))
			}
		}
	}
	if len(c.VolumeDevices) > 0 {
		v.add(field.Forbidden(at.Child("volumeDevices"), "block devices need a claim, and claims are bound through the API server; use a hostPath of type BlockDevice"))
	}
}

func (v *validator) probe(p *v1.Probe, at *field.Path) {
	if p == nil {
		return
	}
	if n := pointersSet(p.ProbeHandler); n != 1 {
		v.bad(at, n, "exactly one of exec, httpGet, tcpSocket, grpc is needed")
	}
	v.handler(p.Exec, p.HTTPGet, p.TCPSocket, at)
	if p.GRPC != nil {
		v.port(at.Child("grpc", "port"), p.GRPC.Port, false)
	}
	v.atLeast(at.Child("initialDelaySeconds"), int64(p.InitialDelaySeconds), 0)
	v.atLeast(at.Child("timeoutSeconds"), int64(p.TimeoutSeconds), 1)
	v.atLeast(at.Child("periodSeconds"), int64(p.PeriodSeconds), 1)
	v.atLeast(at.Child("successThreshold"), int64(p.SuccessThreshold), 1)
	v.atLeast(at.Child("failureThreshold"), int64(p.FailureThreshold), 1)
	if g := p.TerminationGracePeriodSeconds; g != nil {
		v.atLeast(at.Child("terminationGracePeriodSeconds"), *g, 1)
	}
}

// oneSuccess checks that successThreshold is 1: "must be 1 for liveness and startup".
func (v *validator) oneSuccess(p *v1.Probe, at *field.Path) {
	if p != nil && p.SuccessThreshold != 1 {
		v.bad(at.Child("successThreshold"), p.SuccessThreshold, "must be 1")
	}
}

func (v *validator) hook(h *v1.LifecycleHandler, at *field.Path) {
	if h == nil {
		return
	}
	if n := pointersSet(*h); n != 1 {
		v.bad(at, n, "exactly one of exec, httpGet, sleep is needed")
	}
	v.handler(h.Exec, h.HTTPGet, h.TCPSocket, at)
	if h.Sleep != nil {
		v.atLeast(at.Child("sleep", "seconds"), h.Sleep.Seconds, 0)
	}
}

func (v *validator) handler(exec *v1.ExecAction, http *v1.HTTPGetAction, tcp *v1.TCPSocketAction, at *field.Path) {
	if exec != nil && len(exec.Command) == 0 {
		v.add(field.Required(at.Child("exec", "command"), "name a command"))
	}
	if http != nil {
		v.handlerPort(http.Port, at.Child("httpGet", "port"))
		oneOf(v, at.Child("httpGet", "scheme"), http.Scheme, v1.URISchemeHTTP, v1.URISchemeHTTPS)
	}
	if tcp != nil {
		v.handlerPort(tcp.Port, at.Child("tcpSocket", "port"))
	}
}

func (v *validator) handlerPort(p intstr.IntOrString, at *field.Path) {
	if p.Type == intstr.Int {
		v.port(at, p.IntVal, false)
		return
	}
	for _, why := range validation.IsValidPortName(p.StrVal) {
		v.bad(at, p.StrVal, why)
	}
}

// namespaces refuses fields that contradict each other: a pod that uses a namespace of the node (hostPID, hostIPC) cannot also ask for its
// own (shareProcessNamespace, hostUsers: false).
func (v *validator) namespaces(s *v1.PodSpec, at *field.Path) {
	share := s.ShareProcessNamespace
	if share != nil && *share && s.HostPID {
		v.add(field.Forbidden(at.Child("shareProcessNamespace"), "hostPID is set too; remove one"))
	}
	if s.HostUsers != nil && !*s.HostUsers {
		if s.HostPID {
			v.add(field.Forbidden(at.Child("hostPID"), "a pod with hostUsers: false has its own; remove one"))
		}
		if s.HostIPC {
			v.add(field.Forbidden(at.Child("hostIPC"), "a pod with hostUsers: false has its own; remove one"))
		}
	}
}

func validateConfigMap(c *v1.ConfigMap) field.ErrorList {
	v := &validator{}
	v.metadata(c.Name, c.Namespace, c.Labels, c.Annotations, field.NewPath("metadata"))
	for _, k := range sortedKeys(c.Data) {
		v.dataKey(field.NewPath("data"), k)
		if _, twice := c.BinaryData[k]; twice {
			v.add(field.Duplicate(field.NewPath("binaryData").Key(k), k))
		}
	}
	for _, k := range sortedKeys(c.BinaryData) {
		v.dataKey(field.NewPath("binaryData"), k)
	}
	return v.errs
}

func validateSecret(s *v1.Secret) field.ErrorList {
	v := &validator{}
	v.metadata(s.Name, s.Namespace, s.Labels, s.Annotations, field.NewPath("metadata"))
	for _, k := range sortedKeys(s.Data) {
		v.dataKey(field.NewPath("data"), k)
	}
	for _, k := range sortedKeys(s.StringData) {
		v.dataKey(field.NewPath("stringData"), k)
	}
	return v.errs
}

// dataKey checks a key, because keys become file names.
func (v *validator) dataKey(at *field.Path, k string) {
	for _, why := range validation.IsConfigMapKey(k) {
		v.bad(at.Key(k), k, why)
	}
}

// kindsOf returns the JSON names of the volume kinds that are set.
func kindsOf(vol *v1.Volume) []string {
	var out []string
	src := reflect.ValueOf(vol.VolumeSource)
	for i := range src.NumField() {
		if !src.Field(i).IsNil() {
			name, _, _ := strings.Cut(src.Type().Field(i).Tag.Get("json"), ",")
			out = append(out, name)
		}
	}
	return out
}

// pointersSet counts the fields of a struct of pointers that are set.
func pointersSet(of any) (n int) {
	v := reflect.ValueOf(of)
	for i := range v.NumField() {
		if !v.Field(i).IsNil() {
			n++
		}
	}
	return n
}
