// Package nodefacts measures the node: the machine, the runtime, the signals of pressure. It turns them into the Facts
// from which package nodestatus makes the Node object, and so is the heartbeat's Source.
//
// Contract: what does not change is read once; what changes is read when a status is computed, and kept for a moment
// because a starting node computes ten times a second. What cannot be measured is said, never assumed.
package nodefacts
