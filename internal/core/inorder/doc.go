// Package inorder sorts slices whose elements are not pointers, strings or numbers.
//
// The compiler makes slices.SortFunc anew for each type of element that is laid out differently: ten functions, which are about
// 17 KiB of the binary. For the forty types that the agent sorts this was 680 KiB, whose pages count in the memory of each node. Sort makes one
// small function for each type. Slices of pointers, strings and numbers share their functions, so slices.SortFunc is right for them.
package inorder
