package rig

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The registry serves a complete image: each part has the digest and the size in its descriptor, and the layers contain the
// program and the requested number of bytes.
func TestRegistry(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	program := filepath.Join(dir, "program")
	if err := os.WriteFile(program, []byte("runs"), 0o700); err != nil {
		t.Fatal(err)
	}
	const layers, size = 2, 600_000
	g, err := newRegistry(t.Context(), filepath.Join(dir, "registry"), program, layers, size)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	host, _, _ := strings.Cut(g.Image, "/")
	get := func(what, kind string) []byte {
		resp, err := http.Get("http://" + host + "/v2/" + what)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != kind && kind != "" {
			t.Fatalf("%s: %s, %s, %v", what, resp.Status, resp.Header.Get("Content-Type"), err)
		}
		return body
	}
	part := func(d descriptor) []byte {
		data := get("bench/big/blobs/"+d.Digest, d.MediaType)
		if got := "sha256:" + hex.EncodeToString(sha256Of(data)); got != d.Digest || int64(len(data)) != d.Size {
			t.Errorf("%s of %d bytes, want %s of %d", got, len(data), d.Digest, d.Size)
		}
		return data
	}
	get("", "")
	var manifest struct {
		Config descriptor
		Layers []descriptor
	}
	if err := json.Unmarshal(get("bench/big/manifests/latest", typeManifest), &manifest); err != nil {
		t.Fatal(err)
	}
	var config struct {
		Rootfs struct {
			DiffIDs []string `json:"diff_ids"`
		}
	}
	if err := json.Unmarshal(part(manifest.Config), &config); err != nil {
		t.Fatal(err)
	}
	if len(manifest.Layers) != layers+1 || len(config.Rootfs.DiffIDs) != layers+1 {
		t.Fatalf("%d layers, %d digests of layers, want %d", len(manifest.Layers), len(config.Rootfs.DiffIDs), layers+1)
	}
	var files, bytes int64
	for i, l := range manifest.Layers {
		f, b := unpacked(t, part(l), config.Rootfs.DiffIDs[i])
		files, bytes = files+f, bytes+b
	}
	if files != 1+layers*3 || bytes != layers*size+4 {
		t.Errorf("%d files of %d bytes", files, bytes)
	}
	if resp, err := http.Get("http://" + host + "/v2/bench/big/blobs/sha256:../../program"); err != nil || resp.StatusCode != http.StatusNotFound {
		t.Errorf("a blob that is none: %v, %v", resp, err)
	}
}

func unpacked(t *testing.T, layer []byte, diff string) (files, size int64) {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(layer))
	if err != nil {
		t.Fatal(err)
	}
	plain, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	if got := "sha256:" + hex.EncodeToString(sha256Of(plain)); got != diff {
		t.Errorf("a layer is %s, the configuration says %s", got, diff)
	}
	for r := tar.NewReader(bytes.NewReader(plain)); ; files++ {
		h, err := r.Next()
		if err == io.EOF {
			return files, size
		}
		if err != nil {
			t.Fatal(err)
		}
		size += h.Size
	}
}
