// Package imagegc removes unused images: some of them when the file system of the images becomes too full, those that were not used
// for a long time, and all of them when the node is short of disk space (package evictor). evict.Images chooses the images.
//
// Contract: an image is in use if a container was made from it, running or not, or if a pod of this node that has not ended names it for
// a container or an image volume, because the pod may start again. Images in use are not removed, nor are images that the runtime has
// pinned, that the configuration names, or that are being pulled. A file below the root directory stores when images were last used, for
// the next agent. Collections do not overlap. If an image cannot be removed, its error is logged once, and the next collection tries
// again. The error of a whole collection is logged each time.
package imagegc
