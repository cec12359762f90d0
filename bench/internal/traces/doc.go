// Package traces tests that a collector of OpenTelemetry understands the traces that an agent sends. The test is here because the root
// module does not import OpenTelemetry's generated code.
package traces
