package crispec

import (
	"slices"

	v1 "k8s.io/api/core/v1"
)

// EnvObjects lists the objects in a pod's namespace that the environments of its containers refer to, sorted, each
// once.
type EnvObjects struct {
	ConfigMaps []string
	Secrets    []string
}

// ReferencedEnvObjects lists what the environments of all containers of a pod refer to, including optional objects.
func ReferencedEnvObjects(p *v1.Pod) EnvObjects {
	var out EnvObjects
	for c := range Containers(p) {
		for _, from := range c.EnvFrom {
			if from.ConfigMapRef != nil {
				out.ConfigMaps = append(out.ConfigMaps, from.ConfigMapRef.Name)
			}
			if from.SecretRef != nil {
				out.Secrets = append(out.Secrets, from.SecretRef.Name)
			}
		}
		for _, e := range c.Env {
			if e.ValueFrom == nil {
				continue
			}
			if ref := e.ValueFrom.ConfigMapKeyRef; ref != nil {
				out.ConfigMaps = append(out.ConfigMaps, ref.Name)
			}
			if ref := e.ValueFrom.SecretKeyRef; ref != nil {
				out.Secrets = append(out.Secrets, ref.Name)
			}
		}
	}
	slices.Sort(out.ConfigMaps)
	slices.Sort(out.Secrets)
	out.ConfigMaps, out.Secrets = slices.Compact(out.ConfigMaps), slices.Compact(out.Secrets)
	return out
}
