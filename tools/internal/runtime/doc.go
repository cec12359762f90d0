// Package runtime runs a separate containerd for development: it manages the configuration, the data and the CNI network of the instance,
// and its end, all below one directory.
//
// Contract: instances with different directories, pod subnets and cgroup parents do not disturb each other. Stop removes all processes,
// mounts, network namespaces, interfaces, netfilter rules and cgroups of the instance, even after a kill -9 of containerd. The CNI plugin
// is ptp, with nftables: without a bridge, instances share no interface, and replies of a Service pass the host's netfilter without
// br_netfilter. The netfilter tables are removed when no instance uses them.
package runtime
