package pullaccess

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"

	kubelet "k8s.io/kubelet/config/v1beta1"
)

// maxNotedByMatch bounds the secrets that are recorded because they matched: namespaces come and go, and each may bring a
// copy of the same secret. Beyond it a secret that matches by hash still counts, and is not recorded.
const maxNotedByMatch = 100

// Fingerprint is the hash by which a credential is known in a record, without being in it.
func Fingerprint(username, password, email string) string {
	raw, err := json.Marshal(struct {
		Username string `json:"username,omitempty"`
		Password string `json:"password,omitempty"`
		Email    string `json:"email,omitempty"`
	}{username, password, email})
	if err != nil { // strings always encode
		return ""
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:])
}

// Match reports whether one of a pod's secrets has pulled the image before: the same credential, or the same secret with
// another content (a password that was changed). note is a secret to record, nil where the record says it already.
func Match(recorded kubelet.ImagePullCredentials, have []kubelet.ImagePullSecret) (note *kubelet.ImagePullSecret, ok bool) {
	room := len(recorded.KubernetesSecrets) < maxNotedByMatch
	for i := range have {
		mine := &have[i]
		for _, old := range recorded.KubernetesSecrets {
			sameHash := old.CredentialHash != "" && old.CredentialHash == mine.CredentialHash
			// Secrets that come with a manifest may have no UID: another of that name need not be the same.
			samePlace := mine.UID != "" && old.UID == mine.UID && old.Namespace == mine.Namespace && old.Name == mine.Name
			switch {
			case sameHash && samePlace, sameHash && !room:
				return nil, true
			case sameHash, samePlace && room:
				return mine, true
			}
		}
	}
	return nil, false
}

// Add merges credentials that pulled an image under a name into its record, and reports whether that changed the record.
// "Accessible to all pods" once said stays said.
func Add(r *kubelet.ImagePulledRecord, repository string, c kubelet.ImagePullCredentials) bool {
	if !c.NodePodsAccessible && len(c.KubernetesSecrets) == 0 && len(c.KubernetesServiceAccounts) == 0 {
		return false
	}
	old := r.CredentialMapping[repository]
	if old.NodePodsAccessible {
		return false
	}
	next := kubelet.ImagePullCredentials{NodePodsAccessible: true}
	if !c.NodePodsAccessible {
		next = kubelet.ImagePullCredentials{
			KubernetesSecrets: union(old.KubernetesSecrets, c.KubernetesSecrets, func(s kubelet.ImagePullSecret) place {
				return place{s.Namespace, s.Name, s.UID}
			}),
			KubernetesServiceAccounts: union(old.KubernetesServiceAccounts, c.KubernetesServiceAccounts, func(s kubelet.ImagePullServiceAccount) place {
				return place{s.Namespace, s.Name, s.UID}
			}),
		}
		if slices.Equal(next.KubernetesSecrets, old.KubernetesSecrets) && slices.Equal(next.KubernetesServiceAccounts, old.KubernetesServiceAccounts) {
			return false
		}
	}
	if r.CredentialMapping == nil {
		r.CredentialMapping = map[string]kubelet.ImagePullCredentials{}
	}
	r.CredentialMapping[repository] = next
	return true
}

// place is where an object is, in the order in which a record lists them.
type place struct{ namespace, name, uid string }

func comparePlaces(a, b place) int {
	return cmp.Or(cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.name, b.name), cmp.Compare(a.uid, b.uid))
}

// union is a and b, sorted by place; of two at one place b's stands.
func union[T any](a, b []T, at func(T) place) []T {
	byPlace := make(map[place]T, len(a)+len(b))
	for _, list := range [][]T{a, b} {
		for _, v := range list {
			byPlace[at(v)] = v
		}
	}
	var out []T
	for _, v := range byPlace {
		out = append(out, v)
	}
	slices.SortFunc(out, func(x, y T) int { return comparePlaces(at(x), at(y)) })
	return out
}
