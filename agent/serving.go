package agent

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"time"

	v1 "k8s.io/api/core/v1"
	cliflag "k8s.io/component-base/cli/flag"
	kubelet "k8s.io/kubelet/config/v1beta1"

	"github.com/wherry-node/wherry/internal/base/kubeclient"
	"github.com/wherry-node/wherry/internal/edge/identity"
	"github.com/wherry-node/wherry/internal/edge/server"
)

// openServing obtains the certificate of the HTTPS API.
func (a *Agent) openServing(context.Context) error {
	if !a.cfg.Listen {
		return nil
	}
	if a.apiLeftOut {
		a.log.Info("standalone: the HTTPS API is not served; to serve it, set authentication.x509.clientCAFile and authorization.mode AlwaysAllow; then every client with a certificate may do everything")
	}
	if !*a.cfg.Kubelet.EnableServer {
		return nil
	}
	cfg, err := a.servingConfig()
	if err != nil {
		return err
	}
	s, err := identity.OpenServing(cfg)
	if err != nil {
		return err
	}
	a.opened.server = s
	a.opened.parts = append(a.opened.parts, part{name: "serving certificate", run: s.Run})
	a.opened.fails = append(a.opened.fails, s.Failing)
	a.deps.TLS, err = serverTLS(&a.cfg, s.GetCertificate, a.log)
	return err
}

// servesAPI reports whether the agent serves the HTTPS API on a port that it opens itself. A standalone node has no API
// server that could review access. So its configuration must name the authorities of client certificates, and must allow
// every client with a certificate to do everything.
func servesAPI(k *kubelet.KubeletConfiguration, standalone bool) (bool, error) {
	switch {
	case !*k.EnableServer || !standalone:
		return *k.EnableServer, nil
	case *k.Authentication.Anonymous.Enabled:
		return false, errors.New("authentication.anonymous.enabled (--anonymous-auth): a standalone node has no API server to ask what anonymous may do: set it to false, or enableServer to false")
	case k.Authentication.X509.ClientCAFile != "" && k.Authorization.Mode == "AlwaysAllow":
		return true, nil
	}
	return false, nil
}

// servingConfig returns the configuration of the HTTPS API's certificate.
func (a *Agent) servingConfig() (identity.ServingConfig, error) {
	k := &a.cfg.Kubelet
	cfg := identity.ServingConfig{
		CertFile: k.TLSCertFile, KeyFile: k.TLSPrivateKeyFile, FixedFiles: !gates(&a.cfg).Enabled("ReloadKubeletServerCertificateFile"), Request: k.ServerTLSBootstrap && a.deps.Client != nil,
		CertDir: a.cfg.CertDir, NodeName: a.cfg.NodeName, Addresses: a.hostsOfCertificate, Log: a.log, Kubeconfig: a.cfg.Kubeconfig,
		Failed: func() { a.calls.ServingRenewalFailed() }, Replaced: func(age time.Duration) { a.calls.ServingReplaced(age) }, // a.calls is built before anything runs
	}
	if cfg.Request {
		// The certificate must contain the node's name. Before the Node exists, only the addresses of --node-ip are known. A
		// certificate with only these would be useless, and somebody may have to approve each request. So the request waits for the
		// addresses of the Node.
		cfg.Addresses = a.addresses
	}
	if a.deps.Client != nil {
		cfg.Server = a.deps.Client.Host
		c, err := kubeclient.New(a.deps.Client)
		if err != nil {
			return cfg, err
		}
		cfg.Client = func() (identity.CSRs, error) { return c.CertificateSigningRequests(), nil }
	}
	return cfg, nil
}

// addresses returns the addresses in the Node's status; none while the agent has not read its Node.
func (a *Agent) addresses() []v1.NodeAddress {
	if a.heartbeat == nil {
		return nil
	}
	n := a.heartbeat.Node()
	if n == nil {
		return nil
	}
	return n.Status.Addresses
}

// hostsOfCertificate returns the addresses in the Node's status. While there are none, it returns the addresses of
// --node-ip.
func (a *Agent) hostsOfCertificate() []v1.NodeAddress {
	if known := a.addresses(); len(known) > 0 {
		return known
	}
	var out []v1.NodeAddress
	for _, ip := range a.cfg.NodeIPs {
		if !ip.IsUnspecified() {
			out = append(out, v1.NodeAddress{Type: v1.NodeInternalIP, Address: ip.String()})
		}
	}
	return out
}

// serverTLS returns the TLS configuration of the HTTPS API.
func serverTLS(cfg *Config, get func(*tls.ClientHelloInfo) (*tls.Certificate, error), log *slog.Logger) (*tls.Config, error) {
	k := &cfg.Kubelet
	version, suites, err := server.ParseTLS(k.TLSMinVersion, k.TLSCipherSuites)
	if err != nil {
		return nil, err
	}
	curves, err := cliflag.TLSCurvePreferences(k.TLSCurvePreferences)
	if err != nil {
		return nil, fmt.Errorf("tlsCurvePreferences: %w", err)
	}
	c := server.TLSConfig{MinVersion: version, CipherSuites: suites, Curves: curves, GetCertificate: get}
	if f := k.Authentication.X509.ClientCAFile; f != "" {
		// ClientCAs are the authorities that the server names in a TLS handshake. They are read again when the file changes only if the
		// feature gate is on. The authentication of clients (access) always uses the current file.
		if gates(cfg).Enabled("ReloadKubeletClientCAFile") {
			c.ClientCAs, err = server.LoadClientCAs(f, log)
		} else {
			c.ClientCAs, err = server.FixedClientCAs(f)
		}
		if err != nil {
			return nil, err
		}
	}
	return c.New(), nil
}
