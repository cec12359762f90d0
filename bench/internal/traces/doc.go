// Package traces receives the traces that a node agent and its container runtime send, and draws the trace of a pod's start. Its test checks
// that an OpenTelemetry collector understands what the agent sends. The package is in this module because the root module does not import
// OpenTelemetry's generated code.
package traces
