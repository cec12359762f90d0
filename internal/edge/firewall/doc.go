// Package firewall blocks packets from other hosts to 127.0.0.0/8 of this host (CVE-2020-8558), as upstream's kubelet does.
//
// A program on the machine (kube-proxy, for NodePorts on localhost) may set net.ipv4.conf.*.route_localnet. Then any host on
// the node's network, and any pod with NET_RAW, can send packets to the node's loopback addresses and reach services that trust
// them. The rule drops a packet to 127.0.0.0/8 from another source address, unless it belongs to a connection that was
// accepted, or was redirected by DNAT.
//
// Contract: Run adds the rules and checks every CheckEvery that they are still there, because flushing the tables removes them.
// It runs iptables, or nft if no iptables works, and nothing else. Each program has a timeout and a bound on its output. The
// rules stay when Run ends: the node is protected while its agent is restarted, and a second agent on the machine needs the
// same rules.
//
// Invariants:
//   - Ensure changes nothing if all rules are in place, and never touches a rule that it did not add.
//   - In iptables the rules look like those of upstream's kubelet and kube-proxy: the chain KUBE-FIREWALL in the table filter with one
//     rule, reached from INPUT and OUTPUT. The chains KUBE-IPTABLES-HINT and KUBE-KUBELET-CANARY in the table mangle, of both
//     families, have no rules: they show other programs which variant of iptables the machine uses.
//   - IPv6 needs no rule: its loopback address is never routed.
package firewall
