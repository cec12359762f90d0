package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/core/pod"
)

// errUID means that the pod with the requested name has another UID.
var errUID = errors.New("pod not found")

// target finds the pod of a request. If there is none, it answers 404.
func (s *Server) target(w http.ResponseWriter, r *http.Request) (*v1.Pod, bool) {
	p, ok := s.cfg.Pods.Pod(r.PathValue("namespace"), r.PathValue("pod"))
	if !ok {
		http.Error(w, "pod does not exist", http.StatusNotFound)
		return nil, false
	}
	if uid := types.UID(r.PathValue("uid")); uid != "" && uid != p.UID && (s.cfg.MirrorUID == nil || uid != s.cfg.MirrorUID(p)) {
		http.Error(w, errUID.Error(), http.StatusNotFound)
		return nil, false
	}
	return p, true
}

// container finds the running container of a request. If there is none, it answers 404.
func (s *Server) container(w http.ResponseWriter, r *http.Request) (*v1.Pod, *pod.Container, bool) {
	p, ok := s.target(w, r)
	if !ok {
		return nil, nil, false
	}
	name := r.PathValue("container")
	o, _ := s.cfg.Pods.Observed(p.UID)
	if c := o.Newest(name); c != nil && c.State == pod.StateRunning {
		return p, c, true
	}
	http.Error(w, fmt.Sprintf("container not found (%q)", name), http.StatusNotFound)
	return nil, nil, false
}

// streamsOf parses which streams a client wants.
func streamsOf(q url.Values) (Streams, error) {
	s := Streams{Stdin: q.Get("input") == "1", Stdout: q.Get("output") == "1", Stderr: q.Get("error") == "1", TTY: q.Get("tty") == "1"}
	if s.TTY {
		s.Stderr = false // with a terminal, stdout and stderr are one stream
	}
	if !s.Stdin && !s.Stdout && !s.Stderr {
		return s, errors.New("you must specify at least 1 of stdin, stdout, stderr (query: input, output, error)")
	}
	return s, nil
}

// serveExec answers /exec: it connects the client with a command that it starts in a container.
func (s *Server) serveExec(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	streams, err := streamsOf(query)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if len(query["command"]) == 0 {
		http.Error(w, "command: at least one is required", http.StatusBadRequest)
		return
	}
	_, c, ok := s.container(w, r)
	if !ok {
		return
	}
	u, err := s.cfg.Runtime.Exec(r.Context(), c.ID, query["command"], streams)
	s.stream(w, r, streamRequest{what: "exec", url: u, err: err, streams: streams})
}

// serveAttach answers /attach. The container's spec decides whether there is a terminal.
func (s *Server) serveAttach(w http.ResponseWriter, r *http.Request) {
	streams, err := streamsOf(r.URL.Query())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	p, c, ok := s.container(w, r)
	if !ok {
		return
	}
	spec := pod.SpecOf(p, c.Name)
	if spec == nil {
		http.Error(w, fmt.Sprintf("container %s not found in pod %s", c.Name, p.Name), http.StatusNotFound)
		return
	}
	if streams.TTY = spec.TTY; streams.TTY {
		streams.Stderr = false
	}
	u, err := s.cfg.Runtime.Attach(r.Context(), c.ID, streams)
	s.stream(w, r, streamRequest{what: "attach", url: u, err: err, streams: streams})
}

// streamRequest is a client's request for a stream, with the runtime's answer: a URL or an error.
type streamRequest struct {
	what    string
	url     *url.URL
	err     error
	streams Streams
}

// stream connects the client with the runtime's streaming server, or answers with the runtime's error.
func (s *Server) stream(w http.ResponseWriter, r *http.Request, q streamRequest) {
	if q.err != nil {
		writeRuntimeError(w, q.err)
		return
	}
	if speaksV5(r) {
		s.metrics.webSocket.WithLabelValues(q.what).Inc()
		s.translate(w, r, q)
		return
	}
	s.proxy(w, r, q.url, true)
}

// servePortForward answers /portForward: it connects the client with ports of a pod.
func (s *Server) servePortForward(w http.ResponseWriter, r *http.Request) {
	tunnel := tunnelled(r)
	var ports []int32
	if isWebSocket(r) && len(tunnel) == 0 {
		var err error
		if ports, err = portsOf(r.URL.Query()["port"]); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
	}
	p, ok := s.target(w, r)
	if !ok {
		return
	}
	o, _ := s.cfg.Pods.Observed(p.UID)
	sandbox := o.NewestSandbox()
	if sandbox == nil || !sandbox.Ready {
		http.Error(w, fmt.Sprintf("pod not found (%q)", pod.RefOf(p).FullName()), http.StatusNotFound)
		return
	}
	u, err := s.cfg.Runtime.PortForward(r.Context(), sandbox.ID, ports)
	if err != nil {
		writeRuntimeError(w, err)
		return
	}
	if len(tunnel) > 0 {
		s.metrics.webSocket.WithLabelValues("portforward").Inc()
		s.tunnel(w, r, u, tunnel)
		return
	}
	s.proxy(w, r, u, false)
}

// portsOf parses the ports that a WebSocket client forwards. The client must name them in the query.
func portsOf(values []string) (ports []int32, err error) {
	for _, v := range values {
		for part := range strings.SplitSeq(v, ",") {
			n, err := strconv.ParseUint(part, 10, 16)
			if err != nil || n == 0 {
				return nil, fmt.Errorf("port: %q is not a port (1 to 65535)", part)
			}
			ports = append(ports, int32(n))
		}
	}
	switch {
	case len(ports) == 0:
		return nil, errors.New("port: at least one is required over WebSocket")
	case len(ports) > 128:
		return nil, fmt.Errorf("port: %d are too many, at most 128 in one connection", len(ports))
	}
	return ports, nil
}

// serveRun answers /run: it runs a command to its end and returns the output.
func (s *Server) serveRun(w http.ResponseWriter, r *http.Request) {
	cmd := r.URL.Query().Get("cmd")
	if cmd == "" {
		cmd = r.PostFormValue("cmd")
	}
	if cmd == "" {
		http.Error(w, "cmd: a command is required", http.StatusBadRequest)
		return
	}
	_, c, ok := s.container(w, r)
	if !ok {
		return
	}
	out, err := s.cfg.Runtime.ExecSync(r.Context(), c.ID, strings.Split(cmd, " "))
	if err != nil {
		writeRuntimeError(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/json") // clients expect this type, whatever the command wrote
	_, _ = w.Write(out)                                // an error means that the client is gone
}

// writeRuntimeError answers with the HTTP status that fits an error of the runtime.
func writeRuntimeError(w http.ResponseWriter, err error) {
	if errors.Is(err, context.Canceled) {
		return // the client is gone, or the server stops
	}
	code := http.StatusInternalServerError
	switch status.Code(err) { // status.Code also finds a wrapped error
	case codes.NotFound:
		code = http.StatusNotFound
	case codes.ResourceExhausted:
		w.Header().Set("Retry-After", "60")
		code = http.StatusTooManyRequests
	}
	http.Error(w, err.Error(), code)
}
