package imagegc

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/wherry-node/wherry/internal/core/pullaccess"
)

// users are the images that are in use.
type users struct {
	ids   map[string]bool // IDs and references that containers have
	names map[string]bool // names in the specs of pods
}

// users collects the images that are in use now.
func (c *Collector) users() users {
	u := users{ids: map[string]bool{}, names: map[string]bool{}}
	for _, o := range c.cfg.Observed() {
		for i := range o.Containers {
			u.ids[o.Containers[i].ImageID], u.ids[o.Containers[i].ImageRef] = true, true
		}
	}
	for _, p := range c.cfg.Desired() {
		if p.Status.Phase == v1.PodSucceeded || p.Status.Phase == v1.PodFailed {
			continue
		}
		for _, list := range [][]v1.Container{p.Spec.InitContainers, p.Spec.Containers} {
			for i := range list {
				u.names[list[i].Image] = true
			}
		}
		for i := range p.Spec.EphemeralContainers {
			u.names[p.Spec.EphemeralContainers[i].Image] = true
		}
		for i := range p.Spec.Volumes {
			if v := p.Spec.Volumes[i].Image; v != nil {
				u.names[v.Reference] = true
			}
		}
	}
	delete(u.ids, "")
	delete(u.names, "")
	return u
}

// has reports whether an image is in use.
func (u users) has(img *runtimeapi.Image) bool {
	if u.ids[img.GetId()] || u.names[img.GetId()] {
		return true
	}
	for _, full := range slices.Concat(img.GetRepoTags(), img.GetRepoDigests()) {
		if u.ids[full] || u.names[full] {
			return true
		}
		for name := range u.names {
			if pullaccess.SameImage(name, full) {
				return true
			}
		}
	}
	return false
}
