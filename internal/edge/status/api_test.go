package status

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/rest"

	"github.com/wherry-node/wherry/internal/base/kubeclient"
)

// api is the part of an API server that the writer uses. It applies patches as a real server does.
type api struct {
	mu       sync.Mutex
	pods     map[string]*v1.Pod
	rv       uint64
	log      []string // requests, for example "PATCH a Running", "DELETE a" or "GET a"
	inFlight map[string]int
	most     int // largest number of requests that were in flight at once, over all pods
	overlap  bool
	bodies   []string

	latency time.Duration
	fail    func(method, name string) error // the error of a request: an API status error, or any other error for a network error
	mutate  func(p *v1.Pod)                 // if set, changes a patched pod as a server would
}

// proxyError is the code of an answer that comes from a proxy before the API server.
type proxyError int

func (proxyError) Error() string { return "the answer of a proxy" }

func newAPI(pods ...*v1.Pod) *api {
	a := &api{pods: map[string]*v1.Pod{}, inFlight: map[string]int{}, rv: 100}
	for _, p := range pods {
		a.pods[p.Name] = p
	}
	return a
}

func (a *api) podsOf(t *testing.T) func(namespace string) Pods {
	t.Helper()
	c, err := kubeclient.New(&rest.Config{Host: "http://api", Transport: a, QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	return func(namespace string) Pods { return c.Pods(namespace) }
}

// RoundTrip answers one request after the latency.
func (a *api) RoundTrip(r *http.Request) (*http.Response, error) {
	parts := strings.Split(strings.TrimPrefix(r.URL.Path, "/api/v1/namespaces/"), "/") // ns pods name [status]: the elements of the path
	name := parts[2]
	var body []byte
	if r.Body != nil {
		body, _ = io.ReadAll(r.Body)
	}
	a.mu.Lock()
	a.inFlight[name]++
	total := 0
	for _, n := range a.inFlight {
		total += n
	}
	a.most = max(a.most, total)
	a.overlap = a.overlap || a.inFlight[name] > 1
	latency := a.latency
	a.mu.Unlock()
	select {
	case <-time.After(latency):
	case <-r.Context().Done():
		a.mu.Lock()
		a.inFlight[name]--
		a.mu.Unlock()
		return nil, r.Context().Err()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.inFlight[name]--
	pod, err := a.handle(r.Method, name, body)
	if code, ok := err.(proxyError); ok {
		return &http.Response{StatusCode: int(code), Header: http.Header{"Content-Type": {"text/html"}}, Body: io.NopCloser(strings.NewReader("<html>default backend</html>"))}, nil
	}
	if err != nil {
		st, ok := err.(apierrors.APIStatus)
		if !ok {
			return nil, err
		}
		s := st.Status()
		s.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
		return response(int(s.Code), &s), nil
	}
	return response(http.StatusOK, pod), nil
}

func (a *api) handle(method, name string, body []byte) (*v1.Pod, error) {
	if a.fail != nil {
		if err := a.fail(method, name); err != nil {
			a.log = append(a.log, method+" "+name+" failed")
			return nil, err
		}
	}
	gr := schema.GroupResource{Resource: "pods"}
	pod := a.pods[name]
	if pod == nil {
		a.log = append(a.log, method+" "+name+" not found")
		return nil, apierrors.NewNotFound(gr, name)
	}
	var meta struct {
		Metadata      struct{ UID types.UID }
		Preconditions struct{ UID types.UID }
	}
	_ = json.Unmarshal(body, &meta)
	if uid := meta.Metadata.UID + meta.Preconditions.UID; uid != "" && uid != pod.UID {
		a.log = append(a.log, method+" "+name+" other uid")
		return nil, apierrors.NewConflict(gr, name, fmt.Errorf("Precondition failed: UID in precondition: %s, UID in object meta: %s", uid, pod.UID))
	}
	switch method {
	case http.MethodPatch:
		a.bodies = append(a.bodies, string(body))
		before, _ := json.Marshal(pod)
		after, err := strategicpatch.StrategicMergePatch(before, body, v1.Pod{})
		if err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		pod = &v1.Pod{}
		if err := json.Unmarshal(after, pod); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		if a.mutate != nil {
			a.mutate(pod)
		}
		a.rv++
		pod.ResourceVersion = strconv.FormatUint(a.rv, 10)
		a.pods[name] = pod
		a.log = append(a.log, "PATCH "+name+" "+describe(&pod.Status))
	case http.MethodDelete:
		delete(a.pods, name)
		a.log = append(a.log, "DELETE "+name)
	default:
		a.log = append(a.log, method+" "+name)
	}
	return pod, nil
}

// change changes a pod as another component would; it returns the new object as a watch would show it.
func (a *api) change(name string, f func(*v1.Pod)) *v1.Pod {
	a.mu.Lock()
	defer a.mu.Unlock()
	p := a.pods[name].DeepCopy()
	f(p)
	a.rv++
	p.ResourceVersion = strconv.FormatUint(a.rv, 10)
	a.pods[name] = p
	return p
}

func (a *api) get(name string) *v1.Pod {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.pods[name]
}

func (a *api) requests() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]string(nil), a.log...)
}

func describe(s *v1.PodStatus) string {
	out := string(s.Phase)
	if c := condition(s.Conditions, v1.PodReady); c != nil {
		out += " ready=" + string(c.Status)
	}
	if s.Message != "" {
		out += " " + s.Message
	}
	return out
}

func response(code int, v any) *http.Response {
	if p, ok := v.(*v1.Pod); ok {
		p.TypeMeta = metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"}
	}
	raw, _ := json.Marshal(v)
	return &http.Response{
		StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(bytes.NewReader(raw)),
	}
}
