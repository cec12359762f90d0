// Package cgroup creates and removes the cgroup above all cgroups of one node, in every hierarchy of the machine.
package cgroup
