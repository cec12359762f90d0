package dev

import (
	"bytes"
	"context"
	_ "embed"
	"net"
	"net/netip"
	"os"
	"strings"
	"text/template"
	"time"

	"github.com/wherry-node/wherry/tools/internal/images"
)

// dnsAddress is the ClusterIP of the cluster's DNS server, from the range of Services 10.96.0.0/12. kubeadm uses the same address.
const dnsAddress = "10.96.0.10"

//go:embed dns.yaml
var dnsText string

// dnsObjects is a template for the Kubernetes objects of the cluster's DNS server.
var dnsObjects = template.Must(template.New("dns").Parse(dnsText))

// dns reports whether the cluster has a DNS server. With the simulated runtime it has none, because the DNS server is a pod and needs a
// real container.
func (e *Env) dns(s *state) bool {
	return !e.Bare && !e.SkipDNS && s.Runtime != runtimeSimulated
}

// nodeDNS returns the address of the DNS server for the node's clusterDNS; "" without a DNS server. With the simulated runtime the pods get
// the address too, although nothing answers there.
func (e *Env) nodeDNS() string {
	if e.Bare || e.SkipDNS {
		return ""
	}
	return dnsAddress
}

// installDNS creates the Kubernetes objects of the DNS server. Its pod is Pending until the cluster has a node.
func (e *Env) installDNS(ctx context.Context, s *state) error {
	if !e.dns(s) {
		return nil
	}
	var b bytes.Buffer
	if err := dnsObjects.Execute(&b, map[string]any{
		"Address": dnsAddress, "Image": images.CoreDNS, "Forward": hasNameserver(resolvConf()),
	}); err != nil {
		return err
	}
	file := e.path("run", "dns.yaml")
	if err := os.WriteFile(file, b.Bytes(), 0o644); err != nil {
		return err
	}
	_, err := e.kubectl(ctx, "apply", "-f", file)
	return err
}

// awaitDNS waits until the DNS server answers at dnsAddress.
func (e *Env) awaitDNS(ctx context.Context, s *state) error {
	if !e.dns(s) || !s.Proxy {
		return nil
	}
	const name = "kubernetes.default.svc.cluster.local"
	ask := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, net.JoinHostPort(dnsAddress, "53"))
	}}
	var found []string
	err := e.await(ctx, "the cluster's DNS", 2*time.Minute, func(ctx context.Context) (bool, string) {
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		var err error
		if found, err = ask.LookupHost(ctx, name); err != nil {
			return false, err.Error()
		}
		return true, ""
	})
	if err == nil {
		e.say("the cluster's DNS answers at %s: %s is %s", dnsAddress, name, strings.Join(found, ", "))
	}
	return err
}

// resolvConf returns the path of a resolv.conf of the machine with DNS servers that pods can reach. That is not /etc/resolv.conf if it
// names only systemd-resolved, which listens on loopback.
func resolvConf() string {
	const usual, resolved = "/etc/resolv.conf", "/run/systemd/resolve/resolv.conf"
	if _, err := os.Stat(resolved); err == nil && !hasNameserver(usual) {
		return resolved
	}
	return usual
}

// hasNameserver reports whether a resolv.conf names a DNS server that is not on loopback.
func hasNameserver(file string) bool {
	text, err := os.ReadFile(file)
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) < 2 || fields[0] != "nameserver" {
			continue
		}
		if addr, err := netip.ParseAddr(fields[1]); err == nil && !addr.IsLoopback() {
			return true
		}
	}
	return false
}
