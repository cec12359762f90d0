// Package plant creates, in tests, the things by which a container could replace a file that the node reads: a link, a pipe, a
// device. The product does not import it.
package plant
