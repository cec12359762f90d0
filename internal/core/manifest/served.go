package manifest

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// A pod as "kubectl get pod -o yaml" prints it has what the API server and others wrote into it. Its node, or no node at
// all, has no use for that: it is left out, so that what somebody wrote runs here too.

// tokenVolume is how the names of the volumes begin that "the service account admission controller" adds.
const tokenVolume = "kube-api-access-"

// unserve takes out of an object what no person writes: "metadata ... populated by the system, read-only". The UID is one
// of it: this is another pod. An object that was never in an API server stays as it is.
func unserve(m map[string]any) (was bool) {
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

// leaveOut takes out of a pod what was added to it in a cluster and cannot be had here, and says what that is: the default
// service account with the volume of its token, and the containers that somebody debugged it with. What a person asked for is
// not left out: that is refused later.
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
		notes = append(notes, "service account default is left out: a pod of a node has none")
	}
	if n := len(s.EphemeralContainers); served && n > 0 {
		s.EphemeralContainers = nil
		notes = append(notes, fmt.Sprintf("%d ephemeral containers are left out: they are added to a pod that runs", n))
	}
	return notes
}
