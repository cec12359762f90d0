// Package work is what is measured: the same pods on a node agent, or the same sandboxes and containers by bare CRI
// calls. A run returns samples by name; it judges nothing.
package work
