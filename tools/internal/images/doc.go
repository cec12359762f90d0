// Package images builds container images without a registry: OCI layouts in tar archives, from files of this machine.
//
// Contract: an archive depends only on its input: the same files give the same digest, on any machine and at any time (times
// are the epoch, and names are sorted). Every reference in a set has its own image ID, because a node agent treats two names of
// one ID as one image.
package images
