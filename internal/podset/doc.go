// Package podset holds the pods that the sources want here, merged: one answer to "what is desired".
//
// Contract: a level, not a stream. Writers put the newest object of a source; readers get the newest object of a
// UID; Notify carries a UID and nothing else. Safe for concurrent use. Objects are shared and must not be changed.
// A pod in the set says truly which source it came from (pod.From), whatever its author wrote into it.
// Mirror pods are kept aside: they say what the API shows of a static pod, never what should run.
package podset
