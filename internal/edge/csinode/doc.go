// Package csinode writes two objects of this node. The CSINode object tells the cluster which CSI drivers the node has. In the labels
// and an annotation of the Node object, drivers describe the node.
//
// Contract: calls may be concurrent; they change the object one after another. Each call reads the objects first and writes only if
// something differs, so a driver that registers again without a change costs two reads. No state is kept.
package csinode
