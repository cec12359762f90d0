package differ

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	health "google.golang.org/grpc/health/grpc_health_v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Simulated pods have loopback addresses such as 127.60.0.5, so network probes reach them without a network interface. While a container
// runs, the simulated runtime listens on its ports, and answers probes as the container's Play (its script) says.

// portOf returns the port on which a container answers a probe.
func portOf(container, probe string) int32 {
	kind, number, _ := strings.Cut(container, "-")
	n, _ := strconv.Atoi(number)
	port := int32(8100 + 10*n)
	if kind == "side" {
		port += 100
	}
	return port + int32(slices.Index(probeNames, probe))
}

// probeNames lists the probes that a container may have.
var probeNames = []string{"startup", "liveness", "readiness"}

// asking returns the handler of a network probe of a container. how is the protocol: http, tcp or grpc.
func asking(how, container, probe string) v1.ProbeHandler {
	port := portOf(container, probe)
	switch how {
	case "http":
		return v1.ProbeHandler{HTTPGet: &v1.HTTPGetAction{Path: "/" + probe, Port: intstr.FromInt32(port), Scheme: v1.URISchemeHTTP}}
	case "tcp":
		return v1.ProbeHandler{TCPSocket: &v1.TCPSocketAction{Port: intstr.FromInt32(port)}}
	}
	return v1.ProbeHandler{GRPC: &v1.GRPCAction{Port: port, Service: new("")}}
}

// answers says how one instance of a container answers its network probes.
type answers struct {
	play    Play
	started time.Time
}

func (a *answers) fails(probe string) bool {
	w, has := a.play.Fails[probe]
	return has && w.has(time.Since(a.started))
}

// listen opens the ports on which a container that has just been started answers its network probes. They are closed when the container
// ends.
func (r *Runtime) listen(ctx context.Context, id string) error {
	r.mu.Lock()
	o := r.containers[id]
	c := r.cases[o.pod]
	r.mu.Unlock()
	if c == nil {
		return nil
	}
	var probes map[string]v1.ProbeHandler
	for _, x := range slices.Concat(c.Spec.InitContainers, c.Spec.Containers) {
		if x.Name == o.name {
			probes = networkProbes(x)
		}
	}
	if len(probes) == 0 {
		return nil
	}
	sandbox, err := r.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: o.sandbox})
	if err != nil {
		return err
	}
	address := sandbox.GetStatus().GetNetwork().GetIp()
	if address == "" { // a pod with the host's network has no address of its own, and the pods of both agents would have the same ports
		return nil
	}
	a := &answers{c.play(o.name, o.attempt%lifeAttempts), time.Now()}
	for probe, how := range probes {
		s := &service{a: a, probe: probe, how: how, address: net.JoinHostPort(address, fmt.Sprint(portOf(o.name, probe)))}
		r.mu.Lock()
		before := r.services[s.address]
		r.services[s.address] = s
		r.mu.Unlock()
		if before != nil { // services of the previous instance, which has ended
			before.end()
		}
		if err := s.turn(); err != nil {
			return fmt.Errorf("answer %s probes: %w", probe, err)
		}
		r.answering.Go(func() {
			defer s.end()
			for r.runs(id) {
				time.Sleep(answersEvery)
				_ = s.turn() // after an error, the next call of turn tries again to open the port
			}
		})
	}
	return nil
}

// answersEvery is how often the services check whether their ports have to be open or closed.
const answersEvery = 50 * time.Millisecond

// networkProbes returns a container's network probes by name.
func networkProbes(x v1.Container) map[string]v1.ProbeHandler {
	out := map[string]v1.ProbeHandler{}
	for i, p := range []*v1.Probe{x.StartupProbe, x.LivenessProbe, x.ReadinessProbe} {
		if p != nil && p.Exec == nil {
			out[probeNames[i]] = p.ProbeHandler
		}
	}
	return out
}

// runs reports whether the container with this ID runs. It returns false if the runtime has ended.
func (r *Runtime) runs(id string) bool {
	select {
	case <-r.ended:
		return false
	default:
	}
	resp, err := r.ContainerStatus(context.Background(), &runtimeapi.ContainerStatusRequest{ContainerId: id})
	return err == nil && resp.GetStatus().GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING
}

// service answers one network probe of one container instance.
type service struct {
	a       *answers
	probe   string
	how     v1.ProbeHandler
	address string

	mu    sync.Mutex
	stop  func() // nil while the port is closed
	ended bool
}

// turn opens or closes the port, as the container's Play (its script) says for this moment. A TCP probe fails because the port is closed;
// for HTTP and gRPC the port stays open, and the answer is a failure.
func (s *service) turn() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	open := !s.ended && (s.how.TCPSocket == nil || !s.a.fails(s.probe))
	if open == (s.stop != nil) {
		return nil
	}
	if !open {
		s.close()
		return nil
	}
	l, err := net.Listen("tcp", s.address)
	if err != nil {
		return err
	}
	s.serve(l)
	return nil
}

// end closes the port for good.
func (s *service) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	s.close()
}

// close closes the port. The caller holds s.mu.
func (s *service) close() {
	if s.stop != nil {
		s.stop()
		s.stop = nil
	}
}

// serve answers probes on l until s.stop is called. It returns at once. The caller holds s.mu.
func (s *service) serve(l net.Listener) {
	switch {
	case s.how.HTTPGet != nil:
		server := &http.Server{ReadHeaderTimeout: 5 * time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if s.a.fails(s.probe) {
				w.WriteHeader(http.StatusInternalServerError)
			}
		})}
		go func() { _ = server.Serve(l) }()
		s.stop = func() { _ = server.Close() }
	case s.how.GRPC != nil:
		server := grpc.NewServer()
		health.RegisterHealthServer(server, &healthOf{a: s.a, probe: s.probe})
		go func() { _ = server.Serve(l) }()
		s.stop = server.Stop
	default:
		go func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				_ = conn.Close()
			}
		}()
		s.stop = func() { _ = l.Close() }
	}
}

// healthOf is the gRPC health service of a container.
type healthOf struct {
	health.UnimplementedHealthServer
	a     *answers
	probe string
}

// Check answers SERVING or NOT_SERVING, as the Play says.
func (h *healthOf) Check(context.Context, *health.HealthCheckRequest) (*health.HealthCheckResponse, error) {
	if h.a.fails(h.probe) {
		return &health.HealthCheckResponse{Status: health.HealthCheckResponse_NOT_SERVING}, nil
	}
	return &health.HealthCheckResponse{Status: health.HealthCheckResponse_SERVING}, nil
}
