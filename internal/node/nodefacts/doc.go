// Package nodefacts measures the node: the machine, the runtime, and the signals of resource pressure. It returns the Facts
// from which package nodestatus builds the Node object. It is the Source of package heartbeat.
//
// Contract: facts that never change are read once. Other facts are read when a status is computed. They are kept for a moment,
// because a starting node computes its status ten times a second. A measurement that fails is reported, never replaced by an
// assumption.
package nodefacts
