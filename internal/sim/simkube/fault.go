package simkube

import (
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"time"
)

// Effect is what an injected fault does to a request.
type Effect uint8

const (
	// Refuse answers Fault.Err (an apierrors status error) after Delay and does nothing.
	Refuse Effect = iota
	// Break breaks the connection after Delay; nothing is done.
	Break
	// Hang answers when the caller gives up; nothing is done.
	Hang
	// Slow does it after Delay.
	Slow
	// Lost does it, and breaks the connection after Delay: the caller cannot know.
	Lost
)

// Fault is something that goes wrong with requests.
type Fault struct {
	// Verb, Resource ("pods", "pods/status"), Namespace and Name say which requests; "" is all.
	Verb, Resource, Namespace, Name string
	// Agent is the User-Agent of those whom it concerns; "" is all.
	Agent  string
	Effect Effect
	Err    error
	Delay  time.Duration
	// Times is how often it happens; 0 is always.
	Times int
}

var (
	errReset   = &net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET}
	errRefused = fmt.Errorf("dial simkube: %w", &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED})
)

// Inject adds a fault. The function returned takes it away.
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

// fault returns the fault that strikes a request, or nil.
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

// SetOutage makes the server unreachable, or reachable again: connections are refused, open watches break.
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

// CutWatches breaks all open watches, as a load balancer that is replaced does.
func (k *Kube) CutWatches() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.cut(io.ErrUnexpectedEOF)
}

// cut is called with the lock held.
func (k *Kube) cut(err error) {
	for s := range k.watches {
		s.end(err)
	}
	clear(k.watches)
}
