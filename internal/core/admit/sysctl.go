package admit

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/component-helpers/node/util/sysctl"
)

// safeSysctls maps each sysctl that every pod may set to the first kernel version on which this is safe; "": any version. These
// sysctls have a separate value in each namespace. The map is never changed.
var safeSysctls = map[string]string{
	"kernel.shm_rmid_forced":              "",
	"net.ipv4.ip_local_port_range":        "",
	"net.ipv4.tcp_syncookies":             "",
	"net.ipv4.ping_group_range":           "",
	"net.ipv4.ip_unprivileged_port_start": "",
	"net.ipv4.ip_local_reserved_ports":    "3.16",
	"net.ipv4.tcp_keepalive_time":         "4.5",
	"net.ipv4.tcp_fin_timeout":            "4.6",
	"net.ipv4.tcp_keepalive_intvl":        "4.5",
	"net.ipv4.tcp_keepalive_probes":       "4.5",
	"net.ipv4.tcp_rmem":                   "4.15",
	"net.ipv4.tcp_wmem":                   "4.15",
}

// CheckSysctlPatterns validates allowedUnsafeSysctls. Each entry is the name of a namespaced sysctl, or a prefix of such names followed
// by *. A node does not start with an invalid list.
func CheckSysctlPatterns(patterns []string) error {
	for i, p := range patterns {
		ns, name, prefixed := sysctl.GetNamespace(p)
		star := strings.IndexByte(p, '*')
		switch {
		case p == "" || len(p) > 253 || (star >= 0 && star != len(p)-1):
			return fmt.Errorf("allowedUnsafeSysctls[%d]: %q is not the name of a sysctl, nor a prefix that ends in *", i, p)
		case ns == sysctl.UnknownNamespace:
			return fmt.Errorf("allowedUnsafeSysctls[%d]: the sysctls %q are not known to be namespaced", i, name)
		case prefixed && name == "":
			return fmt.Errorf("allowedUnsafeSysctls[%d]: %q allows everything; name a prefix such as net.core.*", i, p)
		}
	}
	return nil
}

func (in *Input) sysctls() (Result, bool) {
	if in.Pod.Spec.SecurityContext == nil {
		return Result{}, false
	}
	for _, s := range in.Pod.Spec.SecurityContext.Sysctls {
		if why := in.sysctl(s.Name); why != "" {
			return refuse(ReasonSysctl, "forbidden sysctl: %s", why), true
		}
	}
	return Result{}, false
}

// sysctl returns why a sysctl is forbidden, or "".
func (in *Input) sysctl(name string) string {
	name = sysctl.NormalizeName(name)
	ns, allowed := in.allowed(name)
	switch {
	case !allowed:
		return fmt.Sprintf("%q not allowlisted", name)
	case ns == sysctl.IPCNamespace && in.Pod.Spec.HostIPC, ns == sysctl.NetNamespace && in.Pod.Spec.HostNetwork:
		return fmt.Sprintf("%q not allowed with host %s enabled", name, ns)
	}
	return ""
}

func (in *Input) allowed(name string) (sysctl.Namespace, bool) {
	if since, ok := safeSysctls[name]; ok && kernelHas(in.Kernel, since) {
		ns, _, _ := sysctl.GetNamespace(name)
		return ns, true
	}
	for _, pattern := range in.AllowedUnsafeSysctls {
		ns, text, prefixed := sysctl.GetNamespace(pattern)
		if ns != sysctl.UnknownNamespace && (text == name || (prefixed && strings.HasPrefix(name, text))) {
			return ns, true
		}
	}
	return sysctl.UnknownNamespace, false
}

func kernelHas(kernel, since string) bool {
	if since == "" {
		return true
	}
	have, err := version.ParseGeneric(kernel)
	return err == nil && have.AtLeast(version.MustParseGeneric(since))
}
