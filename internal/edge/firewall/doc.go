// Package firewall keeps other hosts away from 127.0.0.0/8 of this one (CVE-2020-8558), as Kubernetes' kubelet does.
//
// Something on the machine (kube-proxy, for NodePorts on localhost) may set net.ipv4.conf.*.route_localnet. Then whoever
// shares a network with the node, a pod with NET_RAW for one, can send packets to its loopback addresses, and reaches
// services that trust them. The rule drops a packet to 127.0.0.0/8 that does not come from there, unless it belongs to a
// connection that was let in, or was directed there by DNAT.
//
// Contract: Run makes the rules and looks again each CheckEvery whether they are still there: who flushes the tables
// removes them too. It runs iptables, or nft where there is no iptables that works, and nothing else; each program has a
// deadline and a bound on its output. Nothing is removed when Run ends: the node stays protected while its agent is
// restarted, and a second agent on the machine needs the same rules.
//
// Invariants:
//   - Ensure changes nothing where everything is in its place, and never touches a rule that it did not make.
//   - What iptables shows is what Kubernetes' kubelet and kube-proxy make: the chain KUBE-FIREWALL in the table filter
//     with one rule, reached from INPUT and OUTPUT. The chains KUBE-IPTABLES-HINT and KUBE-KUBELET-CANARY in the table
//     mangle, of both families, have no rules: they tell other programs which of the two iptables the machine uses.
//   - IPv6 needs no rule: its loopback address is never routed.
package firewall
