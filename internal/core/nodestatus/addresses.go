package nodestatus

import (
	"fmt"
	"net/netip"
	"slices"

	v1 "k8s.io/api/core/v1"
)

// AnnotationProvidedNodeIP gives an external cloud provider the address of --node-ip.
const AnnotationProvidedNodeIP = "alpha.kubernetes.io/provided-node-ip"

// CheckNodeIP returns an error if an address cannot be a node's: other nodes must be able to reach it, and this host
// must have it.
func CheckNodeIP(ip netip.Addr, interfaces []netip.Addr) error {
	ip = ip.Unmap()
	switch {
	case !ip.IsValid():
		return fmt.Errorf("node IP: not an IP address")
	case ip.IsLoopback():
		return fmt.Errorf("node IP %s: a loopback address cannot be reached from other nodes", ip)
	case ip.IsMulticast():
		return fmt.Errorf("node IP %s: is a multicast address", ip)
	case ip.IsLinkLocalUnicast():
		return fmt.Errorf("node IP %s: is a link-local address", ip)
	case ip.IsUnspecified():
		return fmt.Errorf("node IP %s: is no address", ip)
	}
	if !slices.ContainsFunc(interfaces, func(have netip.Addr) bool { return have.Unmap().WithZone("") == ip }) {
		return fmt.Errorf("node IP %s: no network interface of this host has it; set --node-ip to one that is there", ip)
	}
	return nil
}

// setAddresses writes status.addresses and the annotation for cloud providers. If it finds no address, the list stays
// as it is, and it reports the problem.
func (u *update) setAddresses() {
	given := u.s.NodeIPs
	asked := given
	if len(given) == 1 && given[0].IsUnspecified() {
		asked = nil
	}
	if !u.s.TrustNodeIPs {
		for _, ip := range asked {
			if err := CheckNodeIP(ip, u.f.Network.Interfaces); err != nil {
				u.problem(err.Error())
				return
			}
		}
	}
	u.annotateNodeIP(asked)
	st := &u.node.Status
	if u.s.ExternalCloudProvider {
		if len(st.Addresses) > 0 {
			return // the cloud provider has set the addresses
		}
		if len(given) == 0 {
			st.Addresses = []v1.NodeAddress{{Type: v1.NodeHostName, Address: u.s.Hostname}}
			return
		}
	}
	ips := asked
	if len(ips) == 0 {
		ip, err := u.findAddress()
		if err != nil {
			u.problem(err.Error())
			return
		}
		ips = []netip.Addr{ip}
	}
	st.Addresses = nil
	for _, ip := range ips {
		st.Addresses = append(st.Addresses, v1.NodeAddress{Type: v1.NodeInternalIP, Address: ip.Unmap().String()})
	}
	st.Addresses = append(st.Addresses, v1.NodeAddress{Type: v1.NodeHostName, Address: u.s.Hostname})
}

func (u *update) annotateNodeIP(asked []netip.Addr) {
	if !u.s.ExternalCloudProvider || len(asked) == 0 {
		delete(u.node.Annotations, AnnotationProvidedNodeIP)
		return
	}
	value := asked[0].Unmap().String()
	for _, ip := range asked[1:] {
		value += "," + ip.Unmap().String()
	}
	if u.node.Annotations == nil {
		u.node.Annotations = map[string]string{}
	}
	u.node.Annotations[AnnotationProvidedNodeIP] = value
}

// findAddress looks for the node's address as upstream's kubelet does if nothing is configured. It tries, in this order, a host
// name that is an address, the addresses of the node's name, and the address on the default route. It prefers IPv4, unless
// --node-ip is "::".
func (u *update) findAddress() (netip.Addr, error) {
	prefer4 := len(u.s.NodeIPs) == 0 || u.s.NodeIPs[0].Unmap().Is4()
	if ip, err := netip.ParseAddr(u.s.Hostname); err == nil {
		return ip, nil
	}
	var other netip.Addr
	for _, ip := range u.f.Network.Resolved {
		if CheckNodeIP(ip, u.f.Network.Interfaces) != nil {
			continue
		}
		if ip.Unmap().Is4() == prefer4 {
			return ip, nil
		}
		if !other.IsValid() {
			other = ip
		}
	}
	if other.IsValid() {
		return other, nil
	}
	routes := []netip.Addr{u.f.Network.DefaultV4, u.f.Network.DefaultV6}
	if !prefer4 {
		slices.Reverse(routes)
	}
	for _, ip := range routes {
		if ip.IsValid() {
			return ip, nil
		}
	}
	return netip.Addr{}, fmt.Errorf("find an address for node %s: its name resolves to none of this host's addresses and there is no default route; set --node-ip", u.s.Name)
}
