package plane

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"text/template"

	"github.com/wherry-node/wherry/controlplane/internal/pki"
)

// In its nftables mode kube-proxy keeps all rules in tables of its own, which are easy to remove. The limits of connection tracking are 0,
// so that kube-proxy leaves those of the machine unchanged.
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

// recordTables stores which netfilter tables exist before kube-proxy starts.
func (c *Config) recordTables() error {
	path := c.path("netfilter.before")
	if _, err := os.Stat(path); err == nil {
		return nil // an earlier run, which was killed, wrote the file before kube-proxy created its tables
	}
	tables, err := netfilterTables(context.Background())
	if err != nil {
		return err
	}
	return pki.WriteFile(path, []byte(strings.Join(tables, "\n")), 0o644)
}

// removeProxyRules deletes the tables of kube-proxy, unless they existed before it started. It also deletes empty tables that kube-proxy
// creates when it searches for old iptables rules. A missing table is no error.
func (c *Config) removeProxyRules(ctx context.Context) error {
	tables, err := netfilterTables(ctx)
	if err != nil {
		return err
	}
	path := c.path("netfilter.before")
	before, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read the list of earlier netfilter tables: %w", err)
	}
	var errs []error
	for _, table := range tables {
		family, name, _ := strings.Cut(table, " ")
		switch {
		case slices.Contains(strings.Split(string(before), "\n"), table):
			continue
		case name == "kube-proxy" && (family == "ip" || family == "ip6"):
		case !void(ctx, family, name):
			continue
		}
		if out, err := exec.CommandContext(ctx, "nft", "delete", "table", family, name).CombinedOutput(); err != nil {
			errs = append(errs, fmt.Errorf("delete netfilter table %s: %w: %s", table, err, bytes.TrimSpace(out)))
		}
	}
	if len(errs) == 0 {
		errs = append(errs, os.Remove(path))
	}
	return errors.Join(errs...)
}

// void reports whether a table is one of iptables and has no chain, so that it has no effect.
func void(ctx context.Context, family, name string) bool {
	if (family != "ip" && family != "ip6") || !slices.Contains([]string{"nat", "filter", "mangle", "raw"}, name) {
		return false
	}
	listing, err := exec.CommandContext(ctx, "nft", "list", "table", family, name).Output()
	return err == nil && !strings.Contains(string(listing), "chain ")
}

// netfilterTables returns the netfilter tables, each as "FAMILY NAME".
func netfilterTables(ctx context.Context) ([]string, error) {
	listing, err := exec.CommandContext(ctx, "nft", "list", "tables").Output()
	if err != nil {
		return nil, fmt.Errorf("list netfilter tables: %w", err)
	}
	var tables []string
	for line := range strings.SplitSeq(string(listing), "\n") {
		if table, ok := strings.CutPrefix(line, "table "); ok {
			tables = append(tables, table)
		}
	}
	return tables, nil
}
