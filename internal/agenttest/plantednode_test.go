package agenttest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/wherry-node/wherry/internal/pod"
)

// atFirst changes what a list of pods says, be it streamed or not, and nothing of what comes after.
type atFirst struct {
	io.Closer
	from   *bufio.Reader
	change func(line []byte) []byte
	rest   []byte
	over   bool
}

func (a *atFirst) Read(p []byte) (int, error) {
	for len(a.rest) == 0 {
		line, err := a.from.ReadBytes('\n')
		if a.over = a.over || bytes.Contains(line, []byte(`"BOOKMARK"`)); !a.over {
			line = a.change(line)
		}
		if a.rest = line; err != nil && len(line) == 0 {
			return 0, err
		}
	}
	n := copy(p, a.rest)
	a.rest = a.rest[n:]
	return n, nil
}

func withList(change func(line []byte) []byte) *Bug {
	return &Bug{API: func(_ *World, r *http.Request, do func(*http.Request) (*http.Response, error)) (*http.Response, error) {
		resp, err := do(r)
		if err == nil && listsPods(r) && (r.URL.Query().Get("watch") == "" || r.URL.Query().Get("sendInitialEvents") == "true") {
			resp.Body = &atFirst{Closer: resp.Body, from: bufio.NewReader(resp.Body), change: change}
		}
		return resp, err
	}}
}

func forgetsReadiness() *Bug {
	return withList(func(line []byte) []byte {
		return bytes.ReplaceAll(line, []byte(`"ready":true`), []byte(`"ready":false`))
	})
}

func listsTooFew() *Bug {
	return withList(func(line []byte) []byte {
		if bytes.Contains(line, []byte(`"name":"p1"`)) {
			return nil
		}
		return line
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

// mirrorOfRequest is the mirror that a request makes, or nil.
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

// startsBesideOld hides what runs of static pods as soon as they are asked to end.
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
