// Package dev is the development environment of one checkout: a control plane, a container runtime, one Wherry node and
// an example that runs on it.
//
// Contract: all files are below Options.Dir (CHECKOUT/.wherry) and CHECKOUT/bin (programs). Up is idempotent: it does not touch
// parts that already run. Down ends all processes by the PIDs that Up stored, removes mounts, interfaces, network namespaces,
// cgroups and netfilter rules, and restores sysctls. It uses only the files on disk, so it also works after a crash and may be
// repeated. Logs of the last run stay in .wherry/logs.
//
// Without root, or if no runtime can run, the node uses the simulated runtime, and Up prints this.
package dev
