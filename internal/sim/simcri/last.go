package simcri

import (
	"reflect"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// last has the last messages of some types that the runtime kept. Pods of one workload often have equal ones, and then share them, which saves
// memory. The runtime never modifies such a message.
type last struct {
	namespaces *runtimeapi.NamespaceOption
	spec       *runtimeapi.ImageSpec
	resources  *runtimeapi.LinuxContainerResources
	// These are the keys of labels and annotations.
	containerLabels, containerAnnotations, sandboxLabels, sandboxAnnotations *[]string
}

// same returns *last if it is equal to m, and otherwise m, which then becomes *last. The caller holds the lock.
func same[M any](last **M, m *M) *M {
	if !equal(reflect.ValueOf(*last), reflect.ValueOf(m)) {
		*last = m
	}
	return *last
}

// equal reports whether the exported fields of two messages are equal. proto.Equal needs the descriptors of all messages of CRI, which take
// 300 KiB.
func equal(a, b reflect.Value) bool {
	switch a.Kind() {
	case reflect.Pointer:
		if a.IsNil() || b.IsNil() {
			return a.IsNil() && b.IsNil()
		}
		return equal(a.Elem(), b.Elem())
	case reflect.Struct:
		for i := range a.NumField() {
			if a.Type().Field(i).IsExported() && !equal(a.Field(i), b.Field(i)) {
				return false
			}
		}
		return true
	case reflect.Slice:
		if a.Len() != b.Len() {
			return false
		}
		for i := range a.Len() {
			if !equal(a.Index(i), b.Index(i)) {
				return false
			}
		}
		return true
	default:
		return reflect.DeepEqual(a.Interface(), b.Interface())
	}
}
