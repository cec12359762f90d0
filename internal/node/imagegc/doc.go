// Package imagegc removes images that nothing uses: when the file system of the images becomes too full, when an image was not used
// for long, and all of them when the node is short of disk space (package evictor). Which images go is decided by evict.Images.
//
// Contract: an image is in use if a container has it, dead or alive, or if a pod of this node that has not ended names it, for a
// container or an image volume: the pod may start again. An image that the runtime has pinned, or that the configuration names, is never
// removed, nor one that is being pulled. When an image was last used outlives the agent, in a file below the root directory.
// Collections do not overlap. An image that cannot be removed is said once, and tried again at the next collection.
package imagegc
