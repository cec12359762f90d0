// Package packages makes the files from which users install the agent: .deb and .rpm packages, a tarball and an OCI image, for each
// architecture.
//
// There are two packages. wherry has the program, its manual, its shell completion and wherry-kubelet.service, which can be installed
// beside kubelet.service. wherry-kubelet replaces the package kubelet and has kubelet.service. The installation scripts of both packages
// stop no containers.
//
// Contract: the files depend only on Source, not on the time, the machine, the directory or the order of input files.
package packages
