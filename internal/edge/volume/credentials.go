package volume

import (
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/internal/base/hostfs"
)

// maxCredential is the size in bytes above which the agent does not read a credential bundle back from a volume.
const maxCredential = 4 << 20

var errNoSigner = errors.New("this node has no API server that knows trust anchors and signers: put the files into a volume of another kind")

// trustBundle makes the file of a clusterTrustBundle source.
func (r *resolver) trustBundle(s *v1.ClusterTrustBundleProjection, mode fs.FileMode) (map[string]file, error) {
	if r.credentials == nil {
		return nil, fmt.Errorf("clusterTrustBundle: %w", errNoSigner)
	}
	anchors, err := r.credentials.TrustAnchors(r.ctx, r.pod.Pod, s)
	if err != nil {
		return nil, err
	}
	files := map[string]file{}
	if err := put(files, s.Path, r.private(anchors, mode)); err != nil {
		return nil, fmt.Errorf("clusterTrustBundle: %w", err)
	}
	return files, nil
}

// podCertificate makes the files of a podCertificate source: the private key and the certificate chain together in one file, or each in a
// file of its own, or both.
func (r *resolver) podCertificate(at sourceAt, s *v1.PodCertificateProjection) (map[string]file, error) {
	if r.credentials == nil {
		return nil, fmt.Errorf("podCertificate: %w", errNoSigner)
	}
	bundle, err := r.credentials.PodCertificate(r.ctx, r.pod.Pod, at.volume, at.source, r.presentBundle(s))
	if err != nil {
		return nil, err
	}
	key, chain := pem.Decode(bundle)
	if key == nil {
		return nil, errors.New("podCertificate: the credential bundle has no private key")
	}
	files := map[string]file{}
	for _, f := range []struct {
		path string
		data []byte
	}{
		{s.CredentialBundlePath, bundle}, {s.KeyPath, pem.EncodeToMemory(key)}, {s.CertificateChainPath, chain},
	} {
		if f.path == "" {
			continue
		}
		if err := put(files, f.path, r.private(f.data, at.mode)); err != nil {
			return nil, fmt.Errorf("podCertificate: %w", err)
		}
	}
	return files, nil
}

// presentBundle returns the private key and the certificate chain that the volume already contains, for example after a restart of the
// agent. It returns nil if one of them is missing.
func (r *resolver) presentBundle(s *v1.PodCertificateProjection) []byte {
	switch {
	case r.present == nil:
		return nil
	case s.CredentialBundlePath != "":
		return r.present(s.CredentialBundlePath)
	case s.KeyPath == "" || s.CertificateChainPath == "":
		return nil
	}
	key, chain := r.present(s.KeyPath), r.present(s.CertificateChainPath)
	if len(key) == 0 || len(chain) == 0 {
		return nil
	}
	return append(key, chain...)
}

// presentIn returns a function that reads the files of the volume in dir.
func presentIn(dir string) func(path string) []byte {
	return func(path string) []byte {
		if checkPath(path) != nil {
			return nil
		}
		data, err := hostfs.ReadUntrusted(filepath.Join(dir, dataLink, filepath.Clean(path)), 1, maxCredential)
		if err != nil {
			return nil
		}
		return data
	}
}
