// Package packages makes the files from which the agent is installed: .deb and .rpm packages, a tarball and an OCI image, for
// each architecture.
//
// Two packages are made. The package wherry has the program, its manual, its completion and wherry-kubelet.service, which can exist
// beside kubelet.service. The package wherry-kubelet replaces the package kubelet and has kubelet.service. Both have scripts that
// leave containers alone.
//
// Contract: what is written depends on Source alone, not on the time, the machine, the directory or the order of files.
package packages
