package image

import (
	"context"
	"os"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	kubelet "k8s.io/kubelet/config/v1beta1"
)

// credentials are the credentials of the pod's secrets and of the node for one request. They are read when first needed.
type credentials struct {
	images *Images
	req    *Request

	found    bool
	all      []credential // in the order to try
	warnings []string     // the names of missing secrets
	err      error
}

// find returns the credentials. It reads the secrets at most once per request.
func (c *credentials) find(ctx context.Context) ([]credential, error) {
	if !c.found {
		c.found = true
		c.all, c.err = c.lookup(ctx)
	}
	return c.all, c.err
}

// secrets returns the pod's secrets with a credential for the image, in the form of the record.
func (c *credentials) secrets(ctx context.Context) ([]kubelet.ImagePullSecret, error) {
	all, err := c.find(ctx)
	var out []kubelet.ImagePullSecret
	for _, one := range all {
		if one.from != nil {
			out = append(out, *one.from)
		}
	}
	return out, err
}

func (c *credentials) lookup(ctx context.Context) ([]credential, error) {
	m, req := c.images, c.req
	repo, err := repository(req.Image)
	if err != nil {
		return nil, err
	}
	var pod, node keyring
	if req.Pod != nil && m.cfg.Secrets != nil {
		for _, ref := range req.Pod.Spec.ImagePullSecrets {
			if ref.Name == "" {
				continue
			}
			s, err := m.cfg.Secrets(ctx, req.Pod, ref.Name)
			switch {
			case err != nil && ctx.Err() != nil:
				return nil, ctx.Err()
			case apierrors.IsNotFound(err):
				c.warnings = append(c.warnings, ref.Name)
				continue
			case err != nil:
				m.cfg.Log.Warn("cannot read image pull secret", "secret", req.Pod.Namespace+"/"+ref.Name, "err", err)
				c.warnings = append(c.warnings, ref.Name)
				continue
			}
			if err := pod.addSecret(s); err != nil {
				return nil, err
			}
		}
	}
	for _, file := range m.cfg.NodeCredentials {
		raw, err := os.ReadFile(file)
		if err != nil {
			continue // most nodes have none
		}
		if err := node.addConfig(raw, nil); err != nil {
			m.cfg.Log.Warn("registry credentials of the node are not used", "file", file, "err", err)
		}
	}
	return append(pod.lookup(repo), node.lookup(repo)...), nil
}
