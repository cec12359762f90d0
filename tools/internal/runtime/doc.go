// Package runtime runs a containerd of its own for development: its configuration, its data, its CNI network and its
// end, all below one directory.
//
// Contract: instances with different directories, pod subnets and cgroup parents do not meet. Stop leaves none of the
// instance's processes, mounts, network namespaces, interfaces, netfilter rules and cgroups, also after a kill -9 of
// containerd. The network is CNI's ptp (no bridge, hence nothing shared, and replies of a Service pass the host's
// netfilter without br_netfilter) with nftables, whose tables are removed once no instance uses them.
package runtime
