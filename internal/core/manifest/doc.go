// Package manifest reads the manifests that people write for this node: YAML or JSON, one object or many.
//
// Decode reads a text strictly, completes its pods as the API server would, and reports errors by file, line and field.
// Origin.Static gives a pod of a manifest the identity of a static pod.
//
// Contract: pure functions. A text may come from anybody, so its size, depth and aliases are bounded.
package manifest
