// Package trace records how pods start as traces of OpenTelemetry, and sends them to a collector.
//
// A pod's start is one trace: its root begins with the pod's first action and ends when the pod runs. Each action is a span below
// the root, and each call to the runtime that an action makes is a span below the action. The call carries the trace context
// (https://www.w3.org/TR/trace-context/), so a runtime that traces puts its own spans below ours. An action of a pod that has
// started, such as a restart of a container, is a trace of its own.
//
// Contract: a nil *Tracer and a nil *Span do nothing and allocate nothing, so tracing is switched off by using nil. All memory is
// bounded: the spans that wait for the collector, the pods that have not started, and each text. If the collector hangs or is
// absent, spans are lost and counted, but nothing waits. Safe for concurrent use.
//
// The protocol is OTLP 1 over gRPC, as opentelemetry-proto defines it. The package encodes it itself, because the SDK of
// OpenTelemetry keeps its state in global variables and adds megabytes to the binary.
package trace
