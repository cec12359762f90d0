package image

import (
	"context"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubelet "k8s.io/kubelet/config/v1beta1"

	"github.com/wherry-node/wherry/internal/pullaccess"
)

// What comes of asking whether a pod may use an image that is present, as Kubernetes' metric names it.
const (
	allowedByPolicy  = "credentialPolicyAllowed"
	allowedByRecord  = "credentialRecordFound"
	mustAuthenticate = "mustAuthenticate"
	verifyFailed     = "error"
)

func (m *Images) verifies() bool { return m.cfg.Records != nil }

// mayUse reports whether the pod may use an image that is present. An image that needs no verification costs at most the
// attempt to open a file that is not there.
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
	exempt := m.cfg.Access.Exempts(image, func() bool {
		// The intent goes after the record has come: asked for in this order, one of them is seen.
		claimed, err := m.cfg.Records.Claimed(image, img)
		if err != nil {
			m.cfg.Log.Warn("it is not known whether this node pulled an image: pods need their own credentials", "image", image, "err", err)
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
	if len(recorded.KubernetesSecrets) == 0 {
		return mustAuthenticate, nil
	}
	have, err := creds.secrets(ctx)
	if err != nil {
		return "", err
	}
	note, ok := pullaccess.Match(recorded, have)
	if !ok {
		return mustAuthenticate, nil
	}
	if note != nil {
		if err := m.cfg.Records.Matched(image, img.Id, granted(note)); err != nil {
			m.cfg.Log.Warn("a secret that gives access to an image is not recorded", "image", image, "secret", note.Namespace+"/"+note.Name, "err", err)
		}
	}
	return allowedByRecord, nil
}

// granted is what a record says of a pull with this secret; without one, every pod of the node could have made it.
func granted(from *kubelet.ImagePullSecret) kubelet.ImagePullCredentials {
	if from == nil {
		return kubelet.ImagePullCredentials{NodePodsAccessible: true}
	}
	return kubelet.ImagePullCredentials{KubernetesSecrets: []kubelet.ImagePullSecret{*from}}
}
