// Package event sends events to the API server: "Event is a report of an event somewhere in the cluster. Events have a limited
// retention time and triggers and messages may evolve with time" (core/v1).
//
// A repeated event is counted by a PATCH of count, lastTimestamp and message, not created again. If an object has ten events with the
// same reason and different texts, each at most ten minutes after the one before, the tenth and later ones become one event,
// "(combined from similar events)". For one object and type, 25 events are sent at once, and after that one every five minutes.
// Client-go's recorder does the same, but it keeps every event in three caches, has two goroutines per recorder, and makes its
// patches with the OpenAPI schemas of Kubernetes. This one forgets the events of objects that are gone (Forget), and an event that has not
// occurred for a day: if it occurs again, it is a new event. The API server keeps an event for an hour by default.
//
// Contract: Record never blocks and may be called concurrently at any time. Events are dropped before Open, after its context has
// ended, and when the queue is full. The events of one object are sent in their order. There are four requests at a time, so a slow
// request delays only the quarter of the objects whose events share its queue. The goroutines live only while there are events to
// send. The function that Open returns waits for their end. An event is lost if the API server refuses it, or if twelve tries, in two
// minutes, did not reach the server.
//
// A node without an API server uses a Local instead: it keeps the newest 512 events in memory and serves them over HTTP. A node with
// an API server and a console has a Local too, with fewer events, which the console shows.
package event
