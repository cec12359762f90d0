// Package cri is the edge to a container runtime: it speaks CRI v1 and hands back the vocabulary of package pod.
//
// The port is the pair of generated clients (RuntimeServiceClient, ImageServiceClient): over a Unix socket for a
// real runtime (Dial), in process for a simulated one. Client adds what every caller wants: a deadline for each
// call, errors with a class, and conversion to pod.Observed.
//
// Contract: safe for concurrent use; starts no goroutine; keeps nothing but its configuration.
package cri
