// Package nodeshutdown ends the node's pods in order when the machine shuts down: it delays the shutdown through logind, ends
// groups of pods by priority, waits until the API server has their last statuses, and ends the delay.
//
// Contract: Run works until its context ends. While it cannot connect to logind, it tries again. If a connection breaks during a
// shutdown, the shutdown stays delayed and the pods continue to end. A signal from logind is only a hint, so the package asks logind
// whether a shutdown is under way. Down may be called concurrently and does no IO. After a shutdown is cancelled, no further group is
// ended, and pods that have ended are not started again. The shutdown is delayed by at most the time of the whole policy and a bounded
// time for the last statuses. The times of the last shutdown are in a file, so that the metrics have them after the machine's start.
package nodeshutdown
