package identity

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"k8s.io/client-go/rest"
)

// ErrAwaited is the error of a request to the API server that ended while the node had no identity yet.
var ErrAwaited = errors.New("this node has no client certificate yet: see its log, and kubectl get csr")

// Joining connects a node to its API server from the start of the agent on. If the node has no identity yet, Run obtains one (TLS
// bootstrap), and the clients that were made from Config before then wait with their requests until it is there. So the agent starts, and runs
// the pods that do not come from the API server, while somebody has to approve the certificate request or the API server is away.
// The methods may be called concurrently; Run is called once.
type Joining struct {
	cfg    ClientConfig
	base   *rest.Config // configuration of the API server; its transport is this Joining, or that of client if it was there at the start
	first  *bootstrap   // nil: the node had an identity at the start
	from   *url.URL     // the API server in base
	joined chan struct{}

	failing failure // an error of this machine, until joined is closed

	// These are set before joined is closed, and not changed after that.
	client    *Client
	transport http.RoundTripper // sends requests with the credentials of client
	to        *url.URL          // the API server in the kubeconfig of client
}

// OpenJoining reads the node's kubeconfig or, if that does not exist or its certificate has ended, the bootstrap kubeconfig. It makes
// no request. It returns an error if neither can be used.
func OpenJoining(cfg ClientConfig) (*Joining, error) {
	j := &Joining{cfg: cfg, joined: make(chan struct{})}
	var err error
	if cfg.BootstrapKubeconfig != "" {
		if j.first, err = newBootstrap(cfg.bootstrap()); err != nil {
			return nil, err
		}
	}
	if j.first == nil {
		if j.client, err = OpenClient(cfg); err != nil {
			return nil, err
		}
		j.base = j.client.base
		close(j.joined)
		return j, nil
	}
	j.first.failing = &j.failing
	j.base = rest.AnonymousClientConfig(j.first.server)
	j.base.Transport, j.base.Dial, j.base.Proxy, j.base.TLSClientConfig = j, nil, nil, rest.TLSClientConfig{}
	if j.from, _, err = rest.DefaultServerUrlFor(j.base); err != nil {
		return nil, fmt.Errorf("kubeconfig %s: server: %w", cfg.BootstrapKubeconfig, err)
	}
	return j, nil
}

// bootstrap returns the configuration with which a Client with the configuration c gets its first certificate.
func (c *ClientConfig) bootstrap() BootstrapConfig {
	return BootstrapConfig{
		BootstrapKubeconfig: c.BootstrapKubeconfig, Kubeconfig: c.Kubeconfig, CertDir: c.CertDir, NodeName: c.NodeName,
		Rotate: c.Rotate, Log: c.Log, Patience: c.Patience, Refused: c.Refused,
	}
}

// Config returns a copy of the configuration for clients of the API server, as Client.Config does.
func (j *Joining) Config() *rest.Config { return rest.CopyConfig(j.base) }

// Awaited reports whether the node has no identity yet.
func (j *Joining) Awaited() bool {
	select {
	case <-j.joined:
		return false
	default:
		return true
	}
}

// Certificate returns the certificate in use, or nil if there is none yet or the credentials are not a certificate.
func (j *Joining) Certificate() *x509.Certificate {
	if j.Awaited() {
		return nil
	}
	return j.client.Certificate()
}

// CloseAll closes every connection to the API server, as Client.CloseAll does.
func (j *Joining) CloseAll() {
	if !j.Awaited() {
		j.client.CloseAll()
	}
}

// Failing returns an error while a problem of this machine, such as a full or broken disk, prevents that the node gets or renews its
// certificate. Run then tries again. Failing returns nil otherwise.
func (j *Joining) Failing() error {
	if !j.Awaited() {
		return j.client.Failing()
	}
	if err := j.failing.get(); err != nil {
		return fmt.Errorf("get client certificate: %w", err)
	}
	return nil
}

// Run obtains the node's identity if it has none, and then renews its certificate, until ctx ends. Then it closes the connections. A failure
// to get the identity is no error: Run logs it and tries again.
func (j *Joining) Run(ctx context.Context) error {
	if j.Awaited() && !j.join(ctx) {
		return nil
	}
	return j.client.Run(ctx)
}

// join tries to get the identity until it is there, or ctx ends; then it returns false.
func (j *Joining) join(ctx context.Context) bool {
	patience := j.cfg.Patience
	if patience == 0 {
		patience = defaultPatience
	}
	pause, said := newBackoff(time.Second, 30*time.Second), newRepeats(patience)
	for {
		err := j.try(ctx)
		switch {
		case err == nil:
			return true
		case ctx.Err() != nil:
			return false
		}
		j.failing.set(true, err)
		if said.again(err.Error()) {
			j.cfg.Log.Error("The node does not get its identity, trying again", "err", err)
		}
		if !pause.wait(ctx) {
			return false
		}
	}
}

// try gets the identity, which may take any time, and lets the waiting requests go on. An error is one of this machine.
func (j *Joining) try(ctx context.Context) error {
	if err := j.first.run(ctx); err != nil {
		return err
	}
	c, err := OpenClient(j.cfg)
	if err != nil {
		return err
	}
	transport, to, err := sender(c)
	if err != nil {
		c.conns.end()
		return err
	}
	j.client, j.transport, j.to = c, transport, to
	close(j.joined)
	return nil
}

// sender returns a transport that sends requests with the credentials of a client, and the URL of its API server.
func sender(c *Client) (http.RoundTripper, *url.URL, error) {
	transport, err := rest.TransportFor(c.Config())
	if err != nil {
		return nil, nil, fmt.Errorf("kubeconfig %s: %w", c.cfg.Kubeconfig, err)
	}
	to, _, err := rest.DefaultServerUrlFor(c.base)
	if err != nil {
		return nil, nil, fmt.Errorf("kubeconfig %s: server: %w", c.cfg.Kubeconfig, err)
	}
	return transport, to, nil
}

// RoundTrip sends a request as soon as the node has an identity. If the request ends before, it returns ErrAwaited.
func (j *Joining) RoundTrip(req *http.Request) (*http.Response, error) {
	if j.Awaited() {
		select {
		case <-j.joined:
		case <-req.Context().Done():
			if req.Body != nil {
				_ = req.Body.Close() // as http.RoundTripper demands
			}
			return nil, fmt.Errorf("%w (%w)", ErrAwaited, context.Cause(req.Context()))
		}
	}
	return j.transport.RoundTrip(j.aim(req))
}

// aim directs a request to the API server in the node's kubeconfig. Requests are made for the one in the bootstrap kubeconfig, which somebody
// may have corrected since; and somebody may have written another kubeconfig by hand.
func (j *Joining) aim(req *http.Request) *http.Request {
	if *j.from == *j.to {
		return req
	}
	aimed := req.Clone(req.Context())
	u := aimed.URL
	before, after := strings.TrimSuffix(j.from.Path, "/"), strings.TrimSuffix(j.to.Path, "/")
	u.Scheme, u.Host, aimed.Host = j.to.Scheme, j.to.Host, ""
	u.Path = after + strings.TrimPrefix(u.Path, before)
	if u.RawPath != "" {
		u.RawPath = after + strings.TrimPrefix(u.RawPath, before)
	}
	return aimed
}
