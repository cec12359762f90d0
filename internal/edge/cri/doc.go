// Package cri is the edge to a container runtime: it calls CRI v1 and returns the types of package pod.
//
// Its port is the pair of generated clients (RuntimeServiceClient, ImageServiceClient): over a Unix socket for a real runtime
// (Dial), in process for a simulated one. Client adds a deadline for each call, errors with a class, and the conversion to
// pod.Observed.
//
// Contract: a Client is safe for concurrent use and starts no goroutine. Besides its configuration it keeps only which
// containers were resized since their last inspection.
package cri
