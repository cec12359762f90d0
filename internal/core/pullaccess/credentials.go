package pullaccess

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"

	kubelet "k8s.io/kubelet/config/v1beta1"

	"github.com/wherry-node/wherry/internal/core/inorder"
)

// maxNotedByMatch bounds the number of secrets that are added to a record because they match a secret of the record. Without a bound
// the record would grow without end, because each new namespace may have a copy of the same secret. Beyond the bound, a secret that
// matches by hash still gives access, but is not recorded.
const maxNotedByMatch = 100

// Fingerprint returns the hash that stands for a credential in a record, so that the record does not contain the
// credential.
func Fingerprint(username, password, email string) string {
	raw, err := json.Marshal(struct {
		Username string `json:"username,omitempty"`
		Password string `json:"password,omitempty"`
		Email    string `json:"email,omitempty"`
	}{username, password, email})
	if err != nil { // encoding strings never fails
		return ""
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:])
}

// Match reports whether one of a pod's secrets has pulled the image before: the same credential, or the same secret
// with other content (a changed password). note is a secret to record, or nil if the record has it already.
func Match(recorded kubelet.ImagePullCredentials, have []kubelet.ImagePullSecret) (note *kubelet.ImagePullSecret, ok bool) {
	room := len(recorded.KubernetesSecrets) < maxNotedByMatch
	for i := range have {
		mine := &have[i]
		for _, old := range recorded.KubernetesSecrets {
			sameHash := old.CredentialHash != "" && old.CredentialHash == mine.CredentialHash
			// Without UIDs (secrets of a manifest may have none), equal names do not show that it is the same secret.
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

// Add merges credentials that pulled an image into its record, and reports whether that changed the record. An image
// that was once recorded as accessible to all pods stays so.
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
			KubernetesSecrets: union(old.KubernetesSecrets, c.KubernetesSecrets, func(s kubelet.ImagePullSecret) object {
				return object{s.Namespace, s.Name, s.UID}
			}),
			KubernetesServiceAccounts: union(old.KubernetesServiceAccounts, c.KubernetesServiceAccounts, func(s kubelet.ImagePullServiceAccount) object {
				return object{s.Namespace, s.Name, s.UID}
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

// object is the key of a recorded secret or service account. A record is sorted by these fields, in this order.
type object struct{ namespace, name, uid string }

func compareObjects(a, b object) int {
	return cmp.Or(cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.name, b.name), cmp.Compare(a.uid, b.uid))
}

// union returns the entries of a and b, sorted by object. If a and b both have an entry for an object, the result has the entry of b.
func union[T any](a, b []T, at func(T) object) []T {
	byObject := make(map[object]T, len(a)+len(b))
	for _, list := range [][]T{a, b} {
		for _, v := range list {
			byObject[at(v)] = v
		}
	}
	var out []T
	for _, v := range byObject {
		out = append(out, v)
	}
	inorder.Sort(out, func(x, y T) int { return compareObjects(at(x), at(y)) })
	return out
}
