package identity

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/connrotation"
)

// connections are the open connections of one identity. They are ours, not client-go's process-wide cache's, so that a
// new certificate reaches the server at once and nothing outlives the node.
type connections struct {
	tracker   *connrotation.ConnectionTracker
	transport *http.Transport
}

// closeAll breaks every connection; requests under way fail and the next ones connect anew.
func (c *connections) closeAll() { c.tracker.CloseAll() }

// end closes what is open and forgets it.
func (c *connections) end() {
	c.transport.CloseIdleConnections()
	c.tracker.CloseAll()
}

// withTransport gives cfg a transport of its own. certificate says which client certificate to show, at each handshake;
// nil for none.
func withTransport(cfg *rest.Config, certificate func() (*tls.Certificate, error)) (*rest.Config, *connections, error) {
	tlsConfig, err := rest.TLSConfigFor(cfg)
	if err != nil {
		return nil, nil, fmt.Errorf("read TLS settings: %w", err)
	}
	if tlsConfig == nil {
		tlsConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	tlsConfig.Certificates, tlsConfig.GetClientCertificate = nil, nil
	if certificate != nil {
		tlsConfig.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return certificate() }
	}
	dial := cfg.Dial
	if dial == nil {
		dial = (&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext
	}
	conns := &connections{tracker: connrotation.NewConnectionTracker()}
	proxy := cfg.Proxy
	if proxy == nil {
		proxy = http.ProxyFromEnvironment
	}
	conns.transport = utilnet.SetTransportDefaults(&http.Transport{
		Proxy:               proxy,
		TLSClientConfig:     tlsConfig,
		TLSHandshakeTimeout: 10 * time.Second,
		MaxIdleConnsPerHost: 25,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := dial(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return conns.tracker.Track(conn), nil
		},
	})
	out := rest.CopyConfig(cfg)
	out.Transport, out.Dial, out.Proxy = conns.transport, nil, nil
	// These are the transport's now; rest.Config refuses to have them twice.
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
