package integration

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// stallingRegistry serves one image on a loopback address. Of the image's only layer it first sends a quarter, and the rest when release is
// closed. The benchmark and the tools have registries too, which serve whole images; they are in other modules, so this package cannot import them.
type stallingRegistry struct {
	host    string
	parts   map[string][]byte // manifest, configuration and layer, by digest
	kinds   map[string]string // their media types, by digest
	layer   string            // digest
	image   string            // digest of the manifest
	release chan struct{}
}

// newStallingRegistry starts a registry whose image has a program, at /program, and a file of random bytes.
func newStallingRegistry(t *testing.T, program string, randomBytes int) *stallingRegistry {
	t.Helper()
	data, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	random := make([]byte, randomBytes)
	source := rand.NewChaCha8([32]byte{})
	_, _ = source.Read(random) // it does not fail
	var raw, packed bytes.Buffer
	files, gz := tar.NewWriter(&raw), gzip.NewWriter(&packed)
	for _, f := range []struct {
		name    string
		content []byte
	}{{"program", data}, {"random", random}} {
		if err := files.WriteHeader(&tar.Header{Name: f.name, Mode: 0o755, Size: int64(len(f.content))}); err != nil {
			t.Fatal(err)
		}
		_, _ = files.Write(f.content) // into memory
	}
	_ = files.Close()
	_, _ = gz.Write(raw.Bytes())
	_ = gz.Close()

	r := &stallingRegistry{parts: map[string][]byte{}, kinds: map[string]string{}, release: make(chan struct{})}
	add := func(kind string, content []byte) (digest, descriptor string) {
		digest = digestOf(content)
		r.parts[digest], r.kinds[digest] = content, kind
		return digest, fmt.Sprintf(`{"mediaType":%q,"digest":%q,"size":%d}`, kind, digest, len(content))
	}
	const oci = "application/vnd.oci.image."
	var config, layer string
	r.layer, layer = add(oci+"layer.v1.tar+gzip", packed.Bytes())
	_, config = add(oci+"config.v1+json", fmt.Appendf(nil, `{"architecture":%q,"os":"linux","rootfs":{"type":"layers","diff_ids":[%q]}}`, runtime.GOARCH, digestOf(raw.Bytes())))
	r.image, _ = add(oci+"manifest.v1+json", fmt.Appendf(nil, `{"schemaVersion":2,"mediaType":%q,"config":%s,"layers":[%s]}`, oci+"manifest.v1+json", config, layer))

	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r.host = l.Addr().String()
	web := &http.Server{Handler: r, ReadHeaderTimeout: time.Minute}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = web.Serve(l) // it ends with Close
	}()
	t.Cleanup(func() {
		_ = web.Close()
		<-done
	})
	return r
}

func digestOf(content []byte) string {
	sum := sha256.Sum256(content)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// ServeHTTP serves /v2/, and any manifest or blob by its digest. Each tag is a name of the image.
func (r *stallingRegistry) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	digest := req.URL.Path[strings.LastIndex(req.URL.Path, "/")+1:]
	if req.URL.Path == "/v2/" {
		return
	}
	if strings.Contains(req.URL.Path, "/manifests/") && !strings.HasPrefix(digest, "sha256:") {
		digest = r.image
	}
	content, ok := r.parts[digest]
	if !ok {
		http.NotFound(w, req)
		return
	}
	w.Header().Set("Content-Type", r.kinds[digest])
	w.Header().Set("Docker-Content-Digest", digest)
	w.Header().Set("Content-Length", fmt.Sprint(len(content)))
	if req.Method == http.MethodHead {
		return
	}
	if digest == r.layer {
		quarter := len(content) / 4
		_, _ = w.Write(content[:quarter]) // if the runtime has gone, so be it
		_ = http.NewResponseController(w).Flush()
		content = content[quarter:]
		select {
		case <-r.release:
		case <-req.Context().Done():
			return
		}
	}
	_, _ = w.Write(content)
}

// A registry stops sending in the middle of a layer. After two minutes the pod has one event, which says since when no data arrives. Other pods
// start meanwhile. When the registry goes on, so does the pull.
func TestPullThatStalls(t *testing.T) {
	s := newSpace(t)
	rt := filepath.Join(s.env.dir, "rt-stalls")
	s.env.addRuntime(rt)
	if err := s.env.runtimeUp(rt, s.env.subnet(rt)); err != nil {
		t.Fatal(err)
	}
	n, err := s.env.startNode(nodeConfig{Name: "stalls", Runtime: rt})
	if err != nil {
		t.Fatal(err)
	}
	if err := n.waitReady(patience); err != nil {
		t.Fatal(err)
	}
	registry := newStallingRegistry(t, filepath.Join(filepath.Dir(s.env.wherry), "images", "pause"), 4<<20)
	s.pod("pulls", `containers: [{name: main, image: "`+registry.host+`/stalls:1", command: [/program]}]`, onNode(n))
	s.event("pulls", "ImagePullStalled", registry.host+"/stalls:1", "no data has arrived for 2m")
	s.pod("beside", `containers: [{name: main, image: $busybox, command: [sleep, "100000"]}]`, onNode(n))
	s.ready("beside")
	if p := s.get("pulls"); p.Status.ContainerStatuses[0].State.Waiting == nil {
		t.Errorf("the status of the pod that waits for its image: %+v", p.Status.ContainerStatuses[0].State)
	}
	close(registry.release)
	s.ready("pulls")
	all, err := s.events("pulls")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range all {
		if e.Reason == "ImagePullStalled" && e.Count > 1 || e.Reason == "Failed" {
			t.Errorf("event %s, %d times: %s", e.Reason, e.Count, e.Message)
		}
	}
}
