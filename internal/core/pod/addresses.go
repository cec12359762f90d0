package pod

import (
	"net/netip"
	"slices"
	"strings"
)

// Addresses returns the addresses that a pod has for the API, of those that the runtime reports for its sandbox: at most one of each family, the
// one of the family of the node's primary address first. node are the node's addresses, the primary one first. A runtime has an order of its own,
// and a network plugin may give a pod several addresses of one family.
func Addresses(ips, node []string) []string {
	primaryV6 := len(node) > 0 && strings.Contains(node[0], ":")
	var first, second string
	for _, text := range ips {
		ip, err := netip.ParseAddr(text)
		if err != nil || ip.Zone() != "" {
			continue
		}
		ip = ip.Unmap()
		switch primary := ip.Is6() == primaryV6; {
		case primary && first == "":
			first = ip.String()
		case !primary && second == "":
			second = ip.String()
		}
	}
	return slices.DeleteFunc([]string{first, second}, func(ip string) bool { return ip == "" })
}
