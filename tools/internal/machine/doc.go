// Package machine looks at what a machine has that a development environment could leave behind: processes of a
// checkout, mounts, interfaces, network namespaces, cgroups, netfilter rules, sysctls, and files at fixed places.
//
// Contract: Take changes nothing. Two snapshots are compared as sets, so that the order of a listing is no difference.
package machine
