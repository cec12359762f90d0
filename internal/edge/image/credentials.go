package image

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	kubelet "k8s.io/kubelet/config/v1beta1"

	"github.com/wherry-node/wherry/internal/base/hostfs"
)

// maxNodeConfig bounds a docker configuration file of the node, in bytes.
const maxNodeConfig = 1 << 20

// These constants bound the imagePullSecrets of one pod, which its author chooses: each name costs a request, and each credential memory.
const (
	maxPullSecrets     = 256     // number of names
	maxPullSecretBytes = 4 << 20 // bytes of all secrets together
)

// credentials are the registry credentials for one Request. They come from the pod's secrets and from the node's files and plugins. They
// are read when they are first needed.
type credentials struct {
	images *Images
	req    *Request

	found    bool
	all      []credential // credentials in the order in which they are tried
	warnings []string     // the names of missing secrets
	plugins  error        // why a plugin returned nothing; the pull is tried without its credentials
	err      error
}

// find returns the credentials. It reads the secrets and runs the plugins at most once per request.
func (c *credentials) find(ctx context.Context) ([]credential, error) {
	if !c.found {
		c.found = true
		c.all, c.err = c.lookup(ctx)
	}
	return c.all, c.err
}

// owners returns the secrets and service accounts that have a credential for the image.
func (c *credentials) owners(ctx context.Context) (secrets []kubelet.ImagePullSecret, accounts []kubelet.ImagePullServiceAccount, err error) {
	all, err := c.find(ctx)
	for _, one := range all {
		if one.from.secret != nil {
			secrets = append(secrets, *one.from.secret)
		}
		if one.from.account != nil {
			accounts = append(accounts, *one.from.account)
		}
	}
	return secrets, accounts, err
}

// lookup returns the credentials in the order to try: those of the pod's secrets, of the node's files, and of the node's plugins. Each
// source has a keyring of its own, as in upstream's kubelet. So a more specific pattern of a later source changes nothing in this order,
// and each source may give its credentials for Docker Hub.
func (c *credentials) lookup(ctx context.Context) ([]credential, error) {
	repo, err := repository(c.req.Image)
	if err != nil {
		return nil, err
	}
	var pod, files, plugins keyring
	if err := c.readSecrets(ctx, &pod); err != nil {
		return nil, err
	}
	c.readFiles(&files)
	if c.images.cfg.Plugins != nil {
		got, err := c.images.cfg.Plugins.Credentials(ctx, c.req.Pod, repo)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		c.plugins = err
		plugins.addPlugins(got)
	}
	return slices.Concat(pod.lookup(repo), files.lookup(repo), plugins.lookup(repo)), nil
}

func (c *credentials) readSecrets(ctx context.Context, into *keyring) error {
	m, req := c.images, c.req
	if req.Pod == nil || m.cfg.Secrets == nil {
		return nil
	}
	read, size := map[string]bool{"": true}, 0
	for _, ref := range req.Pod.Spec.ImagePullSecrets {
		if read[ref.Name] { // a pod may name one secret many times
			continue
		}
		read[ref.Name] = true
		if len(read) > maxPullSecrets+1 { // read also has the name "", which does not count
			return fmt.Errorf("the pod names more than %d imagePullSecrets: name only those that its images need", maxPullSecrets)
		}
		s, err := m.cfg.Secrets(ctx, req.Pod, ref.Name)
		switch {
		case err != nil && ctx.Err() != nil:
			return ctx.Err()
		case apierrors.IsNotFound(err):
			c.warnings = append(c.warnings, ref.Name)
			continue
		case err != nil:
			m.cfg.Log.Warn("cannot read image pull secret", "secret", req.Pod.Namespace+"/"+ref.Name, "err", err)
			c.warnings = append(c.warnings, ref.Name)
			continue
		}
		if size += len(s.Data[v1.DockerConfigJsonKey]) + len(s.Data[v1.DockerConfigKey]); size > maxPullSecretBytes {
			return fmt.Errorf("the pod's imagePullSecrets have more than %d bytes together: name only those that its images need", maxPullSecretBytes)
		}
		if err := into.addSecret(s); err != nil {
			return err
		}
	}
	return nil
}

// readFiles reads the node's docker configuration files. Most nodes have none. It logs each file and each entry that cannot be used, and
// uses the others.
func (c *credentials) readFiles(into *keyring) {
	cfg := &c.images.cfg
	for _, file := range cfg.NodeCredentials {
		raw, err := readNodeConfig(file)
		var bad []error
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			bad = []error{err}
		case filepath.Base(file) == ".dockercfg":
			bad = into.addLegacy(raw, nil)
		default:
			bad = into.addConfig(raw, nil)
		}
		for _, err := range bad {
			cfg.Log.Warn("registry credentials of the node are not used", "file", file, "err", err)
		}
	}
}

func readNodeConfig(file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return hostfs.ReadBounded(f, maxNodeConfig)
}
