// Package csinode keeps the CSINode object of this node, which tells the cluster which CSI drivers the node has, and the labels of
// the Node by which drivers say where it is.
//
// Contract: calls may be concurrent; they change the object one after another. Each reads the object first and writes only what
// differs, so that a driver that registers again costs one request. No state is kept.
package csinode
