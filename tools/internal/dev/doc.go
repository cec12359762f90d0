// Package dev is the development environment of one checkout: a control plane, a container runtime, one Wherry node and
// an example that runs on it.
//
// Contract: all files are below Options.Dir (CHECKOUT/.wherry) and CHECKOUT/bin (programs). Up may be repeated: it does not touch parts
// that already run. Down ends all processes by the PIDs that Up stored, removes mounts, interfaces, network namespaces, cgroups and
// netfilter rules, and restores sysctls. Down needs only the files on disk, so it also works after a crash, and it may be repeated. The
// logs of the last run stay in .wherry/logs.
//
// Without root, or if no container runtime can run, the node uses the simulated runtime, and Up prints this.
package dev
