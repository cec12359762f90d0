package agent

import (
	"log/slog"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/wherry-node/wherry/internal/edge/config"
)

// The request for a serving certificate waits for the Node: with only the addresses of --node-ip the certificate would lack the
// node's name, and a second request would have to follow. A self-signed certificate does not wait, because it needs no approval.
func TestServingRequestWaitsForTheNode(t *testing.T) {
	t.Parallel()
	for _, asks := range []bool{false, true} {
		a := &Agent{log: slog.New(slog.DiscardHandler), cfg: Config{
			NodeName: "a", Kubelet: DefaultConfiguration(), NodeIPs: []netip.Addr{netip.MustParseAddr("10.0.0.1")},
		}}
		a.cfg.Kubelet.ServerTLSBootstrap = asks
		if asks {
			a.deps.Client = &rest.Config{Host: "http://127.0.0.1:1"}
		}
		serving, err := a.servingConfig()
		if err != nil {
			t.Fatal(err)
		}
		if got := len(serving.Addresses()); (got == 0) != asks {
			t.Errorf("asks the API server %t: %d addresses before there is a Node", asks, got)
		}
	}
}

// A standalone node serves the HTTPS API only if its configuration allows that, and only to clients with a certificate.
func TestStandaloneServesNoRequestsByDefault(t *testing.T) {
	t.Parallel()
	ca := filepath.Join(t.TempDir(), "ca.crt")
	for _, c := range []struct {
		name   string
		args   []string
		serves bool
		fails  string
	}{
		{"by default", nil, false, ""},
		{"in a cluster", []string{"--kubeconfig=/k"}, true, ""},
		{"with a CA, but nobody to ask", []string{"--client-ca-file=" + ca}, false, ""},
		{"without a CA", []string{"--authorization-mode=AlwaysAllow", "--authentication-token-webhook=false"}, false, ""},
		{"with a CA whose certificates may do everything", []string{"--client-ca-file=" + ca, "--authorization-mode=AlwaysAllow"}, true, ""},
		{"anonymous", []string{"--client-ca-file=" + ca, "--authorization-mode=AlwaysAllow", "--anonymous-auth"}, false, "anonymous"},
		{"switched off", []string{"--enable-server=false", "--anonymous-auth"}, false, ""},
	} {
		cfg, _, err := config.Load(c.args)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		serves, err := servesAPI(&cfg.Kubelet, cfg.Standalone())
		if serves != c.serves || (err != nil) != (c.fails != "") || err != nil && !strings.Contains(err.Error(), c.fails) {
			t.Errorf("%s: serves %v, %v; want %v, %q", c.name, serves, err, c.serves, c.fails)
		}
	}
}
