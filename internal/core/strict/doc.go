// Package strict compares decoded YAML or JSON with the Go type that it is meant for, and names everything that does not fit: fields that
// do not exist, with the one that may have been meant, and values of a wrong kind. The usual decoders stop at the first, and do not
// say where a bad quantity stands.
//
// It is pure: values in, problems out. Manifests and configuration files are read with it.
package strict
