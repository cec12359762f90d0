package rig

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// These are the number of layers, and their size before compression in bytes, of the image that is pulled while pods start. Its
// files contain random letters, which gzip compresses to three quarters.
const (
	bigLayers = 4
	bigLayer  = 64 << 20
	bigFile   = 256 << 10
)

// These are media types of OCI images.
const (
	typeManifest = "application/vnd.oci.image.manifest.v1+json"
	typeConfig   = "application/vnd.oci.image.config.v1+json"
	typeLayer    = "application/vnd.oci.image.layer.v1.tar+gzip"
)

// Registry serves one image over HTTP on loopback, where container runtimes do not require TLS. The registry of
// tools/internal/conformance serves archives of many images; this module cannot import it and does not need its features.
type Registry struct {
	Image string // the reference of the image

	dir      string
	manifest []byte
	types    map[string]string // by digest
	web      *http.Server
	wg       sync.WaitGroup
}

// descriptor is a reference to a part of an image.
type descriptor struct {
	MediaType string `json:"mediaType"`
	Digest    string `json:"digest"`
	Size      int64  `json:"size"`
}

// Registry returns the rig's registry, and starts it at the first call. It serves a large image that can be run.
func (r *Rig) Registry(ctx context.Context) (*Registry, error) {
	if r.registry != nil {
		return r.registry, nil
	}
	g, err := newRegistry(ctx, r.path("registry"), filepath.Join(r.Bin, "images", "pause"), bigLayers, bigLayer)
	if err != nil {
		return nil, fmt.Errorf("start a registry: %w", err)
	}
	r.registry = g
	return g, nil
}

// newRegistry makes an image with a program and layers of the given size in dir, and serves it.
func newRegistry(ctx context.Context, dir, program string, layers int, size int64) (*Registry, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	g := &Registry{dir: dir, types: map[string]string{}}
	if err := g.makeImage(ctx, program, layers, size); err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	g.Image = l.Addr().String() + "/bench/big:latest"
	g.web = &http.Server{Handler: g.handler()}
	g.wg.Go(func() { _ = g.web.Serve(l) })
	return g, nil
}

// Close ends the registry.
func (g *Registry) Close() {
	_ = g.web.Close()
	g.wg.Wait()
}

// makeImage writes the image's parts to files that have the names of their digests.
func (g *Registry) makeImage(ctx context.Context, program string, layers int, size int64) error {
	data, err := os.ReadFile(program)
	if err != nil {
		return fmt.Errorf("%w: run `make build` first", err)
	}
	var parts []descriptor
	var plain []string
	for i := range layers + 1 {
		if err := ctx.Err(); err != nil {
			return err
		}
		d, diff, err := g.makeLayer(func(w *tar.Writer) error {
			if i == layers {
				return entry(w, "program", 0o755, data)
			}
			return letters(w, i, size)
		})
		if err != nil {
			return fmt.Errorf("make layer %d: %w", i, err)
		}
		parts, plain = append(parts, d), append(plain, diff)
	}
	config, err := g.makeJSON(typeConfig, map[string]any{
		"architecture": "amd64", "os": "linux", "config": map[string]any{"Entrypoint": []string{"/program"}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": plain},
	})
	if err != nil {
		return err
	}
	manifest, err := g.makeJSON(typeManifest, map[string]any{"schemaVersion": 2, "mediaType": typeManifest, "config": config, "layers": parts})
	if err != nil {
		return err
	}
	g.manifest, err = os.ReadFile(g.file(manifest.Digest))
	return err
}

// makeLayer writes a layer. It returns its descriptor, and the digest of its content before compression.
func (g *Registry) makeLayer(fill func(*tar.Writer) error) (d descriptor, diff string, err error) {
	f, err := os.CreateTemp(g.dir, "layer")
	if err != nil {
		return d, "", err
	}
	defer f.Close()
	packed, plain := sha256.New(), sha256.New()
	z, err := gzip.NewWriterLevel(io.MultiWriter(f, packed), gzip.BestSpeed)
	if err != nil {
		return d, "", err
	}
	t := tar.NewWriter(io.MultiWriter(z, plain))
	for _, step := range []func() error{func() error { return fill(t) }, t.Close, z.Close} {
		if err := step(); err != nil {
			return d, "", err
		}
	}
	st, err := f.Stat()
	if err != nil {
		return d, "", err
	}
	d = descriptor{typeLayer, digest(packed), st.Size()}
	g.types[d.Digest] = d.MediaType
	return d, digest(plain), os.Rename(f.Name(), g.file(d.Digest))
}

func (g *Registry) makeJSON(mediaType string, value any) (descriptor, error) {
	data, err := json.Marshal(value)
	if err != nil {
		return descriptor{}, err
	}
	sum := sha256.New()
	_, _ = sum.Write(data) // never fails
	d := descriptor{mediaType, digest(sum), int64(len(data))}
	g.types[d.Digest] = mediaType
	return d, os.WriteFile(g.file(d.Digest), data, 0o644)
}

func digest(h hash.Hash) string { return "sha256:" + hex.EncodeToString(h.Sum(nil)) }

func (g *Registry) file(digest string) string {
	return filepath.Join(g.dir, strings.ReplaceAll(digest, ":", "-"))
}

func entry(w *tar.Writer, name string, mode int64, data []byte) error {
	if err := w.WriteHeader(&tar.Header{Name: name, Mode: mode, Size: int64(len(data)), Typeflag: tar.TypeReg}); err != nil {
		return err
	}
	_, err := w.Write(data)
	return err
}

// letters fills a layer with files of pseudo-random letters, which are the same at each call.
func letters(w *tar.Writer, layer int, size int64) error {
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
	r := rand.New(rand.NewPCG(uint64(layer), 20))
	data := make([]byte, bigFile)
	for i := int64(0); i*bigFile < size; i++ {
		for at := 0; at < len(data); {
			for bits, n := r.Uint64(), 0; n < 10 && at < len(data); n++ {
				data[at] = alphabet[bits&63]
				bits >>= 6
				at++
			}
		}
		if err := entry(w, fmt.Sprintf("data/%d/%d", layer, i), 0o644, data[:min(bigFile, size-i*bigFile)]); err != nil {
			return err
		}
	}
	return nil
}

// handler serves the requests with which a container runtime pulls an image.
func (g *Registry) handler() http.Handler {
	serve := func(w http.ResponseWriter, req *http.Request) {
		sum := req.PathValue("digest")
		if sum == "latest" {
			sum = "sha256:" + hex.EncodeToString(sha256Of(g.manifest))
		}
		kind, ok := g.types[sum]
		if !ok {
			http.NotFound(w, req)
			return
		}
		w.Header().Set("Content-Type", kind)
		w.Header().Set("Docker-Content-Digest", sum)
		http.ServeFile(w, req, g.file(sum))
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v2/{$}", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /v2/bench/big/manifests/{digest}", serve)
	mux.HandleFunc("GET /v2/bench/big/blobs/{digest}", serve)
	return mux
}

func sha256Of(data []byte) []byte {
	sum := sha256.Sum256(data)
	return sum[:]
}
