package crimethod

import (
	"fmt"
	"slices"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/wherry-node/wherry/internal/core/strict"
)

// Names returns the names of the methods of CRI v1, sorted.
func Names() []string {
	var names []string
	for _, m := range slices.Concat(runtimeapi.RuntimeService_ServiceDesc.Methods, runtimeapi.ImageService_ServiceDesc.Methods) {
		names = append(names, m.MethodName)
	}
	for _, s := range slices.Concat(runtimeapi.RuntimeService_ServiceDesc.Streams, runtimeapi.ImageService_ServiceDesc.Streams) {
		names = append(names, s.StreamName)
	}
	slices.Sort(names)
	return names
}

// MaxName is the largest length of a name in bytes that Check looks up.
const MaxName = 200

// Check returns an error if CRI v1 has no method of this name. The error names the most similar method, if there is one.
func Check(name string) error {
	if len(name) > MaxName {
		return fmt.Errorf("the name of a method has at most %d bytes", MaxName)
	}
	known := Names()
	if _, ok := slices.BinarySearch(known, name); ok {
		return nil
	}
	if meant := strict.Nearest(name, known); meant != "" {
		return fmt.Errorf("method %q: CRI v1 has no such method; did you mean %s?", name, meant)
	}
	return fmt.Errorf("method %q: CRI v1 has no such method (it has PullImage, CreateContainer and others)", name)
}
