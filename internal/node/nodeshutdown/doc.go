// Package nodeshutdown ends the node's pods in order when the machine goes down: it holds logind's shutdown up, ends groups of pods by
// priority, waits until the API has their last statuses, and lets go.
//
// Contract: Run works until its context ends, also without a bus: it tries again. Down may be called concurrently and does no IO. A shutdown
// that is cancelled ends no further group; what has ended stays ended. Before logind lets the machine go, nobody waits for
// longer than the whole policy and the last statuses.
package nodeshutdown
