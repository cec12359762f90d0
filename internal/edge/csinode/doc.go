// Package csinode writes the CSINode object of this node, which tells the cluster which CSI drivers the node has, and the labels and the
// annotation of the Node in which drivers describe the node.
//
// Contract: calls may be concurrent; they change the object one after another. Each call reads the objects first and writes only if
// something differs, so a driver that registers again without a change costs two reads. No state is kept.
package csinode
