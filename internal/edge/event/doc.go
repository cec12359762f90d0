// Package event tells the API server of what happens: "Event is a report of an event somewhere in the cluster. Events have a
// limited retention time and triggers and messages may evolve with time" (core/v1).
//
// The same event again is counted, not written again: a PATCH of count, lastTimestamp and message. Of one object, more than ten
// texts of one reason within ten minutes become one event, "(combined from similar events)". Of one object and type, 25 events are
// written at once, and then one each five minutes. These are the habits of client-go's recorder, which keeps every event whole in
// three caches, has two goroutines per recorder, and makes its patches with the OpenAPI schemas of Kubernetes.
//
// Contract: Record never blocks and may be called concurrently at any time; before Open, after its context has ended, and when the
// queue is full, events are dropped. Those of one object are sent in their order; one that an API server takes long over holds up
// a quarter of the others, not all: there are four requests at a time, by goroutines that live as long as there is one to send.
// What Open returns waits for their end. An event is lost when the API server refuses it, and after twelve tries of two minutes in
// all when it cannot be reached.
//
// A node without an API server has a Local in its place: the newest 512 events, in memory, and an endpoint that serves them.
package event
