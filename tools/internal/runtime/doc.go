// Package runtime runs a separate containerd for development: its configuration, its data, its CNI network and its end, all
// below one directory.
//
// Contract: instances with different directories, pod subnets and cgroup parents do not disturb each other. Stop removes all of
// the instance's processes, mounts, network namespaces, interfaces, netfilter rules and cgroups, also after a kill -9 of
// containerd. The network is CNI's ptp with nftables. It has no bridge, so nothing is shared, and replies of a Service pass the
// host's netfilter without br_netfilter. Its tables are removed when no instance uses them.
package runtime
