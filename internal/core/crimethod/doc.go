// Package crimethod knows the names of the methods of CRI v1. Whoever limits a fault or a latency to one method checks the name here, because a
// name that no method has would silently do nothing.
//
// It is pure.
package crimethod
