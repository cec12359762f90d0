// Package machine lists everything on a machine that a development environment could leave behind: processes of a checkout,
// mounts, interfaces, network namespaces, cgroups, netfilter rules, sysctls, and files at fixed paths.
//
// Contract: Take changes nothing on the machine. Snapshots are compared as sets: the order of a list does not matter.
package machine
