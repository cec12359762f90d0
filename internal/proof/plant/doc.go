// Package plant creates, in tests, what a container could put in the place of a file that the node reads: a link, a pipe, a device and so
// on. The product does not import it.
package plant
