// Package sysctl restores the kernel settings that a node changes on the machine it runs on.
package sysctl

import (
	"errors"
	"fmt"
	"os"
	"strings"
)

// names lists the kernel settings that a node agent or kube-proxy may change. IP forwarding is not among them, because another containerd
// may need it; package runtime restores it.
var names = []string{
	"net/ipv4/conf/all/route_localnet", "net/ipv6/conf/all/forwarding",
	"net/bridge/bridge-nf-call-iptables", "net/bridge/bridge-nf-call-ip6tables",
	"net/netfilter/nf_conntrack_max", "net/netfilter/nf_conntrack_tcp_be_liberal",
	"net/netfilter/nf_conntrack_tcp_timeout_established", "net/netfilter/nf_conntrack_tcp_timeout_close_wait",
	"vm/overcommit_memory", "vm/panic_on_oom",
	"kernel/panic", "kernel/panic_on_oops", "kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes",
}

// Read returns the values of the kernel settings that a node agent or kube-proxy may change, by name.
func Read() map[string]string {
	values := map[string]string{}
	for _, name := range names {
		if data, err := os.ReadFile("/proc/sys/" + name); err == nil {
			values[name] = strings.TrimSpace(string(data))
		}
	}
	return values
}

// Restore gives those settings that have changed since Read their values of then.
func Restore(before map[string]string) error {
	now := Read()
	var errs []error
	for name, value := range before {
		if now[name] == value || now[name] == "" {
			continue
		}
		if err := os.WriteFile("/proc/sys/"+name, []byte(value), 0o644); err != nil {
			errs = append(errs, fmt.Errorf("restore sysctl %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}
