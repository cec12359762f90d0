package rig

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The registry serves complete images: each part has the digest and the size in its descriptor, and the layers contain the program
// and the requested number of bytes. No two images have a layer in common.
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
	seen := map[string]bool{}
	for range 2 {
		image, err := g.Next()
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimSuffix(strings.TrimPrefix(image, g.host+"/"), ":latest")
		var manifest struct {
			Config descriptor
			Layers []descriptor
		}
		if err := json.Unmarshal(fetch(t, g, name+"/manifests/latest", typeManifest), &manifest); err != nil {
			t.Fatal(err)
		}
		var config struct {
			Rootfs struct {
				DiffIDs []string `json:"diff_ids"`
			}
		}
		if err := json.Unmarshal(fetchPart(t, g, name, manifest.Config), &config); err != nil {
			t.Fatal(err)
		}
		if len(manifest.Layers) != layers+1 || len(config.Rootfs.DiffIDs) != layers+1 {
			t.Fatalf("%d layers, %d digests of layers, want %d", len(manifest.Layers), len(config.Rootfs.DiffIDs), layers+1)
		}
		var files, bytes int64
		for i, l := range manifest.Layers {
			if err := g.Pulled(image); err == nil {
				t.Errorf("%s seems pulled after %d layers", image, i)
			}
			f, b := unpacked(t, fetchPart(t, g, name, l), config.Rootfs.DiffIDs[i])
			files, bytes = files+f, bytes+b
			for _, d := range []string{l.Digest, config.Rootfs.DiffIDs[i]} {
				if seen[d] {
					t.Errorf("%s has a layer of another image", image)
				}
				seen[d] = true
			}
		}
		if err := g.Pulled(image); err != nil {
			t.Error(err)
		}
		if own := int64(layers + 1); files != 1+layers*3+own || bytes != layers*size+4+own*int64(len("big-0")) {
			t.Errorf("%d files of %d bytes", files, bytes)
		}
	}
	for _, what := range []string{"bench/big-0/blobs/sha256:../../program", "bench/big-9/manifests/latest"} {
		resp, err := http.Get("http://" + g.host + "/v2/" + what)
		if err != nil || resp.StatusCode != http.StatusNotFound {
			t.Errorf("%s: %v, %v", what, resp, err)
		}
	}
}

// A runtime that continues an interrupted download (a request with a Range header) gets the rest of a layer.
func TestRestOfLayer(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l, err := makeLayer(filepath.Join(dir, "layer"), func(w *tar.Writer) error { return letters(w, 0, 1000) })
	if err != nil {
		t.Fatal(err)
	}
	defer l.file.Close()
	tail, _, sum, err := l.finish("name", "content")
	if err != nil {
		t.Fatal(err)
	}
	length := l.size + int64(len(tail))
	all, err := io.ReadAll(io.NewSectionReader(whole{l, tail}, 0, length))
	if err != nil || "sha256:"+hex.EncodeToString(sha256Of(all)) != sum {
		t.Fatalf("%d of %d bytes: %v", len(all), length, err)
	}
	for _, from := range []int64{1, l.size - 1, l.size, l.size + 1, length - 1, length} {
		rest, err := io.ReadAll(io.NewSectionReader(whole{l, tail}, from, length-from))
		if err != nil || !bytes.Equal(rest, all[from:]) {
			t.Errorf("from %d: %d bytes, %v", from, len(rest), err)
		}
	}
}

func fetch(t *testing.T, g *Registry, what, kind string) []byte {
	t.Helper()
	resp, err := http.Get("http://" + g.host + "/v2/" + what)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != kind {
		t.Fatalf("%s: %s, %s, %v", what, resp.Status, resp.Header.Get("Content-Type"), err)
	}
	return body
}

func fetchPart(t *testing.T, g *Registry, name string, d descriptor) []byte {
	t.Helper()
	data := fetch(t, g, name+"/blobs/"+d.Digest, d.MediaType)
	if got := "sha256:" + hex.EncodeToString(sha256Of(data)); got != d.Digest || int64(len(data)) != d.Size {
		t.Errorf("%s of %d bytes, want %s of %d", got, len(data), d.Digest, d.Size)
	}
	return data
}

func sha256Of(data []byte) []byte {
	sum := sha256.Sum256(data)
	return sum[:]
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
