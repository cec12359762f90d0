// Package plant plants, in tests, what a container could put where the node looks for a file: a link, a pipe, a device. The
// product does not import it.
package plant
