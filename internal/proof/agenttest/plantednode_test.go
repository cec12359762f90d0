package agenttest

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/wherry-node/wherry/internal/core/pod"
)

// withList returns a bug that changes the lists of pods that the agent reads. It does not change watches.
func withList(change func(list []byte) []byte) *Bug {
	return &Bug{API: func(_ *World, r *http.Request, do func(*http.Request) (*http.Response, error)) (*http.Response, error) {
		resp, err := do(r)
		if err != nil || !listsPods(r) || r.URL.Query().Get("watch") != "" {
			return resp, err
		}
		list, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil {
			return nil, err
		}
		resp.Body = io.NopCloser(bytes.NewReader(change(list)))
		return resp, nil
	}}
}

func forgetsReadiness() *Bug {
	return withList(func(list []byte) []byte {
		return bytes.ReplaceAll(list, []byte(`"ready":true`), []byte(`"ready":false`))
	})
}

func listsTooFew() *Bug {
	return withList(func(list []byte) []byte {
		var all map[string]any
		if json.Unmarshal(list, &all) != nil {
			return list
		}
		items, _ := all["items"].([]any)
		all["items"] = slices.DeleteFunc(items, func(item any) bool {
			p, _ := item.(map[string]any)
			meta, _ := p["metadata"].(map[string]any)
			return meta["name"] == "p1"
		})
		short, err := json.Marshal(all)
		if err != nil {
			return list
		}
		return short
	})
}

func makesNothingAgain() *Bug {
	return &Bug{Runtime: func(ctx context.Context, _ *World, in any, do func(context.Context, any) (any, error)) (any, error) {
		if r, ok := in.(*runtimeapi.CreateContainerRequest); ok && r.Config.Metadata.Attempt > 0 {
			<-ctx.Done()
			return (*runtimeapi.CreateContainerResponse)(nil), ctx.Err()
		}
		return do(ctx, in)
	}}
}

// mirrorOfRequest returns the mirror pod that a request creates; nil for other requests.
func mirrorOfRequest(r *http.Request) *v1.Pod {
	if r.Method != http.MethodPost || !strings.HasSuffix(r.URL.Path, "/pods") || r.Body == nil {
		return nil
	}
	body, err := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(body))
	if err != nil {
		return nil
	}
	obj, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
	if p, ok := obj.(*v1.Pod); err == nil && ok && pod.IsMirror(p) {
		return p
	}
	return nil
}

func endsWithMirror() *Bug {
	return &Bug{API: func(w *World, r *http.Request, do func(*http.Request) (*http.Response, error)) (*http.Response, error) {
		if r.Method == http.MethodDelete {
			for _, c := range w.Witness.Containers() {
				if c.Running && strings.HasSuffix(r.URL.Path, "/pods/"+c.Pod) && w.Kube.Pod(Namespace, c.Pod) != nil && pod.IsMirror(w.Kube.Pod(Namespace, c.Pod)) {
					stop := &runtimeapi.StopContainerRequest{ContainerId: c.ID, Timeout: 5}
					asks(w, stop)()
					_, _ = w.Runtime.StopContainer(r.Context(), stop)
				}
			}
		}
		return do(r)
	}}
}

func dropsMirrors() *Bug {
	var mu sync.Mutex
	made := map[string]bool{}
	return &Bug{API: func(_ *World, r *http.Request, do func(*http.Request) (*http.Response, error)) (*http.Response, error) {
		p := mirrorOfRequest(r)
		if p == nil {
			return do(r)
		}
		mu.Lock()
		again := made[p.Name]
		made[p.Name] = true
		mu.Unlock()
		if !again {
			return do(r)
		}
		p.UID, p.APIVersion, p.Kind = "made-up", "v1", "Pod"
		body, err := json.Marshal(p)
		return &http.Response{StatusCode: http.StatusCreated, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(body)), Request: r}, err
	}}
}

// startsBesideOld is a bug: it hides the containers of a static pod from the agent as soon as the agent stops them.
func startsBesideOld() *Bug {
	var gone hidden
	return &Bug{Runtime: func(ctx context.Context, w *World, in any, do func(context.Context, any) (any, error)) (any, error) {
		if r, ok := in.(*runtimeapi.StopContainerRequest); ok {
			for _, c := range w.Witness.Containers() {
				if c.ID == r.ContainerId && strings.HasSuffix(c.Pod, NodeName) {
					gone.hide(c.Sandbox)
					return &runtimeapi.StopContainerResponse{}, nil
				}
			}
		}
		out, err := do(ctx, in)
		return gone.answer(in, out, err)
	}}
}

func resizesNothing() *Bug {
	return &Bug{Runtime: func(ctx context.Context, _ *World, in any, do func(context.Context, any) (any, error)) (any, error) {
		if _, ok := in.(*runtimeapi.UpdateContainerResourcesRequest); ok {
			return &runtimeapi.UpdateContainerResourcesResponse{}, nil
		}
		return do(ctx, in)
	}}
}
