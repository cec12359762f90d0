package plane

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"text/template"

	"github.com/wherry-node/wherry/controlplane/internal/pki"
)

// nftables mode: everything kube-proxy makes lies in tables of its own name, which makes its end clean. Connection
// tracking limits are the machine's, so they are left as they are (0).
var proxyConfig = template.Must(template.New("kube-proxy").Parse(`apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftables
hostnameOverride: "{{.NodeName}}"
clientConnection:
  kubeconfig: "{{.Kubeconfig}}"
clusterCIDR: "{{.ClusterCIDR}}"
detectLocalMode: ClusterCIDR
healthzBindAddress: "127.0.0.1:{{.HealthzPort}}"
metricsBindAddress: "127.0.0.1:{{.MetricsPort}}"
conntrack:
  maxPerCore: 0
  min: 0
  tcpEstablishedTimeout: 0s
  tcpCloseWaitTimeout: 0s
  udpTimeout: 0s
  udpStreamTimeout: 0s
`))

func (c *Config) writeProxyConfig(cr *credentials) error {
	metrics, err := usualPort(10249)
	if err != nil {
		return fmt.Errorf("choose kube-proxy's metrics port: %w", err)
	}
	healthz, err := usualPort(10256)
	if err != nil {
		return fmt.Errorf("choose kube-proxy's health port: %w", err)
	}
	var b bytes.Buffer
	if err := proxyConfig.Execute(&b, map[string]any{
		"NodeName": c.NodeName, "MetricsPort": metrics, "HealthzPort": healthz, "Kubeconfig": cr.proxyCfg, "ClusterCIDR": c.ClusterCIDR,
	}); err != nil {
		return fmt.Errorf("write kube-proxy configuration: %w", err)
	}
	return pki.WriteFile(c.path("kube-proxy.yaml"), b.Bytes(), 0o644)
}

// removeProxyRules deletes the tables that kube-proxy made. It is a no-op where there are none.
func removeProxyRules(ctx context.Context) error {
	tables, err := exec.CommandContext(ctx, "nft", "list", "tables").Output()
	if err != nil {
		return fmt.Errorf("list netfilter tables: %w", err)
	}
	var errs []error
	for _, family := range []string{"ip", "ip6"} {
		if !strings.Contains(string(tables), "table "+family+" kube-proxy\n") {
			continue
		}
		if out, err := exec.CommandContext(ctx, "nft", "delete", "table", family, "kube-proxy").CombinedOutput(); err != nil {
			errs = append(errs, fmt.Errorf("delete netfilter table %s kube-proxy: %w: %s", family, err, bytes.TrimSpace(out)))
		}
	}
	return errors.Join(errs...)
}
