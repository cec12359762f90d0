// Package imagegc removes unused images: some of them when the file system of the images becomes too full, those that were not used
// for a long time, and all of them when the node is short of disk space (package evictor). evict.Images chooses the images.
//
// Contract: an image is in use if a container has it, dead or alive, or if a pod of this node that has not ended names it for a
// container or an image volume, because the pod may start again. These images are never removed: an image that the runtime has
// pinned, one that the configuration names, and one that is being pulled. A file below the root directory stores when images were
// last used, so that the next agent knows it. Collections do not overlap. The removal of an image that fails is logged once, and
// tried again at the next collection.
package imagegc
