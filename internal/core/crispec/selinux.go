package crispec

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
)

// VolumeSELinux returns the SELinux options of the containers that mount a volume, so that the volume can be mounted with their label and the
// runtime need not label each file. It returns nil if the runtime has to label the files, because the documentation's condition, "Pod (or all its
// Containers that use the PersistentVolumeClaim) must have seLinuxOptions set", is not met, because the pod asks for that (seLinuxChangePolicy
// Recursive), or because the options name no level: then the runtime chooses the level, and it is not known here.
//
// It returns an error if two containers have different options: a mount has one label, and a container with another one could not read it.
func VolumeSELinux(p *v1.Pod, volume string) (*v1.SELinuxOptions, error) {
	if sc := p.Spec.SecurityContext; sc != nil && sc.SELinuxChangePolicy != nil && *sc.SELinuxChangePolicy == v1.SELinuxChangePolicyRecursive {
		return nil, nil
	}
	var first *v1.SELinuxOptions
	var of string
	for _, list := range [][]v1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range list {
			c := &list[i]
			if !slices.ContainsFunc(c.VolumeMounts, func(m v1.VolumeMount) bool { return m.Name == volume }) {
				continue
			}
			o := securityOf(p, c).SELinuxOptions
			switch {
			case o == nil || o.Level == "":
				return nil, nil
			case first == nil:
				first, of = o, c.Name
			case first.User != o.User || first.Level != o.Level: // only these are part of the label of files
				return nil, fmt.Errorf("containers %q and %q mount the volume with different SELinux labels, and it can have only one: "+
					"give them the same seLinuxOptions, or set seLinuxChangePolicy: Recursive", of, c.Name)
			}
		}
	}
	return first, nil
}
