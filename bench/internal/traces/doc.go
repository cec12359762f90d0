// Package traces tests that an OpenTelemetry collector understands the traces that the agent sends. The test is in this module because the
// root module does not import OpenTelemetry's generated code.
package traces
