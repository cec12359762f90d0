package conformance

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/wherry-node/wherry/tools/internal/images"
)

// Registry serves images by the OCI distribution specification, for reading only, in place of the registries in their names. containerd
// names the original host in the query parameter ns.
type Registry struct {
	manifests map[string]string // digest of the manifest, by reference
	blobs     map[string][]byte
	types     map[string]string // media type of each manifest, by digest
}

// NewRegistry returns a registry that serves these images from memory.
func NewRegistry(set []images.Image) (*Registry, error) {
	r := &Registry{manifests: map[string]string{}, blobs: map[string][]byte{}, types: map[string]string{}}
	for _, image := range set {
		blobs, manifest, err := image.Blobs()
		if err != nil {
			return nil, fmt.Errorf("serve %s: %w", image.Reference, err)
		}
		for digest, data := range blobs {
			r.blobs[digest] = data
		}
		r.manifests[image.Reference] = manifest
		r.types[manifest] = "application/vnd.oci.image.manifest.v1+json"
	}
	return r, nil
}

// ServeHTTP answers GET and HEAD requests for /v2/, /v2/NAME/manifests/TAG-OR-DIGEST and /v2/NAME/blobs/DIGEST.
func (r *Registry) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	if q.Method != http.MethodGet && q.Method != http.MethodHead {
		http.Error(w, "read only", http.StatusMethodNotAllowed)
		return
	}
	path, ok := strings.CutPrefix(q.URL.Path, "/v2/")
	if ok && path == "" {
		return
	}
	digest := ""
	if name, ref, found := strings.Cut(path, "/manifests/"); found {
		digest = r.manifests[q.URL.Query().Get("ns")+"/"+name+":"+ref]
		if r.types[ref] != "" {
			digest = ref
		}
		w.Header().Set("Content-Type", r.types[digest])
	} else if _, ref, found := strings.Cut(path, "/blobs/"); found {
		digest = ref
		w.Header().Set("Content-Type", "application/octet-stream")
	}
	data, ok := r.blobs[digest]
	if !ok {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w, `{"errors":[{"code":"MANIFEST_UNKNOWN","message":"not here"}]}`)
		return
	}
	w.Header().Set("Docker-Content-Digest", digest)
	w.Header().Set("Content-Length", strconv.Itoa(len(data)))
	if q.Method == http.MethodGet {
		_, _ = w.Write(data)
	}
}

// WriteHosts writes a hosts.toml file for each registry that the tests use, so that containerd pulls from the registry at address instead.
// It writes none for localhost, because tests that pull from localhost run a registry there themselves.
func WriteHosts(dir, address string) error {
	for _, host := range []string{"registry.k8s.io", "docker.io", "gcr.io", "invalid.registry.k8s.io"} {
		if err := os.MkdirAll(filepath.Join(dir, host), 0o755); err != nil {
			return err
		}
		text := fmt.Sprintf("server = %q\n\n[host.%[1]q]\n  capabilities = [\"pull\", \"resolve\"]\n", "http://"+address)
		if err := os.WriteFile(filepath.Join(dir, host, "hosts.toml"), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}
