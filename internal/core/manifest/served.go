package manifest

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// The output of "kubectl get pod -o yaml" contains fields that the API server and controllers added. Decode leaves them out,
// because this node may have no API server, so that such output works as a manifest.

// tokenVolume is the prefix of the names of volumes that "the service account admission controller" adds.
const tokenVolume = "kube-api-access-"

// unserve removes the fields that only an API server sets ("metadata ... populated by the system, read-only") from an object that came from
// an API server. It also removes the UID, because the pod on this node is another pod. If the object did not come from an API server,
// unserve does not change it and returns false.
func unserve(m map[string]any) (served bool) {
	meta, _ := m["metadata"].(map[string]any)
	uid, _ := meta["uid"].(string)
	if version, _ := meta["resourceVersion"].(string); version == "" || uid == "" {
		return false
	}
	for _, k := range [...]string{"uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds",
		"managedFields", "ownerReferences", "finalizers", "generateName", "selfLink"} {
		delete(meta, k)
	}
	delete(m, "status")
	if spec, ok := m["spec"].(map[string]any); ok {
		delete(spec, "nodeName")
	}
	return true
}

// leaveOut removes additions of a cluster that this node cannot supply: the default service account with the volume of its token, and
// ephemeral containers. It returns a note about each. It does not remove such fields if a person wrote them: validation refuses them later.
func leaveOut(p *v1.Pod, served bool) (notes []string) {
	s := &p.Spec
	isToken := func(v v1.Volume) bool {
		return strings.HasPrefix(v.Name, tokenVolume) && v.Projected != nil &&
			slices.ContainsFunc(v.Projected.Sources, func(ps v1.VolumeProjection) bool { return ps.ServiceAccountToken != nil })
	}
	account := s.ServiceAccountName == "default" || s.ServiceAccountName == "" && s.DeprecatedServiceAccount == "default"
	if account {
		s.ServiceAccountName, s.DeprecatedServiceAccount = "", ""
	}
	token := false
	for i := range s.Volumes {
		if !isToken(s.Volumes[i]) {
			continue
		}
		token = true
		name := s.Volumes[i].Name
		for _, list := range [][]v1.Container{s.InitContainers, s.Containers} {
			for j := range list {
				list[j].VolumeMounts = slices.DeleteFunc(list[j].VolumeMounts, func(m v1.VolumeMount) bool { return m.Name == name })
			}
		}
	}
	s.Volumes = slices.DeleteFunc(s.Volumes, isToken)
	switch {
	case token:
		notes = append(notes, "the service account's token (volume "+tokenVolume+"...) is left out: tokens come from the API server")
	case account:
		notes = append(notes, "service account default is left out: a pod from a manifest has none")
	}
	if n := len(s.EphemeralContainers); served && n > 0 {
		s.EphemeralContainers = nil
		notes = append(notes, fmt.Sprintf("%d ephemeral containers are left out: they can only be added to a running pod", n))
	}
	return notes
}
