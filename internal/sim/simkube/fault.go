package simkube

import (
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"time"
)

// Effect is the effect of an injected fault on a request.
type Effect uint8

const (
	// Refuse returns Fault.Err (an apierrors status error) after Delay and does nothing else.
	Refuse Effect = iota
	// Break breaks the connection after Delay. The request is not performed.
	Break
	// Hang returns when the caller's context ends. The request is not performed.
	Hang
	// Slow performs the request after Delay.
	Slow
	// Lost performs the request, and breaks the connection after Delay: the caller cannot know the result.
	Lost
)

// Fault makes requests fail or delays them.
type Fault struct {
	// Verb, Resource ("pods", "pods/status"), Namespace and Name select the requests; "": all.
	Verb, Resource, Namespace, Name string
	// Agent is the User-Agent of the clients that the fault affects; "": all.
	Agent  string
	Effect Effect
	Err    error
	Delay  time.Duration
	// Times is how many requests the fault affects; 0: all.
	Times int
}

var (
	errReset   = &net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET}
	errRefused = fmt.Errorf("dial simkube: %w", &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED})
)

// Inject adds a fault. The returned function removes it.
func (k *Kube) Inject(f Fault) (remove func()) {
	if f.Err == nil {
		f.Err = errors.New("injected fault")
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	p := &f
	k.faults = append(k.faults, p)
	return func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.drop(p)
	}
}

func (k *Kube) drop(p *Fault) {
	for i, f := range k.faults {
		if f == p {
			k.faults = append(k.faults[:i:i], k.faults[i+1:]...)
			return
		}
	}
}

// fault returns the fault for a request, or nil.
func (k *Kube) fault(req *request) *Fault {
	k.mu.Lock()
	defer k.mu.Unlock()
	resource := req.resource
	if req.sub != "" {
		resource += "/" + req.sub
	}
	for _, f := range k.faults {
		if (f.Verb != "" && f.Verb != req.verb) || (f.Resource != "" && f.Resource != resource) ||
			(f.Namespace != "" && f.Namespace != req.namespace) || (f.Agent != "" && f.Agent != req.agent) || (f.Name != "" && f.Name != req.name) {
			continue
		}
		if f.Times > 0 {
			if f.Times--; f.Times == 0 {
				k.drop(f)
			}
		}
		return f
	}
	return nil
}

// SetOutage makes the server unreachable or reachable. During an outage connections are refused. Open watches break.
func (k *Kube) SetOutage(on bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.outage = nil
	if on {
		k.outage = errRefused
		k.cut(errReset)
	}
}

func (k *Kube) down() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.outage
}

// CutWatches breaks all open watches, like the replacement of a load balancer.
func (k *Kube) CutWatches() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.cut(io.ErrUnexpectedEOF)
}

// cut breaks all open watches. The caller holds the lock.
func (k *Kube) cut(err error) {
	for s := range k.watches {
		s.end(err)
	}
	clear(k.watches)
}
