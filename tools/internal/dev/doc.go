// Package dev is the development environment of one checkout: a control plane, a container runtime, one Wherry node and
// an example that runs on it.
//
// Contract: everything lies below Options.Dir (CHECKOUT/.wherry) and CHECKOUT/bin (programs). Up is idempotent: what runs
// already is left alone. Down ends everything by the pids that Up wrote down and removes mounts, interfaces, network
// namespaces, cgroups, netfilter rules and changed sysctls; it works from what lies on disk, also after a crash, and
// may be repeated. Logs of the last run stay in .wherry/logs.
//
// Without root, or where no runtime can run, the node runs over the simulated runtime, and Up says so.
package dev
