package fleet_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/wherry-node/wherry/agent/fleet"
)

// sliceServer is a transport that answers requests about resource slices, and passes on all others.
type sliceServer struct {
	next http.RoundTripper

	mu       sync.Mutex
	objects  map[string]map[string]any // by name
	deletes  []string                  // the label selectors of deletions
	failures int                       // so many creations fail
}

// RoundTrip answers a request.
func (s *sliceServer) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Path != "/apis/resource.k8s.io/v1/resourceslices" {
		return s.next.RoundTrip(r)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	code, text := http.StatusCreated, `{"kind":"Status","apiVersion":"v1","status":"Success"}`
	switch r.Method {
	case http.MethodDelete:
		s.deletes = append(s.deletes, r.URL.Query().Get("labelSelector"))
		code = http.StatusOK
	case http.MethodPost:
		var o map[string]any
		if err := json.NewDecoder(r.Body).Decode(&o); err != nil {
			return nil, err
		}
		name := fmt.Sprint(o["metadata"].(map[string]any)["name"])
		switch {
		case s.failures > 0:
			s.failures--
			code, text = http.StatusInternalServerError, `{"kind":"Status","apiVersion":"v1","status":"Failure","code":500}`
		case s.objects[name] != nil:
			code, text = http.StatusConflict, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"AlreadyExists","code":409}`
		default:
			s.objects[name] = o
		}
	}
	return &http.Response{StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader([]byte(text))), Request: r}, nil
}

// said returns the names of the slices without their hashes, each with its owner, pool and number of devices.
func (s *sliceServer) said() (out []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(s.objects)) {
		o := s.objects[name]
		meta, spec := o["metadata"].(map[string]any), o["spec"].(map[string]any)
		owner := meta["ownerReferences"].([]any)[0].(map[string]any)
		pool := spec["pool"].(map[string]any)
		out = append(out, fmt.Sprint(spec["driver"], " ", spec["nodeName"], " of ", owner["kind"], " ", owner["name"], ", ", len(spec["devices"].([]any)), " of ", pool["resourceSliceCount"], " in ", pool["name"]))
	}
	return out
}

// The devices of a DRA driver are published for each node, in as many slices as the API needs, and owned by the Node. A failure is tried again.
// The next process of the fleet publishes nothing twice; with another template it removes the slices of the first.
func TestResourceSlicesOfAFleet(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newShared(t, 2)
		server := &sliceServer{objects: map[string]map[string]any{}, failures: 3}
		c := &checker{rights: rights(t, manifests(t, "rbac.yaml", "resource-slices.yaml")), refused: map[right]bool{}}
		run := func(name string, devices int) *process {
			return b.run(name, func(cfg *fleet.Config) {
				cfg.Groups[0].ResourceSlices = []fleet.ResourceSlices{{Driver: "gpu.example.com", Devices: devices, Attributes: map[string]any{"model": "a100"}}}
				cfg.Keep, cfg.Shard, cfg.Identity = true, fleet.Shard{}, fleet.Shared
				server.next = cfg.Client.Transport
				cfg.Client.Transport = checked{c, server}
			})
		}
		first := run("a", 200)
		time.Sleep(time.Minute)
		var want []string
		for _, node := range []string{"f-node-1", "f-node-2"} {
			for _, devices := range []string{"128", "72"} {
				want = append(want, fmt.Sprintf("gpu.example.com %s of Node %s, %s of 2 in %s", node, node, devices, node))
			}
		}
		if got := server.said(); !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		n, err := b.admin.CoreV1().Nodes().Get(t.Context(), "f-node-1", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for name, o := range server.objects {
			text := fmt.Sprint(o["metadata"])
			if strings.HasPrefix(name, "f-node-1-") && !strings.Contains(text, string(n.UID)) {
				t.Errorf("the owner of %s is not the Node with the UID %s: %s", name, n.UID, text)
			}
		}
		first.stop()
		time.Sleep(time.Minute)
		second := run("b", 200)
		time.Sleep(time.Minute)
		if got := server.said(); !slices.Equal(got, want) {
			t.Errorf("in the next process: %q", got)
		}
		second.stop()
		time.Sleep(time.Minute)
		server.deletes = nil
		third := run("c", 1)
		time.Sleep(time.Minute)
		if len(server.objects) != 6 || len(server.deletes) != 2 || !strings.Contains(server.deletes[0], "wherry.dev/fleet=f,wherry.dev/fleet-node=f-node-") ||
			!strings.Contains(server.deletes[0], "wherry.dev/fleet-shape!=") {
			t.Errorf("with another template: %d slices, deletions %q", len(server.objects), server.deletes)
		}
		third.stop()
		server.deletes = nil
		if _, err := fleet.Clean(t.Context(), &rest.Config{Host: "http://simkube", Transport: server}, "f"); err != nil || !slices.Equal(server.deletes, []string{"wherry.dev/fleet=f"}) {
			t.Errorf("clean: %v, deletions %q", err, server.deletes)
		}
		for r := range c.refused {
			t.Errorf("the manifests do not allow %+v", r)
		}
		for r := range rights(t, manifests(t, "resource-slices.yaml")) {
			if !c.rights[r] {
				t.Errorf("nothing uses %+v", r)
			}
		}
	})
}
