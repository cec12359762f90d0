// Package offline starts a node without its API server, and keeps the record that such a start needs.
//
//	          no answer within After,            the API server
//	          and the record can be used            answers
//	waiting ─────────────────────────────► offline ────────► keeping
//	   └──────────────────────────────────────────────────────▲
//	                    the API server answers
//
// In the state waiting, the Keeper decides whether the node starts from the record (package lastknown). The node does not start from the
// record if the API server answers but refuses the node: a node without rights runs no pods from a record. While the node is offline, pods
// and all objects that they refer to come from the record, and the record is not changed. When the API server answers, its answers replace
// the record: the pod set takes the listed pods, watches deliver the newest objects, and reads send requests again. From then on the Keeper
// keeps the record up to date: it writes soon after a change, then at most every writeEvery, and when the agent ends.
//
// Contract: New starts nothing. Run blocks, and waits for the goroutines that it started. Changed, Contact and the methods that read may be
// called from any goroutine and never block.
//
// Invariants:
//  1. Nothing is stopped or cleaned up because of the record: its source counts as one that has not answered.
//  2. The record changes only after the API server has answered this agent.
//  3. Without an answer of the API server no read sends a request, so that a network that swallows packets delays no pod.
package offline
