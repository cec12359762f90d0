package fleet

import (
	"testing"
	"testing/synctest"
)

// While a Node that the fleet should not have is being removed, no node of its name starts, and its slice is not released: otherwise the removal
// would delete the Node of a node that runs.
func TestRemovalOfANodeBeforeItsStart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newClaims(t)
		f, name := b.f, "f-node-21"
		slice := sliceOf(name, len(f.held))
		f.readiness(map[string]bool{name: false})
		f.setHeld(slice, true)
		gone := f.surplus()
		if !gone[name] || len(gone) != 1 {
			t.Fatalf("nodes to remove: %v", gone)
		}
		if !f.busy()[slice] {
			t.Error("the slice may be released while one of its Nodes is being removed")
		}
		if err := f.changeWant(func([]int) ([]int, error) { return []int{21}, nil }); err != nil {
			t.Fatal(err)
		}
		if f.startAll(0, true); f.nodes[name] != nil {
			t.Error("a node starts whose Node is being removed")
		}
		f.removeSurplus(gone)
		if f.busy()[slice] {
			t.Error("the slice is busy after the removal")
		}
		if f.startAll(0, true); f.nodes[name] == nil {
			t.Error("the node does not start after the removal")
		}
		f.endAll()
	})
}
