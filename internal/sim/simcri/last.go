package simcri

import (
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// last has the last messages of some types that the runtime kept. Pods of one workload often have equal ones, and then share them, which saves
// memory. The runtime never modifies such a message.
type last struct {
	namespaces *runtimeapi.NamespaceOption
	spec       *runtimeapi.ImageSpec
	resources  *runtimeapi.LinuxContainerResources
}

// same returns *last if it is equal to m, and otherwise m, which then becomes *last. The caller holds the lock.
func same[M proto.Message](last *M, m M) M {
	if !proto.Equal(*last, m) {
		*last = m
	}
	return *last
}
