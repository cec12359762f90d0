package criproxy

import (
	"fmt"
	"strings"

	"github.com/wherry-node/wherry/internal/core/crimethod"
)

const (
	// methodEvents is the method whose messages are the events of containers.
	methodEvents = "GetContainerEvents"
	// otherMethod is the name under which calls are counted whose method has a very long name, or is one of too many.
	otherMethod = "(other)"
	// maxMethods bounds the methods that are counted by name, and maxName the length of a name in bytes. Clients make the names.
	maxMethods = 200
	maxName    = 200
)

// nameOf returns the name of a method for people: PullImage for /runtime.v1.ImageService/PullImage, and SERVICE/METHOD for a method of
// another API than CRI. It returns a name for people unchanged.
func nameOf(full string) (name string, ofCRI bool) {
	full = strings.TrimPrefix(full, "/")
	service, method, _ := strings.Cut(full, "/")
	if strings.HasPrefix(service, "runtime.v") {
		return method, true
	}
	return full, false
}

// Methods returns the names of the methods of CRI v1, sorted.
func Methods() []string { return crimethod.Names() }

// CheckMethod returns an error if name is neither a method of CRI v1, nor "", nor a name with its service, such as
// runtime.v1.RuntimeService/RunPodSandbox. A name with its service is not checked: a newer runtime has methods that this package does not
// know.
func CheckMethod(name string) error {
	switch {
	case len(name) > maxName:
		return fmt.Errorf("the name of a method has at most %d bytes", maxName)
	case name == "":
		return nil
	case strings.Contains(name, "/"):
		service, method, _ := strings.Cut(strings.TrimPrefix(name, "/"), "/")
		if service == "" || method == "" { // it would stand for every method
			return fmt.Errorf("method %q: write SERVICE/METHOD", name)
		}
		return nil
	}
	if err := crimethod.Check(name); err != nil {
		return fmt.Errorf("%w; write SERVICE/METHOD for one of a newer CRI", err)
	}
	return nil
}
