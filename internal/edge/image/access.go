package image

import (
	"context"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubelet "k8s.io/kubelet/config/v1beta1"

	"github.com/wherry-node/wherry/internal/core/pullaccess"
)

// These are the results of the check whether a pod may use a present image. The metric of Kubernetes has the same names.
const (
	allowedByPolicy  = "credentialPolicyAllowed"
	allowedByRecord  = "credentialRecordFound"
	mustAuthenticate = "mustAuthenticate"
	verifyFailed     = "error"
)

func (m *Images) verifies() bool { return m.cfg.Records != nil }

// mayUse reports whether the pod may use an image that is present. For an image that needs no verification, mayUse costs at most one system
// call: it tries to open the record of a pull, which does not exist.
func (m *Images) mayUse(ctx context.Context, image string, img *runtimeapi.Image, creds *credentials) (bool, error) {
	if !m.verifies() {
		return true, nil
	}
	result, err := m.verify(ctx, image, img, creds)
	if err != nil {
		result = verifyFailed
	}
	m.cfg.Meter.ImageVerified(result)
	return result == allowedByPolicy || result == allowedByRecord, err
}

func (m *Images) verify(ctx context.Context, image string, img *runtimeapi.Image, creds *credentials) (result string, err error) {
	var record *kubelet.ImagePulledRecord
	exempt := m.access.Load().Exempts(image, func() bool {
		// An intent is the note that a pull has begun. A pull removes the intent only after it has written the record. If the intent
		// is read first, at least one of the two is found.
		claimed, err := m.cfg.Records.Claimed(image, img)
		if err != nil {
			m.cfg.Log.Warn("note of an image pull not read; pods need their own credentials for the image", "image", image, "err", err)
		}
		var pulled bool
		record, pulled = m.cfg.Records.Record(img.Id)
		return pulled || claimed
	})
	if exempt {
		return allowedByPolicy, nil
	}
	if record == nil {
		record, _ = m.cfg.Records.Record(img.Id)
	}
	repository, err := pullaccess.Repository(image)
	if err != nil || record == nil {
		return mustAuthenticate, nil
	}
	recorded := record.CredentialMapping[repository]
	if recorded.NodePodsAccessible {
		return allowedByRecord, nil
	}
	if len(recorded.KubernetesSecrets) == 0 && len(recorded.KubernetesServiceAccounts) == 0 {
		return mustAuthenticate, nil
	}
	secrets, accounts, err := creds.owners(ctx)
	if err != nil {
		return "", err
	}
	if pullaccess.MatchAccount(recorded, accounts) {
		return allowedByRecord, nil
	}
	note, ok := pullaccess.Match(recorded, secrets)
	if !ok {
		return mustAuthenticate, nil
	}
	if note != nil {
		if err := m.cfg.Records.Matched(image, img.Id, granted(owner{secret: note})); err != nil {
			m.cfg.Log.Warn("access of a secret to an image not recorded", "image", image, "secret", note.Namespace+"/"+note.Name, "err", err)
		}
	}
	return allowedByRecord, nil
}

// granted returns the part of a pull's record that says which pods may use the image. from is the owner of the credential that was used: a
// secret or a service account. If the credential belongs to the node, or none was used, every pod may use the image.
func granted(from owner) kubelet.ImagePullCredentials {
	switch {
	case from.secret != nil:
		return kubelet.ImagePullCredentials{KubernetesSecrets: []kubelet.ImagePullSecret{*from.secret}}
	case from.account != nil:
		return kubelet.ImagePullCredentials{KubernetesServiceAccounts: []kubelet.ImagePullServiceAccount{*from.account}}
	}
	return kubelet.ImagePullCredentials{NodePodsAccessible: true}
}
