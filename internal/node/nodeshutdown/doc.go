// Package nodeshutdown ends the node's pods in order when the machine shuts down: it delays the shutdown through logind, ends
// groups of pods by priority, waits until the API server has their last statuses, and ends the delay.
//
// Contract: Run works until its context ends, and tries again while there is no bus. If a connection breaks, the delay of the
// machine and the end of the pods continue. A signal is only a hint, and logind is asked whether a shutdown is under way. Down
// may be called concurrently and does no IO. After a shutdown is cancelled, no further group is ended, and pods that have ended
// are not started again. The shutdown is delayed by at most the time of the whole policy and a bounded time for the last
// statuses.
package nodeshutdown
