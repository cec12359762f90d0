// Package images makes container images without a registry: OCI layouts in tar archives, from files on this machine.
//
// Contract: an archive is a function of its input bytes: same files, same digest, on any machine and at any time
// (times are the epoch, names are sorted). Every reference of an image set has an image ID of its own, because a node
// agent that is told of two names sees one image otherwise.
package images
