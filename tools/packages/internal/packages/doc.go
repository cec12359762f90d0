// Package packages makes what the agent is installed from: .deb and .rpm packages, a tarball and an OCI image, for each architecture.
//
// Two packages are made. wherry has the program, its manual, its completion and a unit that stands beside a kubelet's;
// wherry-kubelet takes the place of the package kubelet and has that unit. Both have scripts that leave containers alone.
//
// Contract: what is written is a function of Source alone: neither the time, the machine, the directory nor the order of files is
// in it.
package packages
