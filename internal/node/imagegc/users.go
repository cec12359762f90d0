package imagegc

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/wherry-node/wherry/internal/core/pullaccess"
)

// users contains the images that are in use.
type users struct {
	ids   map[string]bool  // IDs and references of the containers' images
	names pullaccess.Names // image names in the specs of pods
}

// users collects the images that are in use now.
func (c *Collector) users() *users {
	u := &users{ids: map[string]bool{}}
	for _, o := range c.cfg.Observed() {
		for i := range o.Containers {
			u.ids[o.Containers[i].ImageID], u.ids[o.Containers[i].ImageRef] = true, true
			for _, image := range o.Containers[i].ImageVolumes { // of a pod whose spec may not be known
				u.names.Add(image)
				u.ids[image] = true
			}
		}
	}
	for _, p := range c.cfg.Desired() {
		if p.Status.Phase == v1.PodSucceeded || p.Status.Phase == v1.PodFailed {
			continue
		}
		for _, list := range [][]v1.Container{p.Spec.InitContainers, p.Spec.Containers} {
			for i := range list {
				u.names.Add(list[i].Image)
			}
		}
		for i := range p.Spec.EphemeralContainers {
			u.names.Add(p.Spec.EphemeralContainers[i].Image)
		}
		for i := range p.Spec.Volumes {
			if v := p.Spec.Volumes[i].Image; v != nil {
				u.names.Add(v.Reference)
			}
		}
	}
	delete(u.ids, "")
	return u
}

// has reports whether an image is in use.
func (u *users) has(img *runtimeapi.Image) bool {
	used := func(name string) bool { return u.ids[name] || u.names.Has(name) }
	return used(img.GetId()) || slices.ContainsFunc(img.GetRepoTags(), used) || slices.ContainsFunc(img.GetRepoDigests(), used)
}
