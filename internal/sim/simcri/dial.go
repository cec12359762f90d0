package simcri

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/wherry-node/wherry/internal/sim/simrules"
)

// DialContext connects to an address of a running pod. On every port an HTTP/1.1 server answers 200 while the pod's containers
// are healthy, and 503 otherwise. It replaces the network for a node's probes. Pods in the host's network have no address of their
// own, so connections to them are refused.
func (r *Runtime) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, &net.OpError{Op: "dial", Net: network, Err: err}
	}
	number, _ := strconv.ParseUint(port, 10, 16) // a service's name is no number, and rules do not match it
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return nil, &net.OpError{Op: "dial", Net: network, Err: fmt.Errorf("lookup %s: no such host", host)}
	}
	if _, err := r.enter(ctx, methodDial, nil); err != nil {
		return nil, err
	}
	sb := r.sandboxOf(ip)
	if sb == nil {
		return nil, &net.OpError{Op: "dial", Net: network, Err: fmt.Errorf("connect to %s: connection refused", address)}
	}
	here, there := net.Pipe()
	go func() { // ends when either side closes its connection
		defer func() { _ = there.Close() }()
		_ = r.answer(sb, int32(number), there)
	}()
	return here, nil
}

// sandboxOf returns the sandbox with this address if it has a running container.
func (r *Runtime) sandboxOf(ip netip.Addr) *sandbox {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.used[ip] {
		return nil
	}
	for _, s := range r.sandboxes {
		for _, own := range s.ips {
			if own == ip && s.runs() {
				return s
			}
		}
	}
	return nil
}

func (s *sandbox) runs() bool {
	for _, c := range s.containers {
		if c.state == runtimeapi.ContainerState_CONTAINER_RUNNING {
			return true
		}
	}
	return false
}

// maxHead bounds the head of a request in bytes.
const maxHead = 1 << 20

// answer serves HTTP for a simulated pod on one connection to one of its ports.
func (r *Runtime) answer(s *sandbox, port int32, conn io.ReadWriter) error {
	limited := &io.LimitedReader{R: conn}
	requests := bufio.NewReader(limited)
	for {
		limited.N = maxHead
		req, err := http.ReadRequest(requests)
		if err != nil {
			return err
		}
		limited.N = math.MaxInt64
		if _, err := io.Copy(io.Discard, req.Body); err != nil {
			return err
		}
		r.mu.Lock()
		healthy := s.runs()
		var ruled *simrules.HTTP
		for _, c := range s.containers {
			if c.state != runtimeapi.ContainerState_CONTAINER_RUNNING {
				continue
			}
			now := time.Now()
			healthy = healthy && c.healthy(now)
			if ruled == nil && c.do != nil {
				ruled = c.do.HTTPAnswer(req.URL.Path, port, c.ran(now))
			}
		}
		r.mu.Unlock()
		code := http.StatusOK
		body := fmt.Sprintf("simulated pod %s/%s\n", s.meta.Namespace, s.meta.Name)
		switch {
		case !healthy:
			code = http.StatusServiceUnavailable
		case ruled != nil:
			code, body = ruled.Status, ruled.Body
		}
		sent := body
		if req.Method == http.MethodHead {
			sent = ""
		}
		if _, err := fmt.Fprintf(conn, "HTTP/1.1 %d %s\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n%s",
			code, http.StatusText(code), len(body), sent); err != nil {
			return err
		}
		if req.Close {
			return nil
		}
	}
}
