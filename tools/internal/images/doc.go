// Package images builds container images without a registry: OCI layouts in tar archives, made from files of this machine.
//
// Contract: an archive depends only on its input. The same files give the same digest, on any machine and at any time (all times are the
// epoch, and names are sorted). Every reference in a set has an image ID of its own, because a node agent treats two references with one ID
// as one image.
package images
