package fleet

// SliceLease returns the name of the lease of a node's slice, of a fleet whose template has this many nodes.
func SliceLease(fleet, node string, nodes int) string {
	return sliceLease(fleet, sliceOf(node, slicesOf(nodes)))
}
