package crispec

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

const (
	maxHostname = 63 // the longest DNS label
	maxFQDN     = 64
)

// Hostname returns the pod's short host name and its domain. The name is spec.hostnameOverride, spec.hostname or the pod's name,
// cut to 63 characters. The domain is <subdomain>.<namespace>.svc.<cluster domain> for a pod with a subdomain and without a
// hostnameOverride, otherwise empty.
func Hostname(p *v1.Pod, clusterDomain string) (name, domain string, err error) {
	if o := p.Spec.HostnameOverride; o != nil {
		if msgs := validation.IsDNS1123Subdomain(*o); len(msgs) > 0 {
			return "", "", sandboxErr("pod HostnameOverride %q is not a valid DNS subdomain: %s", *o, strings.Join(msgs, ";"))
		}
		name, err = cutHostname(p.Name, *o)
		return name, "", err
	}
	name = p.Name
	if h := p.Spec.Hostname; h != "" {
		if msgs := validation.IsDNS1123Label(h); len(msgs) > 0 {
			return "", "", sandboxErr("pod Hostname %q is not a valid DNS label: %s", h, strings.Join(msgs, ";"))
		}
		name = h
	}
	if name, err = cutHostname(p.Name, name); err != nil {
		return "", "", err
	}
	if s := p.Spec.Subdomain; s != "" {
		if msgs := validation.IsDNS1123Label(s); len(msgs) > 0 {
			return "", "", sandboxErr("pod Subdomain %q is not a valid DNS label: %s", s, strings.Join(msgs, ";"))
		}
		domain = fmt.Sprintf("%s.%s.svc.%s", s, p.Namespace, clusterDomain)
	}
	return name, domain, nil
}

func cutHostname(podName, name string) (string, error) {
	if len(name) <= maxHostname {
		return name, nil
	}
	cut := strings.TrimRight(name[:maxHostname], "-.")
	if cut == "" {
		return "", sandboxErr("hostname for pod %q was invalid: %q", podName, name)
	}
	return cut, nil
}

// KernelHostname returns the name that hostname(1) prints in the pod: the short name or, with setHostnameAsFQDN, the
// FQDN. An FQDN of more than 64 characters is an error: "the Pod will remain in Pending status (ContainerCreating)".
func KernelHostname(p *v1.Pod, clusterDomain string) (string, error) {
	name, domain, err := Hostname(p, clusterDomain)
	if err != nil || domain == "" || !isTrue(p.Spec.SetHostnameAsFQDN) {
		return name, err
	}
	fqdn := name + "." + domain
	if len(fqdn) > maxFQDN {
		return "", sandboxErr("failed to construct FQDN from pod hostname and cluster domain, FQDN %s is too long "+
			"(%d characters is the max, %d characters requested)", fqdn, maxFQDN, len(fqdn))
	}
	return fqdn, nil
}

// HostsInput is the input of HostsFile.
type HostsInput struct {
	Pod           *v1.Pod
	PodIPs        []string
	ClusterDomain string
	// NodeHosts is the node's own /etc/hosts, for a pod on the host's network.
	NodeHosts []byte
}

// HostsFile returns the content of the pod's /etc/hosts. The caller mounts it unless the pod mounts something there
// itself. A pod that is not on the host's network gets the file only when its IPs are known.
func HostsFile(in HostsInput) ([]byte, error) {
	var b strings.Builder
	if in.Pod.Spec.HostNetwork {
		b.WriteString("# Kubernetes-managed hosts file (host network).\n")
		b.Write(in.NodeHosts)
	} else {
		name, domain, err := Hostname(in.Pod, in.ClusterDomain)
		if err != nil {
			return nil, err
		}
		b.WriteString("# Kubernetes-managed hosts file.\n" +
			"127.0.0.1\tlocalhost\n" +
			"::1\tlocalhost ip6-localhost ip6-loopback\n" +
			"fe00::0\tip6-localnet\n" +
			"fe00::0\tip6-mcastprefix\n" +
			"fe00::1\tip6-allnodes\n" +
			"fe00::2\tip6-allrouters\n")
		names := name
		if domain != "" {
			names = name + "." + domain + "\t" + name
		}
		for _, ip := range in.PodIPs {
			b.WriteString(ip + "\t" + names + "\n")
		}
	}
	if len(in.Pod.Spec.HostAliases) > 0 {
		b.WriteString("\n# Entries added by HostAliases.\n")
		for _, a := range in.Pod.Spec.HostAliases {
			b.WriteString(a.IP + "\t" + strings.Join(a.Hostnames, "\t") + "\n")
		}
	}
	return []byte(b.String()), nil
}
