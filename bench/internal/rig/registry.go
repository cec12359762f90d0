package rig

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
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
	"time"
)

// bigLayers, bigLayer and bigFile describe the image that is pulled while pods start: the number of its layers, and the sizes in bytes of a
// layer and of a file before compression. The files contain random letters, which gzip compresses to three quarters.
const (
	bigLayers = 4
	bigLayer  = 64 << 20
	bigFile   = 256 << 10
)

// smallLayer is the size in bytes, before compression, of the layer of a small image that has no program. There are many such images.
const smallLayer = 1 << 20

// These are media types of OCI images.
const (
	typeManifest = "application/vnd.oci.image.manifest.v1+json"
	typeConfig   = "application/vnd.oci.image.config.v1+json"
	typeLayer    = "application/vnd.oci.image.layer.v1.tar+gzip"
)

// Registry serves images over HTTP on a loopback address, where container runtimes do not require TLS. Each image contains a program,
// so that a container of it can run. No two images share a layer, so that a pull always fetches all layers. There is another registry in
// tools/internal/conformance, which serves archives of many images, but this module cannot import it.
type Registry struct {
	host   string
	layers []*layer
	web    *http.Server
	wg     sync.WaitGroup

	mu     sync.Mutex
	images map[string]*image // images by name
}

// image is one image of a registry.
type image struct {
	manifest string          // digest of the manifest
	parts    map[string]part // manifest, configuration and layers by digest
	layers   map[string]bool // whether the content of each layer was requested, by digest
}

// part is a part of an image that has a digest: the manifest, the configuration or a layer.
type part struct {
	mediaType string
	layer     *layer // common beginning of a layer; nil: data is the whole content
	data      []byte
}

// descriptor refers to a part of an image, as in an OCI manifest.
type descriptor struct {
	MediaType string `json:"mediaType"`
	Digest    string `json:"digest"`
	Size      int64  `json:"size"`
}

// Registry returns the rig's registry. The first call starts it.
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

// SmallImages returns a registry like Registry, whose images have one layer of a MiB beside the program. The first call starts it.
func (r *Rig) SmallImages(ctx context.Context) (*Registry, error) {
	if r.small != nil {
		return r.small, nil
	}
	g, err := newRegistry(ctx, r.path("small"), filepath.Join(r.Bin, "images", "pause"), 1, smallLayer)
	if err != nil {
		return nil, fmt.Errorf("start a registry of small images: %w", err)
	}
	r.small = g
	return g, nil
}

// Has reports whether an image is one of the registry's, by its reference.
func (g *Registry) Has(reference string) bool { return strings.HasPrefix(reference, g.host+"/") }

// newRegistry starts a registry whose images have one layer with the program, and several layers of size bytes each. It writes the part of
// each layer that all images share (see layer) into a file in dir.
func newRegistry(ctx context.Context, dir, program string, layers int, size int64) (g *Registry, err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	data, err := os.ReadFile(program)
	if err != nil {
		return nil, fmt.Errorf("%w: run `make build` first", err)
	}
	g = &Registry{images: map[string]*image{}}
	defer func() {
		if err != nil {
			g.Close()
		}
	}()
	for i := range layers + 1 {
		if err := ctx.Err(); err != nil {
			return g, err
		}
		l, err := makeLayer(filepath.Join(dir, fmt.Sprint("layer-", i)), func(w *tar.Writer) error {
			if i == layers {
				return entry(w, "program", 0o755, data)
			}
			return letters(w, i, size)
		})
		if err != nil {
			return g, fmt.Errorf("make layer %d: %w", i, err)
		}
		g.layers = append(g.layers, l)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return g, err
	}
	g.host = l.Addr().String()
	g.web = &http.Server{Handler: g.handler()}
	g.wg.Go(func() { _ = g.web.Serve(l) })
	return g, nil
}

// Close ends the registry.
func (g *Registry) Close() {
	if g.web != nil {
		_ = g.web.Close()
	}
	g.wg.Wait()
	for _, l := range g.layers {
		_ = l.file.Close()
	}
}

// Next makes a new image and returns its reference.
func (g *Registry) Next() (reference string, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	name := fmt.Sprint("big-", len(g.images))
	m := &image{parts: map[string]part{}, layers: map[string]bool{}}
	add := func(p part) descriptor {
		d := p.descriptor()
		m.parts[d.Digest] = p
		return d
	}
	var layers []descriptor
	var plain []string
	for i, l := range g.layers {
		tail, diff, sum, err := l.finish(fmt.Sprintf("of-layer-%d", i), name)
		if err != nil {
			return "", fmt.Errorf("make image %s: %w", name, err)
		}
		m.parts[sum], m.layers[sum] = part{typeLayer, l, tail}, false
		layers, plain = append(layers, descriptor{typeLayer, sum, l.size + int64(len(tail))}), append(plain, diff)
	}
	config, err := json.Marshal(map[string]any{
		"architecture": "amd64", "os": "linux", "config": map[string]any{"Entrypoint": []string{"/program"}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": plain},
	})
	if err != nil {
		return "", err
	}
	manifest, err := json.Marshal(map[string]any{
		"schemaVersion": 2, "mediaType": typeManifest, "config": add(part{mediaType: typeConfig, data: config}), "layers": layers,
	})
	if err != nil {
		return "", err
	}
	m.manifest = add(part{mediaType: typeManifest, data: manifest}).Digest
	g.images[name] = m
	return g.host + "/bench/" + name + ":latest", nil
}

// Pulled returns an error unless the content of every layer of the image was requested.
func (g *Registry) Pulled(reference string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	m := g.images[strings.TrimSuffix(strings.TrimPrefix(reference, g.host+"/bench/"), ":latest")]
	if m == nil {
		return fmt.Errorf("the registry has no image %s", reference)
	}
	requested := 0
	for _, r := range m.layers {
		if r {
			requested++
		}
	}
	if requested < len(m.layers) {
		return fmt.Errorf("only %d of %d layers of %s were requested", requested, len(m.layers), reference)
	}
	return nil
}

func (p part) descriptor() descriptor {
	sum := sha256.Sum256(p.data)
	return descriptor{p.mediaType, "sha256:" + hex.EncodeToString(sum[:]), int64(len(p.data))}
}

// layer is the first part of an image layer, which is the same in all images. Its file is a complete gzip stream with the beginning of a
// tar archive. In each image a second gzip stream follows, with a file that contains the image's name and with the end of the archive.
type layer struct {
	file          *os.File
	size          int64
	packed, plain hash.Cloner // digests of the file and of the uncompressed archive so far; finish continues clones of them
}

// makeLayer writes the first part of a layer, which all images share, into a file at path. The function fill adds the files to the tar
// archive.
func makeLayer(path string, fill func(*tar.Writer) error) (*layer, error) {
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	l, err := writeLayer(f, fill)
	if err != nil {
		_ = f.Close()
	}
	return l, err
}

func writeLayer(f *os.File, fill func(*tar.Writer) error) (*layer, error) {
	packed, plain := sha256.New(), sha256.New()
	z, err := gzip.NewWriterLevel(io.MultiWriter(f, packed), gzip.BestSpeed)
	if err != nil {
		return nil, err
	}
	t := tar.NewWriter(io.MultiWriter(z, plain))
	// Flush pads the last file of the archive; Close would end the archive.
	for _, step := range []func() error{func() error { return fill(t) }, t.Flush, z.Close} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	l := &layer{file: f, size: st.Size()}
	for to, from := range map[*hash.Cloner]hash.Hash{&l.packed: packed, &l.plain: plain} {
		c, ok := from.(hash.Cloner)
		if !ok {
			return nil, errors.New("this SHA-256 cannot be continued in two ways")
		}
		*to = c
	}
	return l, nil
}

// finish returns the second gzip stream of a layer of one image, which adds one file to the archive. It also returns two digests of the
// whole layer: diff of the uncompressed archive, and sum of the compressed data.
func (l *layer) finish(file, content string) (tail []byte, diff, sum string, err error) {
	packed, err1 := l.packed.Clone()
	plain, err2 := l.plain.Clone()
	if err := errors.Join(err1, err2); err != nil {
		return nil, "", "", err
	}
	var b bytes.Buffer
	z := gzip.NewWriter(io.MultiWriter(&b, packed))
	t := tar.NewWriter(io.MultiWriter(z, plain))
	for _, step := range []func() error{func() error { return entry(t, file, 0o644, []byte(content)) }, t.Close, z.Close} {
		if err := step(); err != nil {
			return nil, "", "", err
		}
	}
	return b.Bytes(), digest(plain), digest(packed), nil
}

// whole is the complete content of a layer of one image: the part that all images share (layer), and then the tail that finish returned.
type whole struct {
	*layer
	tail []byte
}

// ReadAt reads the content of the layer at an offset (io.ReaderAt).
func (w whole) ReadAt(b []byte, at int64) (n int, err error) {
	if at < w.size {
		n, err = w.file.ReadAt(b[:min(int64(len(b)), w.size-at)], at)
		if err != nil || n == len(b) {
			return n, err
		}
	}
	more, err := bytes.NewReader(w.tail).ReadAt(b[n:], at+int64(n)-w.size)
	return n + more, err
}

func digest(h hash.Hash) string { return "sha256:" + hex.EncodeToString(h.Sum(nil)) }

func entry(w *tar.Writer, name string, mode int64, data []byte) error {
	if err := w.WriteHeader(&tar.Header{Name: name, Mode: mode, Size: int64(len(data)), Typeflag: tar.TypeReg}); err != nil {
		return err
	}
	_, err := w.Write(data)
	return err
}

// letters fills a layer with files of pseudo-random letters. The same layer always gets the same letters.
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
		p, sum, ok := g.find(req)
		if !ok {
			http.NotFound(w, req)
			return
		}
		w.Header().Set("Content-Type", p.mediaType)
		w.Header().Set("Docker-Content-Digest", sum)
		var content io.ReadSeeker = bytes.NewReader(p.data)
		if p.layer != nil {
			content = io.NewSectionReader(whole{p.layer, p.data}, 0, p.layer.size+int64(len(p.data)))
		}
		http.ServeContent(w, req, "", time.Time{}, content)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v2/{$}", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /v2/bench/{image}/manifests/{digest}", serve)
	mux.HandleFunc("GET /v2/bench/{image}/blobs/{digest}", serve)
	return mux
}

// find returns the requested part of an image. If the request is for a layer's content, find records that the layer was requested.
func (g *Registry) find(req *http.Request) (p part, sum string, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	m := g.images[req.PathValue("image")]
	if m == nil {
		return part{}, "", false
	}
	if sum = req.PathValue("digest"); sum == "latest" {
		sum = m.manifest
	}
	if _, isLayer := m.layers[sum]; isLayer && req.Method == http.MethodGet {
		m.layers[sum] = true
	}
	p, ok = m.parts[sum]
	return p, sum, ok
}
