package configs

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// A leaf is a field of a pod's spec that has no fields of its own, with the values to try.
type leaf struct {
	// path is the name of the field in the notation of the documentation, for example containers[].env[].value.
	path string
	// steps are the indices of the struct fields on the way from the PodSpec to the leaf. Pointers and lists on the way have no step.
	steps  []int
	values []reflect.Value
}

// leaves returns all leaves of a PodSpec. It finds them by reflection.
func leaves() (all []leaf) {
	var walk func(t reflect.Type, path string, steps []int, owner string, seen []reflect.Type)
	walk = func(t reflect.Type, path string, steps []int, owner string, seen []reflect.Type) {
		whole := tried[owner]
		if whole == nil {
			whole = triedOfType[t]
		}
		if whole != nil {
			l := leaf{path: path, steps: append([]int(nil), steps...)}
			for _, v := range whole {
				l.values = append(l.values, reflect.ValueOf(v))
			}
			all = append(all, l)
			return
		}
		switch t.Kind() {
		case reflect.Pointer:
			walk(t.Elem(), path, steps, owner, seen)
		case reflect.Slice:
			walk(t.Elem(), path+"[]", steps, owner, seen)
		case reflect.Struct:
			for _, s := range seen {
				if s == t {
					return // no type of a pod's spec contains itself; if one ever does, it is walked once
				}
			}
			for i := range t.NumField() {
				f := t.Field(i)
				name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
				at := path
				if name != "" {
					at = strings.TrimPrefix(path+"."+name, ".")
				}
				walk(f.Type, at, append(steps[:len(steps):len(steps)], i), t.Name()+"."+f.Name, append(seen[:len(seen):len(seen)], t))
			}
		default:
			l := leaf{path: path, steps: append([]int(nil), steps...)}
			for _, v := range ofKind(t) {
				l.values = append(l.values, reflect.ValueOf(v))
			}
			all = append(all, l)
		}
	}
	walk(reflect.TypeFor[v1.PodSpec](), "", nil, "", nil)
	return all
}

// ofKind returns the values to try for a field that has no entry in tried or triedOfType.
func ofKind(t reflect.Type) []any {
	switch t.Kind() {
	case reflect.Bool:
		return []any{true, false}
	case reflect.Int32, reflect.Int64:
		return []any{int64(1), int64(7)}
	case reflect.String:
		return []any{"value"}
	case reflect.Map:
		return []any{map[string]string{"key": "value"}}
	}
	return nil
}

// set writes a value of the leaf into the spec, and creates the structs on the way to the leaf. If r is nil, set uses the first element of
// each list on the way; otherwise r chooses an element, or a new one.
func (l *leaf) set(spec *v1.PodSpec, value reflect.Value, r *rand.Rand) {
	at := reflect.ValueOf(spec).Elem()
	for _, step := range l.steps {
		at = inside(at, r).Field(step)
	}
	t := at.Type()
	if t.Kind() == reflect.Slice && value.Kind() != reflect.Slice {
		at = inside(at, r)
		t = at.Type()
	}
	for t.Kind() == reflect.Pointer && value.Type() != t {
		at.Set(reflect.New(t.Elem()))
		at = at.Elem()
		t = at.Type()
	}
	at.Set(value.Convert(t))
}

// inside follows pointers and lists from v down to a struct or a scalar, and creates the values that are missing. r chooses the element
// of a list; if r is nil, it is the first.
func inside(v reflect.Value, r *rand.Rand) reflect.Value {
	for {
		switch v.Kind() {
		case reflect.Pointer:
			if v.IsNil() {
				v.Set(reflect.New(v.Type().Elem()))
				v.Elem().Set(seed(v.Type().Elem(), 0))
			}
			v = v.Elem()
		case reflect.Slice:
			i, n := 0, v.Len()
			if r != nil {
				i = r.IntN(min(n+1, 3))
			}
			if i >= n || v.Type().Elem() == reflect.TypeFor[v1.Volume]() && r == nil && n == 1 { // the volume "scratch" of the base pod stays unchanged
				i = n
				number := n
				if r != nil {
					number = r.IntN(1000)
				}
				v.Set(reflect.Append(v, seed(v.Type().Elem(), number)))
			}
			v = v.Index(i)
		default:
			return v
		}
	}
}

// seed returns the smallest valid value of a type. n is a number for the names in it, so that the elements of a list have different names.
func seed(t reflect.Type, n int) reflect.Value {
	v := reflect.New(t).Elem()
	if s, ok := seeds(n)[t]; ok {
		v.Set(reflect.ValueOf(s))
	}
	return v
}

func seeds(n int) map[reflect.Type]any {
	named := func(what string) string { return fmt.Sprintf("%s-%d", what, n) }
	settings, passwords := v1.LocalObjectReference{Name: "settings"}, v1.LocalObjectReference{Name: "passwords"}
	all := []any{
		v1.Container{Name: named("more"), Image: imageWeb},
		v1.EphemeralContainer{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: named("debug"), Image: imageWeb}},
		v1.Volume{Name: named("volume")}, v1.VolumeMount{Name: "scratch", MountPath: "/" + named("scratch")},
		v1.ConfigMapVolumeSource{LocalObjectReference: settings}, v1.SecretVolumeSource{SecretName: "passwords"},
		v1.ConfigMapProjection{LocalObjectReference: settings}, v1.SecretProjection{LocalObjectReference: passwords},
		v1.ServiceAccountTokenProjection{Path: "token"}, v1.HostPathVolumeSource{Path: "/tmp"}, v1.ImageVolumeSource{Reference: imageOfFiles},
		v1.KeyToPath{Key: "colour", Path: named("colour")}, v1.DownwardAPIVolumeFile{Path: named("name"), FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.name"}},
		v1.ObjectFieldSelector{FieldPath: "metadata.name"}, v1.ResourceFieldSelector{Resource: "limits.cpu", ContainerName: "main"},
		v1.EnvVar{Name: strings.ReplaceAll(strings.ToUpper(named("variable")), "-", "_")}, v1.EnvFromSource{},
		v1.ConfigMapEnvSource{LocalObjectReference: settings}, v1.SecretEnvSource{LocalObjectReference: passwords},
		v1.ConfigMapKeySelector{LocalObjectReference: settings, Key: "colour"}, v1.SecretKeySelector{LocalObjectReference: passwords, Key: "user"},
		v1.FileKeySelector{VolumeName: "scratch", Path: envFile, Key: "FIRST"},
		v1.ContainerPort{ContainerPort: int32(8080 + n)}, v1.HostAlias{IP: "192.0.2.1", Hostnames: []string{"one"}}, v1.Sysctl{Name: "net.ipv4.tcp_syncookies", Value: "1"},
		v1.PodDNSConfigOption{Name: "ndots"}, v1.HTTPGetAction{Port: intstr.FromInt32(8080)}, v1.TCPSocketAction{Port: intstr.FromInt32(8080)},
		v1.GRPCAction{Port: 8080}, v1.ExecAction{Command: []string{"true"}}, v1.SleepAction{Seconds: 1}, v1.HTTPHeader{Name: "X-Header"},
		v1.Probe{ProbeHandler: v1.ProbeHandler{}}, v1.SeccompProfile{Type: v1.SeccompProfileTypeRuntimeDefault},
		v1.AppArmorProfile{Type: v1.AppArmorProfileTypeRuntimeDefault}, v1.PodReadinessGate{ConditionType: "example.com/ready"},
		v1.ContainerResizePolicy{ResourceName: v1.ResourceCPU, RestartPolicy: v1.NotRequired},
		v1.ContainerRestartRule{Action: v1.ContainerRestartRuleActionRestart,
			ExitCodes: &v1.ContainerRestartRuleOnExitCodes{Operator: v1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{1}}},
		v1.Toleration{Key: "example.com/taint", Operator: v1.TolerationOpEqual, Value: "a", Effect: v1.TaintEffectNoExecute},
	}
	out := make(map[reflect.Type]any, len(all))
	for _, v := range all {
		out[reflect.TypeOf(v)] = v
	}
	return out
}

func amounts(pairs ...string) v1.ResourceList {
	l := v1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		l[v1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return l
}
