// Package podset holds the pods that the sources want on this node, merged into one set of desired pods.
//
// Contract: the set holds states, not events. A source stores its newest objects, and a reader gets the newest object of a UID.
// The notification carries only the UID. Safe for concurrent use. Objects are shared and must not be changed. Each pod in the set
// is marked with the source that it came from (pod.From), whatever its author wrote into it. Mirror pods are kept separately,
// because they only show static pods in the API and never decide what runs.
package podset
