package inorder

import "sort"

// Sort sorts the list. compare returns a negative number if a comes before b, and 0 if they are equal; equal elements keep their order.
func Sort[T any](list []T, compare func(a, b T) int) {
	if len(list) < 2 { // as most lists of a pod's containers are: no allocation
		return
	}
	sort.SliceStable(list, func(i, j int) bool { return compare(list[i], list[j]) < 0 })
}
