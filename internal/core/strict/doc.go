// Package strict compares decoded YAML or JSON with the Go type that it is meant for, and reports what does not fit: unknown fields,
// with a similar known one, and values of a wrong type. The usual decoders stop at the first problem, and do not report the field of a
// bad quantity.
//
// It is pure, and used for manifests and configuration files.
package strict
