package objects

import (
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/internal/core/crispec"
	"github.com/wherry-node/wherry/internal/core/inorder"
)

// references lists the ConfigMaps and Secrets that a pod refers to, in volumes, environments and pull secrets, sorted and without
// duplicates.
func references(p *v1.Pod) []key {
	var keys []key
	add := func(k kind, name string) {
		if name != "" {
			keys = append(keys, key{k, p.Namespace, name})
		}
	}
	for i := range p.Spec.ImagePullSecrets {
		add(secret, p.Spec.ImagePullSecrets[i].Name)
	}
	env := crispec.ReferencedEnvObjects(p)
	for _, name := range env.ConfigMaps {
		add(configMap, name)
	}
	for _, name := range env.Secrets {
		add(secret, name)
	}
	for i := range p.Spec.Volumes {
		v := &p.Spec.Volumes[i]
		switch {
		case v.ConfigMap != nil:
			add(configMap, v.ConfigMap.Name)
		case v.Secret != nil:
			add(secret, v.Secret.SecretName)
		case v.Projected != nil:
			for j := range v.Projected.Sources {
				s := &v.Projected.Sources[j]
				if s.ConfigMap != nil {
					add(configMap, s.ConfigMap.Name)
				}
				if s.Secret != nil {
					add(secret, s.Secret.Name)
				}
			}
		}
	}
	inorder.Sort(keys, compareKeys)
	return slices.Compact(keys)
}
