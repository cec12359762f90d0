package crispec

import (
	"cmp"
	"fmt"
	"net/netip"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/wherry-node/wherry/internal/core/pod"
)

// The limits of resolvers, as Kubernetes states them for pods.
const (
	maxNameservers = 3
	maxSearches    = 32
	maxSearchChars = 2048
)

// Warning is a problem that a user should see as an event; the configuration still works.
type Warning struct {
	Reason  string // the reason of the event
	Message string
	Node    string // text of an additional event on the node; "": none
}

// DNSInput is the input of DNS.
type DNSInput struct {
	Pod           *v1.Pod
	ClusterDNS    []string
	ClusterDomain string
	// Host is the node's resolver configuration (ParseResolvConf of the file in resolvConf). It is nil if resolvConf is
	// empty: then pods get no DNS servers of the host.
	Host *runtimeapi.DNSConfig
	// NodeIPs show whether the node has IPv4, IPv6 or both. They are used if Host is nil.
	NodeIPs []string
}

// DNS returns the resolver configuration that a pod's dnsPolicy and dnsConfig ask for. It leaves out nameservers and search paths
// beyond the limits, with a warning. A ClusterFirst pod on a node without a cluster DNS gets the Default policy, with a warning.
func DNS(in DNSInput) (*runtimeapi.DNSConfig, []Warning) {
	var warnings []Warning
	c := &runtimeapi.DNSConfig{}
	switch in.policy() {
	case v1.DNSNone:
	case v1.DNSDefault:
		in.fromHost(c)
	default:
		if len(in.ClusterDNS) == 0 {
			text := fmt.Sprintf("kubelet does not have ClusterDNS IP configured and cannot create Pod using %q policy. Falling back to %q policy.",
				v1.DNSClusterFirst, v1.DNSDefault)
			if !pod.IsStatic(in.Pod) { // a static pod may not need the cluster's DNS
				who := fmt.Sprintf("%s_%s(%s)", in.Pod.Name, in.Pod.Namespace, in.Pod.UID)
				warnings = append(warnings, Warning{Reason: "MissingClusterDNS", Node: text, Message: fmt.Sprintf("pod: %q. %s", who, text)})
			}
			in.fromHost(c)
			break
		}
		c.Servers = append(c.Servers, in.ClusterDNS...)
		if d := in.ClusterDomain; d != "" {
			c.Searches = append(c.Searches, in.Pod.Namespace+".svc."+d, "svc."+d, d)
		}
		c.Searches = unique(append(c.Searches, in.Host.GetSearches()...))
		c.Options = []string{"ndots:5"}
	}
	if extra := in.Pod.Spec.DNSConfig; extra != nil {
		c.Servers = unique(append(c.Servers, extra.Nameservers...))
		c.Searches = unique(append(c.Searches, extra.Searches...))
		c.Options = setOptions(c.Options, podOptions(extra.Options))
	}
	return c, append(warnings, fitLimits(c)...)
}

func (in *DNSInput) policy() v1.DNSPolicy {
	switch p := in.Pod.Spec.DNSPolicy; p {
	case v1.DNSNone, v1.DNSDefault:
		return p
	case v1.DNSClusterFirstWithHostNet:
		return v1.DNSClusterFirst
	default: // ClusterFirst, or empty if no API server set the default
		if in.Pod.Spec.HostNetwork {
			return v1.DNSDefault
		}
		return v1.DNSClusterFirst
	}
}

func (in *DNSInput) fromHost(c *runtimeapi.DNSConfig) {
	if in.Host != nil {
		c.Servers = append(c.Servers, in.Host.Servers...)
		c.Searches = append(c.Searches, in.Host.Searches...)
		c.Options = append(c.Options, in.Host.Options...)
		return
	}
	// The list names the loopback address, because with an empty list the runtime would use the host's resolv.conf.
	for _, s := range in.NodeIPs {
		if ip, err := netip.ParseAddr(s); err == nil && ip.Is6() && !ip.Is4In6() {
			c.Servers = append(c.Servers, "::1")
		} else {
			c.Servers = append(c.Servers, "127.0.0.1")
		}
	}
	if len(c.Servers) == 0 {
		c.Servers = []string{"127.0.0.1"}
	}
	c.Searches = []string{"."}
}

// podOptions returns the options of a dnsConfig in the form of a resolv.conf.
func podOptions(list []v1.PodDNSConfigOption) []string {
	out := make([]string, len(list))
	for i, o := range list {
		if out[i] = o.Name; o.Value != nil && *o.Value != "" {
			out[i] += ":" + *o.Value
		}
	}
	return out
}

// setOptions adds options to a list. An option replaces an earlier option of the same name, and takes the place of that option in
// the list. A pod may have very many options, so they are found by an index.
func setOptions(have, more []string) []string {
	at := make(map[string]int, len(have)+len(more))
	for i, o := range have {
		name, _, _ := strings.Cut(o, ":")
		at[name] = i
	}
	for _, o := range more {
		name, _, _ := strings.Cut(o, ":")
		if i, ok := at[name]; ok {
			have[i] = o
			continue
		}
		at[name] = len(have)
		have = append(have, o)
	}
	return have
}

func fitLimits(c *runtimeapi.DNSConfig) []Warning {
	var warnings []Warning
	if len(c.Servers) > maxNameservers {
		c.Servers = c.Servers[:maxNameservers]
		warnings = append(warnings, Warning{Reason: "DNSConfigForming", Message: "Nameserver limits were exceeded, " +
			"some nameservers have been omitted, the applied nameserver line is: " + strings.Join(c.Servers, " ")})
	}
	// Some resolvers abort if a search path is longer than 255 characters. An entry that is longer than the maximum of a DNS subdomain
	// is not a valid name.
	var kept []string
	chars := 0
	for i, s := range c.Searches {
		if i == maxSearches {
			break
		}
		if len(s) > validation.DNS1123SubdomainMaxLength {
			continue
		}
		if len(kept) > 0 {
			chars++
		}
		chars += len(s)
		if chars > maxSearchChars {
			break
		}
		kept = append(kept, s)
	}
	if len(kept) < len(c.Searches) {
		warnings = append(warnings, Warning{Reason: "DNSConfigForming", Message: "Search Line limits were exceeded, " +
			"some search paths have been omitted, the applied search line is: " + strings.Join(kept, " ")})
	}
	c.Searches = kept
	return warnings
}

func unique(in []string) []string {
	seen := map[string]bool{}
	out := in[:0:0]
	for _, s := range in {
		if !seen[s] {
			seen[s] = true
			out = append(out, s)
		}
	}
	return out
}

// ParseResolvConf parses a resolv.conf. All nameservers count, but only the last search line, and only the last value
// of each option. With an error, it returns the configuration without the invalid lines.
func ParseResolvConf(data []byte) (*runtimeapi.DNSConfig, error) {
	c, invalid := &runtimeapi.DNSConfig{}, error(nil)
	for i, line := range strings.Split(string(data), "\n") {
		fields := strings.Fields(line)
		if len(fields) == 0 || fields[0][0] == '#' || fields[0][0] == ';' {
			continue
		}
		switch fields[0] {
		case "nameserver":
			if len(fields) < 2 {
				invalid = cmp.Or(invalid, fmt.Errorf("resolv.conf line %d: nameserver without an address", i+1))
				continue
			}
			c.Servers = append(c.Servers, fields[1])
		case "search":
			c.Searches = nil
			for _, s := range fields[1:] {
				if s != "." {
					c.Searches = append(c.Searches, strings.TrimSuffix(s, "."))
				}
			}
		case "options":
			c.Options = setOptions(c.Options, fields[1:])
		}
	}
	return c, invalid
}

// ResolvConfWarning returns the text of a node event if the node's search list is too long, otherwise "". A pod's search list contains
// the domains of the node and of the cluster, and some resolvers limit its length.
func ResolvConfWarning(path string, c *runtimeapi.DNSConfig, clusterDomain string) string {
	domains := maxSearches
	if clusterDomain != "" {
		domains -= 3 // a pod also searches its namespace's domain, the domain of services, and the cluster's domain
	}
	if len(c.Searches) > domains {
		return fmt.Sprintf("Resolv.conf file '%s' contains search line consisting of more than %d domains!", path, domains)
	}
	for _, s := range c.Searches {
		if len(s) > validation.DNS1123SubdomainMaxLength {
			return fmt.Sprintf("Resolv.conf file %q contains a search path which length is more than allowed %d chars!", path, validation.DNS1123SubdomainMaxLength)
		}
	}
	if len(strings.Join(c.Searches, " ")) > maxSearchChars {
		return fmt.Sprintf("Resolv.conf file '%s' contains search line which length is more than allowed %d chars!", path, maxSearchChars)
	}
	return ""
}
