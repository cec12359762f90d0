package perform

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/edge/cri"
)

// bearer is a runtime whose only container has the given annotations. It records the command of the last ExecSync.
type bearer struct {
	runtimeapi.RuntimeServiceClient
	annotations map[string]string
	ran         []string
}

func (b *bearer) ContainerStatus(context.Context, *runtimeapi.ContainerStatusRequest, ...grpc.CallOption) (*runtimeapi.ContainerStatusResponse, error) {
	return &runtimeapi.ContainerStatusResponse{Status: &runtimeapi.ContainerStatus{Id: "c", Annotations: b.annotations}}, nil
}

func (b *bearer) ExecSync(_ context.Context, r *runtimeapi.ExecSyncRequest, _ ...grpc.CallOption) (*runtimeapi.ExecSyncResponse, error) {
	b.ran = r.GetCmd()
	return &runtimeapi.ExecSyncResponse{}, nil
}

// The grace period and the preStop hook are in the container's annotations, so a preStop hook runs even if the pod's object was
// deleted while no agent ran.
func TestPreStopOfAPodWhoseObjectIsGone(t *testing.T) {
	t.Parallel()
	b := &bearer{annotations: map[string]string{pod.AnnotationPreStop: `{"exec":{"command":["bye"]}}`, pod.AnnotationPorts: `[{"name":"http","containerPort":80}]`}}
	x := New(Config{CRI: cri.New(cri.Config{Runtime: b})})
	job := pod.Job{Observed: &pod.Observed{}, Action: pod.Action{Op: pod.OpPreStop, Container: "main", ID: "c", Grace: time.Second}}
	if o := x.Do(t.Context(), job); o.Err != nil || !slices.Equal(b.ran, []string{"bye"}) {
		t.Errorf("outcome %+v, ran %q", o, b.ran)
	}
	b.annotations[pod.AnnotationPreStop] = "{"
	if o := x.Do(t.Context(), job); o.Err == nil {
		t.Error("the outcome has no error, although the annotation cannot be read")
	}
	if got := podIPs(&pod.Observed{Sandboxes: []pod.Sandbox{{HostNetwork: true}}}, []string{"10.0.0.1"}, nil); len(got) != 1 {
		t.Errorf("addresses of a host-network pod without an object: %q", got)
	}
}

// hanging is a runtime whose commands end only when their container ends.
type hanging struct {
	bearer
	limit int64
}

func (h *hanging) ExecSync(ctx context.Context, r *runtimeapi.ExecSyncRequest, _ ...grpc.CallOption) (*runtimeapi.ExecSyncResponse, error) {
	h.limit = r.GetTimeout()
	<-ctx.Done()
	return nil, ctx.Err()
}

// A preStop hook may outlast the grace period. It continues beside StopContainer, and is canceled when its container is gone.
func TestAPreStopHookContinuesBesideTheStopAfterIt(t *testing.T) {
	t.Parallel()
	for name, hook := range map[string]v1.LifecycleHandler{
		"exec":  {Exec: &v1.ExecAction{Command: []string{"sleep", "infinity"}}},
		"sleep": {Sleep: &v1.SleepAction{Seconds: 3600}},
	} {
		synctest.Test(t, func(t *testing.T) {
			h, run, meter := &recorder{}, &hanging{}, &counted{}
			x := New(Config{CRI: cri.New(cri.Config{Runtime: run}), Recorder: h, Meter: meter})
			p := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "main", Lifecycle: &v1.Lifecycle{PreStop: &hook}}}}}
			job := pod.Job{Pod: p, Observed: &pod.Observed{}, Action: pod.Action{Op: pod.OpPreStop, Container: "main", ID: "c", Grace: 30 * time.Second}}
			began := time.Now()
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(32*time.Second, cancel) // the decision cancels the hook, because the container is gone
			x.Do(ctx, job)
			if took := time.Since(began); took != 32*time.Second {
				t.Errorf("%s: the hook was cut after %s", name, took)
			}
			if said := len(h.events) == 2; said != (name == "exec") {
				t.Errorf("%s: events %q", name, h.events)
			}
			began = time.Now()
			x.Do(t.Context(), job)
			if took := time.Since(began); took != 40*time.Second {
				t.Errorf("%s: a hook that nobody cancels continued for %s", name, took)
			}
			if want := map[string]int{"sleep": 2}[name]; meter.sleeps != want {
				t.Errorf("%s: %d sleeps were cut, want %d", name, meter.sleeps, want)
			}
			if name == "exec" && run.limit != 40 {
				t.Errorf("the runtime got a limit of %d s", run.limit)
			}
		})
	}
}

// An HTTPS hook falls back to HTTP if its server speaks HTTP. The second request has no credentials, and an event reports it.
func TestAnHTTPSHookFallsBackToHTTP(t *testing.T) {
	t.Parallel()
	var got http.Header
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = r.Header }))
	defer srv.Close()
	host, port, err := net.SplitHostPort(srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	h, meter := &recorder{}, &counted{}
	x := New(Config{HTTP: srv.Client(), Recorder: h, Meter: meter, Facts: func() Facts { return Facts{} }})
	hook := v1.LifecycleHandler{HTTPGet: &v1.HTTPGetAction{Scheme: v1.URISchemeHTTPS, Host: host, Port: intstr.Parse(port), Path: "/bye",
		HTTPHeaders: []v1.HTTPHeader{{Name: "Authorization", Value: "Bearer secret"}, {Name: "X-Own", Value: "1"}}}}
	p := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "main", Lifecycle: &v1.Lifecycle{PreStop: &hook}}}}}
	o := x.Do(t.Context(), pod.Job{Pod: p, Observed: &pod.Observed{}, Action: pod.Action{Op: pod.OpPreStop, Container: "main", ID: "c", Grace: 30 * time.Second}})
	if meter.fallbacks != 1 {
		t.Errorf("%d fallbacks are counted", meter.fallbacks)
	}
	if o.Err != nil || got.Get("X-Own") != "1" || got.Get("Authorization") != "" || got.Get("User-Agent") != "kube-lifecycle/1.36" {
		t.Errorf("outcome %v, headers %v", o.Err, got)
	}
	if len(h.events) != 2 || !strings.HasPrefix(h.events[1], "LifecycleHTTPFallback request to HTTPS lifecycle hook "+host) {
		t.Errorf("events %q", h.events)
	}
}
