// Package manifest is the language in which people write pods for this node: YAML or JSON, one object or many.
//
// Decode reads a text strictly, completes its pods as the API server would, and names what is wrong by file, line and field.
// Origin.Static gives a pod of a manifest the identity of a static pod.
//
// Contract: functions of their arguments. A text may come from anybody: its size, depth and aliases are bounded.
package manifest
