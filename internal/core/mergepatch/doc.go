// Package mergepatch builds the strategic merge patch that turns one API object into another. A changed field appears with its
// new value, a removed field with null; maps and structs appear with only the members that differ.
//
// It compares Go values and encodes only the difference. The strategicpatch package of k8s.io/apimachinery encodes both objects
// whole and decodes them again, and it links the OpenAPI schemas of Kubernetes into the binary.
//
// Struct sends every list whole. The API merges some lists by a key ("patchMergeKey"); a caller that has such a list deletes it
// from the result of Struct, and adds the result of Keyed (the difference) or of Replace (the whole list) instead.
//
// Everything here is pure: arguments are not changed, and results share memory with them.
package mergepatch
