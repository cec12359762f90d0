package probe

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/wherry-node/wherry/internal/core/crispec"
)

// These constants bound what an answer of a container can cost, in bytes. Without them, a container could make the agent read any
// number of bytes.
const (
	maxOutput  = 10 << 10 // bytes of a command's output, or of the body of an HTTP response; the rest is dropped
	maxHeaders = 64 << 10 // bytes of an HTTP response's headers
	maxHealth  = 64 << 10 // bytes of a message of the gRPC health service
)

// Outcome is the outcome of one run of a probe.
type Outcome uint8

// The outcomes. Unknown means that the run gave no information about the container.
const (
	Unknown Outcome = iota
	Success
	Warning // success, with a message for the user
	Failure
)

// label returns the outcome as the value of the label "result" of the metric prober_probe_total.
func (o Outcome) label() string {
	switch o {
	case Success, Warning:
		return "successful"
	case Failure:
		return "failed"
	case Unknown:
	}
	return "unknown"
}

// check runs the action of a probe once, until ctx ends. limit is the probe's timeout. The text explains the outcome to people.
func (p *Probes) check(ctx context.Context, t Target, spec *v1.Probe, limit time.Duration) (Outcome, string) {
	switch {
	case spec.Exec != nil:
		return p.checkExec(ctx, t, spec.Exec.Command, limit)
	case spec.HTTPGet != nil:
		req, err := HTTPRequest(ctx, spec.HTTPGet, t.Spec, t.Host, p.cfg.UserAgent)
		if err != nil {
			return Unknown, err.Error()
		}
		return p.checkHTTP(req)
	case spec.TCPSocket != nil:
		port, err := Port(spec.TCPSocket.Port, t.Spec)
		if err != nil {
			return Unknown, err.Error()
		}
		addr, err := address(spec.TCPSocket.Host, t.Host, port)
		if err != nil {
			return Unknown, err.Error()
		}
		return p.checkTCP(ctx, addr)
	case spec.GRPC != nil:
		service := ""
		if spec.GRPC.Service != nil {
			service = *spec.GRPC.Service
		}
		addr, err := address("", t.Host, int(spec.GRPC.Port))
		if err != nil {
			return Unknown, err.Error()
		}
		return p.checkGRPC(ctx, addr, service, limit)
	}
	return Unknown, "the probe has no exec, httpGet, tcpSocket or grpc"
}

// checkExec runs a command in the container. "$(VAR_NAME)" is expanded from literal values of the container's env.
func (p *Probes) checkExec(ctx context.Context, t Target, command []string, limit time.Duration) (Outcome, string) {
	if p.cfg.Exec == nil {
		return Unknown, "this agent runs no exec probes"
	}
	cmd, err := crispec.ExpandAll(command, func(name string) (string, bool) {
		for _, e := range t.Spec.Env {
			if e.Name == name && e.ValueFrom == nil {
				return e.Value, true
			}
		}
		return "", false
	})
	if err != nil {
		return Unknown, "command: " + err.Error()
	}
	stdout, stderr, code, err := p.cfg.Exec.ExecSync(ctx, t.ContainerID, cmd, limit)
	switch {
	case err != nil && ctx.Err() != nil:
		return Unknown, fmt.Sprintf("the container runtime did not answer within %s after the timeout of the command: %s", runtimeSilence, statusText(err))
	case errors.Is(err, context.DeadlineExceeded), err != nil && status.Code(err) == codes.DeadlineExceeded:
		return Failure, fmt.Sprintf("command timed out: %q timed out after %s", strings.Join(cmd, " "), limit)
	case err != nil:
		return Unknown, statusText(err)
	}
	out := append([]byte(nil), stdout[:min(len(stdout), maxOutput)]...)
	out = append(out, stderr[:min(len(stderr), maxOutput-len(out))]...)
	text := string(out)
	if code != 0 {
		return Failure, text
	}
	return Success, text
}

// statusText returns the runtime's error as gRPC prints it, without the context that the agent added. That context has an ID,
// which would make each event different.
func statusText(err error) string {
	var s interface {
		error
		GRPCStatus() *status.Status
	}
	if errors.As(err, &s) {
		return s.Error()
	}
	return err.Error()
}

// Port resolves a port of a probe or a hook: a number, or the name of a container port.
func Port(port intstr.IntOrString, c *v1.Container) (int, error) {
	n := port.IntValue()
	if port.Type == intstr.String {
		for _, cp := range c.Ports {
			if cp.Name == port.StrVal {
				n = int(cp.ContainerPort)
			}
		}
		if n == 0 {
			return 0, fmt.Errorf("couldn't find port %q: container %s has no port of this name", port.StrVal, c.Name)
		}
	}
	if n < 1 || n > 65535 {
		return 0, fmt.Errorf("invalid port number: %s", port.String())
	}
	return n, nil
}

// errNoAddress means that an action names no host and the pod has no IP. An address without a host must not be dialled: the connection would
// go to this machine, and a service of the node would answer for the container.
var errNoAddress = errors.New("the pod has no address yet")

// address returns the address of a port on host, or on the pod if host is empty.
func address(host, ofPod string, port int) (string, error) {
	if host == "" {
		host = ofPod
	}
	if host == "" {
		return "", errNoAddress
	}
	return net.JoinHostPort(host, strconv.Itoa(port)), nil
}

// HTTPRequest builds the request of an httpGet action, of a probe or of a hook. host is the target of the request if the action names
// no host. If both are empty, HTTPRequest returns an error.
func HTTPRequest(ctx context.Context, a *v1.HTTPGetAction, c *v1.Container, host, userAgent string) (*http.Request, error) {
	port, err := Port(a.Port, c)
	if err != nil {
		return nil, err
	}
	u, err := url.Parse(a.Path)
	if err != nil {
		u = &url.URL{Path: a.Path}
	}
	u.Scheme = "http"
	if a.Scheme != "" {
		u.Scheme = strings.ToLower(string(a.Scheme))
	}
	if u.Host, err = address(a.Host, host, port); err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, fmt.Errorf("build request for %s: %w", u, err)
	}
	for _, h := range a.HTTPHeaders {
		req.Header.Add(h.Name, h.Value)
	}
	req.Host = req.Header.Get("Host")
	if _, ok := req.Header["User-Agent"]; !ok {
		req.Header.Set("User-Agent", userAgent)
	}
	if accept, ok := req.Header["Accept"]; !ok {
		req.Header.Set("Accept", "*/*")
	} else if accept[0] == "" {
		req.Header.Del("Accept") // an empty Accept header means: send none
	}
	return req, nil
}

// newTransport returns a transport that opens a connection for each probe. The answer on an old connection may differ from what
// a new client would get.
func (p *Probes) newTransport() *http.Transport {
	return &http.Transport{
		// "If scheme is set to HTTPS, the kubelet sends an HTTPS request skipping the certificate verification."
		TLSClientConfig:        &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // see above
		DisableKeepAlives:      true,
		DisableCompression:     true,
		ForceAttemptHTTP2:      true,
		MaxResponseHeaderBytes: maxHeaders,
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			if asked, ok := ctx.Value(probeContext{}).(context.Context); ok {
				ctx = asked
			}
			return p.dial(ctx, network, addr)
		},
	}
}

// probeContext is the key under which a request carries the context of its probe to dial. The transport of net/http does not cancel a
// dial with its request, because a later request could use the connection. Without this key, each probe of a host that does not answer
// would leave a dial that hangs.
type probeContext struct{}

// dial opens a connection that leaves no socket in the state TIME_WAIT. Such a socket keeps a local port for a minute, and many probes
// could use up the ports.
func (p *Probes) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := p.cfg.Dialer.DialContext(ctx, network, addr)
	if tcp, ok := conn.(*net.TCPConn); ok && err == nil {
		_ = tcp.SetLinger(1)
	}
	return conn, err
}

// FollowOnHost is the http.Client.CheckRedirect of probes and hooks: they follow ten redirects on the host of the first request, and take a redirect to
// another host as the answer.
func FollowOnHost(next *http.Request, via []*http.Request) error {
	if next.URL.Hostname() != via[0].URL.Hostname() {
		return http.ErrUseLastResponse
	}
	if len(via) >= 10 {
		return errors.New("stopped after 10 redirects")
	}
	return nil
}

// checkHTTP sends the request. "Any code greater than or equal to 200 and less than 400 indicates success."
func (p *Probes) checkHTTP(req *http.Request) (Outcome, string) {
	client := &http.Client{Transport: p.transport(), CheckRedirect: FollowOnHost}
	resp, err := client.Do(req.WithContext(context.WithValue(req.Context(), probeContext{}, req.Context())))
	if err != nil {
		return Failure, err.Error()
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxOutput))
	switch {
	case resp.StatusCode < 200 || resp.StatusCode >= 400:
		// The message does not contain the body, because the body is data of the application, and other people can read events.
		return Failure, fmt.Sprintf("HTTP probe failed with statuscode: %d", resp.StatusCode)
	case err != nil: // the status indicates success, and an application may send the body slowly; upstream's kubelet learns nothing from it either
		return Unknown, fmt.Sprintf("read response of %s: %v", req.URL, err)
	case resp.StatusCode >= 300:
		return Warning, fmt.Sprintf("Probe terminated redirects, Response body: %s", body)
	}
	return Success, string(body)
}

// checkTCP opens a connection. "If the connection is established, the probe is successful."
func (p *Probes) checkTCP(ctx context.Context, addr string) (Outcome, string) {
	conn, err := p.dial(ctx, "tcp", addr)
	if err != nil {
		return Failure, err.Error()
	}
	_ = conn.Close()
	return Success, ""
}

// checkGRPC calls the gRPC health service. If the server does not listen yet, the check waits for it until the probe's timeout,
// as upstream's kubelet does.
func (p *Probes) checkGRPC(ctx context.Context, addr, service string, limit time.Duration) (Outcome, string) {
	conn, err := grpc.NewClient("passthrough:///"+addr,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithUserAgent(p.cfg.UserAgent), grpc.WithNoProxy(), grpc.WithDisableServiceConfig(),
		grpc.WithMaxHeaderListSize(maxHeaders), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxHealth)),
		grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) { return p.dial(ctx, "tcp", addr) }))
	if err != nil {
		return Unknown, fmt.Sprintf("connect to %q: %v", addr, err)
	}
	defer func() { _ = conn.Close() }()
	resp, err := grpc_health_v1.NewHealthClient(conn).Check(ctx, &grpc_health_v1.HealthCheckRequest{Service: service}, grpc.WaitForReady(true))
	switch s := status.Convert(err); {
	case err == nil && resp.Status == grpc_health_v1.HealthCheckResponse_SERVING:
		return Success, "service healthy"
	case err == nil:
		return Failure, fmt.Sprintf("service unhealthy (responded with %q)", resp.Status.String())
	case s.Code() == codes.Unimplemented:
		return Failure, "error: this server does not implement the grpc health protocol (grpc.health.v1.Health): " + s.Message()
	case s.Code() == codes.DeadlineExceeded && conn.GetState() != connectivity.Ready:
		return Failure, fmt.Sprintf("timeout: failed to connect service %q within %s: %v", addr, limit, context.DeadlineExceeded)
	case s.Code() == codes.DeadlineExceeded:
		return Failure, fmt.Sprintf("timeout: health rpc did not complete within %s", limit)
	default:
		return Failure, fmt.Sprintf("error: health rpc probe failed: %v", err)
	}
}
