// Package cri is the edge to a container runtime: it calls CRI v1 and returns the types of package pod.
//
// It calls the runtime through the two generated clients (RuntimeServiceClient, ImageServiceClient). These use a Unix socket for a real
// runtime (Dial), and call a simulated runtime in the same process. Client adds a deadline for each call, functions that say what kind of
// error it was (IsNotFound, IsUnknown), and the conversion to pod.Observed.
//
// Contract: a Client is safe for concurrent use and starts no goroutine. Besides its configuration it keeps only which
// containers were resized since their last inspection.
package cri
