// Package mergepatch says what differs between two objects of the API, as a strategic merge patch says it: a field that changed
// by its new value, one that went by null, maps and structs by what differs in them.
//
// It compares Go values, so that only what differs is encoded; k8s.io/apimachinery's strategicpatch encodes both objects whole and
// reads them again, and brings the OpenAPI schemas of Kubernetes into the binary. Lists are sent whole: those that the API
// merges by a key instead ("patchMergeKey") are their caller's to know, who deletes them from what Struct returns and
// adds what Keyed returns, or lets them go whole under Replace.
//
// Everything here is pure: arguments are not changed, and results share memory with them.
package mergepatch
