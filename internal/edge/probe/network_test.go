package probe

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/encoding/protowire"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// pipes is a network in memory. Its map listen has the addresses that accept connections.
type pipes struct {
	mu     sync.Mutex
	listen map[string]chan net.Conn
	dialed []string
}

func (n *pipes) DialContext(ctx context.Context, _, addr string) (net.Conn, error) {
	n.mu.Lock()
	n.dialed = append(n.dialed, addr)
	l, ok := n.listen[addr]
	n.mu.Unlock()
	if !ok {
		return nil, errors.New("connection refused")
	}
	a, b := net.Pipe()
	select {
	case l <- b:
		return a, nil
	case <-ctx.Done(): // nothing accepts connections at this address
		return nil, ctx.Err()
	}
}

type pipeListener struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error { l.once.Do(func() { close(l.done) }); return nil }

func (l *pipeListener) Addr() net.Addr { return &net.TCPAddr{} }

func (n *pipes) open(addr string) *pipeListener {
	l := &pipeListener{conns: make(chan net.Conn), done: make(chan struct{})}
	n.listen[addr] = l.conns
	return l
}

// vast is a gRPC health server with very long answers. The service name in the request selects which part of the answer is long.
type vast struct{ *health.Server }

func (v vast) Check(ctx context.Context, r *grpc_health_v1.HealthCheckRequest) (*grpc_health_v1.HealthCheckResponse, error) {
	long := strings.Repeat("x", 2*maxHealth)
	switch r.Service {
	case "vast":
		answer := &grpc_health_v1.HealthCheckResponse{Status: grpc_health_v1.HealthCheckResponse_SERVING}
		answer.ProtoReflect().SetUnknown(protowire.AppendString(protowire.AppendTag(nil, 100, protowire.BytesType), long))
		return answer, nil
	case "vast headers":
		return &grpc_health_v1.HealthCheckResponse{Status: grpc_health_v1.HealthCheckResponse_SERVING}, grpc.SetHeader(ctx, metadata.Pairs("long", long))
	}
	return v.Server.Check(ctx, r)
}

// TestNetworkProbes runs each action once against servers in memory.
func TestNetworkProbes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := &pipes{listen: map[string]chan net.Conn{"10.0.0.1:6": make(chan net.Conn)}} // the address with port 6 never accepts
		var seen http.Header
		var host string
		mux := http.NewServeMux()
		mux.HandleFunc("/ok", func(w http.ResponseWriter, r *http.Request) { seen, host = r.Header, r.Host })
		mux.HandleFunc("/bad", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "secret", http.StatusServiceUnavailable) })
		mux.HandleFunc("/here", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/ok", http.StatusFound) })
		mux.HandleFunc("/away", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://other.example.com/", http.StatusFound)
		})
		mux.HandleFunc("/headers", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Long", strings.Repeat("x", 2*maxHeaders))
		})
		mux.HandleFunc("/body", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(bytes.Repeat([]byte("x"), 2*maxOutput)) })
		mux.HandleFunc("/slow", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
		mux.HandleFunc("/stream", func(w http.ResponseWriter, r *http.Request) {
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		})
		web := &http.Server{Handler: mux}
		webEnded := make(chan error, 1)
		port80, port90 := n.open("10.0.0.1:80"), n.open("10.0.0.1:90")
		go func() { webEnded <- web.Serve(port80) }()
		hs := health.NewServer()
		hs.SetServingStatus("down", grpc_health_v1.HealthCheckResponse_NOT_SERVING)
		gs := grpc.NewServer()
		grpc_health_v1.RegisterHealthServer(gs, vast{hs})
		gsEnded := make(chan error, 1)
		go func() { gsEnded <- gs.Serve(port90) }()

		c := &v1.Container{Name: "c", Ports: []v1.ContainerPort{{Name: "web", ContainerPort: 80}}}
		get := func(path string, port intstr.IntOrString, headers ...v1.HTTPHeader) v1.ProbeHandler {
			return v1.ProbeHandler{HTTPGet: &v1.HTTPGetAction{Path: path, Port: port, HTTPHeaders: headers}}
		}
		health := func(port int32, service string) v1.ProbeHandler {
			return v1.ProbeHandler{GRPC: &v1.GRPCAction{Port: port, Service: &service}}
		}
		tcp := func(host string, port int) v1.ProbeHandler {
			return v1.ProbeHandler{TCPSocket: &v1.TCPSocketAction{Host: host, Port: intstr.FromInt(port)}}
		}
		p := New(Config{Dialer: n})
		cases := []struct {
			name string
			h    v1.ProbeHandler
			want Outcome
			text string
		}{
			{"ok", get("/ok", intstr.FromInt(80)), Success, ""},
			{"named port", get("ok", intstr.FromString("web")), Success, ""},
			{"no such name", get("/ok", intstr.FromString("nope")), Unknown, `container c has no port of this name`},
			{"bad port", get("/ok", intstr.FromInt(70000)), Unknown, "invalid port number: 70000"},
			{"status", get("/bad", intstr.FromInt(80)), Failure, "HTTP probe failed with statuscode: 503"},
			{"redirect here", get("/here", intstr.FromInt(80)), Success, ""},
			{"redirect away", get("/away", intstr.FromInt(80)), Warning, "Probe terminated redirects"},
			{"refused", get("/ok", intstr.FromInt(81)), Failure, "connection refused"},
			{"long headers", get("/headers", intstr.FromInt(80)), Failure, "server response headers exceeded"},
			{"long body", get("/body", intstr.FromInt(80)), Success, strings.Repeat("x", maxOutput)},
			{"slow", get("/slow", intstr.FromInt(80)), Failure, "context deadline exceeded"},
			{"slow body", get("/stream", intstr.FromInt(80)), Unknown, "read response of http://10.0.0.1:80/stream: context deadline exceeded"},
			{"dial hangs", get("/", intstr.FromInt(6)), Failure, "context deadline exceeded"},
			{"headers", get("/ok", intstr.FromInt(80), v1.HTTPHeader{Name: "Host", Value: "site"}, v1.HTTPHeader{Name: "X-A", Value: "b"}, v1.HTTPHeader{Name: "Accept", Value: ""}), Success, ""},
			{"tcp", tcp("", 80), Success, ""},
			{"tcp refused", tcp("10.0.0.2", 80), Failure, "connection refused"},
			{"tcp hangs", tcp("", 6), Failure, "deadline"},
			{"grpc", health(90, ""), Success, "service healthy"},
			{"grpc down", health(90, "down"), Failure, `service unhealthy (responded with "NOT_SERVING")`},
			{"grpc unknown", health(90, "nope"), Failure, "error: health rpc probe failed: rpc error: code = NotFound desc = unknown service"},
			{"grpc long answer", health(90, "vast"), Failure, "received message larger than max"},
			{"grpc long headers", health(90, "vast headers"), Failure, "error: health rpc probe failed"},
			{"grpc refused", health(91, ""), Failure, `timeout: failed to connect service "10.0.0.1:91" within 1s: context deadline exceeded`},
			{"grpc hangs", health(6, ""), Failure, `timeout: failed to connect service "10.0.0.1:6" within 1s: context deadline exceeded`},
			{"nothing", v1.ProbeHandler{}, Unknown, "no exec, httpGet, tcpSocket or grpc"},
		}
		for _, tc := range cases {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			got, text := p.check(ctx, Target{Spec: c, Host: "10.0.0.1"}, &v1.Probe{ProbeHandler: tc.h}, time.Second)
			cancel()
			if got != tc.want || !strings.Contains(text, tc.text) || strings.Contains(text, "secret") || len(text) > maxOutput {
				t.Errorf("%s: %s %q, want %s %q", tc.name, got.label(), text, tc.want.label(), tc.text)
			}
			switch tc.name {
			case "ok":
				if seen.Get("User-Agent") != "kube-probe/1.36" || seen.Get("Accept") != "*/*" || seen.Get("Accept-Encoding") != "" || host != "10.0.0.1:80" {
					t.Errorf("headers %v host %s", seen, host)
				}
			case "headers":
				if host != "site" || seen.Get("X-A") != "b" || seen.Get("Accept") != "" {
					t.Errorf("headers %v host %s", seen, host)
				}
			}
		}
		_ = web.Close()
		<-webEnded
		gs.Stop()
		<-gsEnded
	})
}

// A probe of a pod without an address must not ask the node itself, where another service may listen on the same port. It has no result until
// the pod has an address. A probe that names its host does not need one.
func TestPodWithoutAddress(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := &pipes{listen: map[string]chan net.Conn{}}
		p := New(Config{Dialer: n})
		port := intstr.FromInt(80)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		for name, h := range map[string]v1.ProbeHandler{
			"http": {HTTPGet: &v1.HTTPGetAction{Port: port}},
			"tcp":  {TCPSocket: &v1.TCPSocketAction{Port: port}},
			"grpc": {GRPC: &v1.GRPCAction{Port: 80}},
		} {
			if got, text := p.check(ctx, Target{Spec: &v1.Container{}}, &v1.Probe{ProbeHandler: h}, time.Second); got != Unknown || text != "the pod has no address yet" {
				t.Errorf("%s: %s %q", name, got.label(), text)
			}
		}
		if len(n.dialed) > 0 {
			t.Errorf("the probes dialled %q", n.dialed)
		}
		h := v1.ProbeHandler{TCPSocket: &v1.TCPSocketAction{Host: "10.0.0.7", Port: port}}
		if got, _ := p.check(ctx, Target{Spec: &v1.Container{}}, &v1.Probe{ProbeHandler: h}, time.Second); got != Failure || len(n.dialed) != 1 || n.dialed[0] != "10.0.0.7:80" {
			t.Errorf("with a host: %s, dialled %q", got.label(), n.dialed)
		}
	})
}
