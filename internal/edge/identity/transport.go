package identity

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/connrotation"
)

// lastRequests is how long a request in flight may still take after a new certificate has come into use. After that its connection is
// closed. All requests except watches take less time.
const lastRequests = 30 * time.Second

// connections are the open connections of one identity. They do not use client-go's process-wide cache, so that a new
// certificate reaches the server at once and no connection outlives the node.
type connections struct {
	make func() *generation

	mu   sync.Mutex
	now  *generation
	past map[*generation]*time.Timer // old generations with requests in flight, and the timers that end them
}

// generation is the set of connections that were made with one certificate.
type generation struct {
	tracker   *connrotation.ConnectionTracker
	transport *http.Transport
}

func (g *generation) end() {
	g.transport.CloseIdleConnections()
	g.tracker.CloseAll()
}

// RoundTrip sends a request over the newest connections.
func (c *connections) RoundTrip(req *http.Request) (*http.Response, error) {
	c.mu.Lock()
	g := c.now
	c.mu.Unlock()
	return g.transport.RoundTrip(req)
}

// renew makes the next requests use new connections. Requests in flight, including watches, have lastRequests to end.
func (c *connections) renew() {
	c.mu.Lock()
	defer c.mu.Unlock()
	old := c.now
	c.now = c.make()
	old.transport.CloseIdleConnections()
	c.past[old] = time.AfterFunc(lastRequests, func() {
		c.mu.Lock()
		delete(c.past, old)
		c.mu.Unlock()
		old.end()
	})
}

// closeAll closes every connection; requests in flight fail, and the next ones make new connections.
func (c *connections) closeAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now.tracker.CloseAll()
	c.endPast()
}

// end closes all connections.
func (c *connections) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now.end()
	c.endPast()
}

func (c *connections) endPast() {
	for g, timer := range c.past {
		timer.Stop()
		g.end()
	}
	clear(c.past)
}

// withTransport gives cfg a transport of its own. certificate returns the client certificate for each handshake; nil
// for none. Without a certificate, a credential plugin of the kubeconfig is used (users[].user.exec).
func withTransport(cfg *rest.Config, certificate func() (*tls.Certificate, error)) (*rest.Config, *connections, error) {
	dial, wrap := cfg.Dial, cfg.WrapTransport
	if cfg.ExecProvider != nil && certificate == nil {
		// rest.Config does not allow both a transport and a plugin, so the parts that the plugin adds are taken from a configuration
		// without a transport: a token for each request, a certificate for each handshake, and the end of connections with an old one.
		plugin, err := cfg.TransportConfig()
		if err != nil {
			return nil, nil, fmt.Errorf("read credential plugin: %w", err)
		}
		if plugin.HasCertCallback() { // false: the kubeconfig has a token or a password too, which takes precedence
			certificate, wrap, dial = plugin.TLS.GetCertHolder.GetCert, plugin.WrapTransport, plugin.DialHolder.Dial
		}
	}
	tlsConfig, err := rest.TLSConfigFor(cfg)
	if err != nil {
		return nil, nil, fmt.Errorf("read TLS settings: %w", err)
	}
	if tlsConfig == nil {
		tlsConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	tlsConfig.Certificates, tlsConfig.GetClientCertificate = nil, nil
	if certificate != nil {
		tlsConfig.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			pair, err := certificate()
			if pair == nil && err == nil { // a plugin that gives a token
				pair = &tls.Certificate{}
			}
			return pair, err
		}
	}
	if dial == nil {
		dial = (&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext
	}
	proxy := cfg.Proxy
	if proxy == nil {
		proxy = http.ProxyFromEnvironment
	}
	conns := &connections{past: map[*generation]*time.Timer{}, make: func() *generation {
		tracker := connrotation.NewConnectionTracker()
		return &generation{tracker, utilnet.SetTransportDefaults(&http.Transport{
			Proxy:               proxy,
			TLSClientConfig:     tlsConfig.Clone(),
			TLSHandshakeTimeout: 10 * time.Second,
			MaxIdleConnsPerHost: 25,
			DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
				conn, err := dial(ctx, network, address)
				if err != nil {
					return nil, err
				}
				return tracker.Track(conn), nil
			},
		})}
	}}
	conns.now = conns.make()
	out := rest.CopyConfig(cfg)
	out.Transport, out.Dial, out.Proxy, out.ExecProvider, out.WrapTransport = conns, nil, nil, nil, wrap
	// The transport already has the TLS settings, and rest.Config does not allow both a transport and TLS settings.
	out.TLSClientConfig = rest.TLSClientConfig{}
	return out, conns, nil
}

// readKubeconfig reads the current context of a kubeconfig file.
func readKubeconfig(file string) (*rest.Config, error) {
	cfg, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
		&clientcmd.ClientConfigLoadingRules{ExplicitPath: file}, &clientcmd.ConfigOverrides{}).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig %s: %w", file, err)
	}
	return cfg, nil
}
