package crimethod_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/wherry-node/wherry/internal/core/crimethod"
)

// Each name passes the check, among them those of the image service and of streams. For a name that is not one, the error has the nearest.
func TestCheck(t *testing.T) {
	t.Parallel()
	names := crimethod.Names()
	if !slices.IsSorted(names) {
		t.Errorf("not sorted: %v", names)
	}
	for _, name := range append([]string{"RunPodSandbox", "PullImage", "GetContainerEvents", "StreamContainers"}, names...) {
		if err := crimethod.Check(name); err != nil || !slices.Contains(names, name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, want := range map[string]string{
		"PulImage":                               `method "PulImage": CRI v1 has no such method; did you mean PullImage?`,
		"pullimage":                              "did you mean PullImage?",
		"RunPodSandox":                           "did you mean RunPodSandbox?",
		"":                                       `method "": CRI v1 has no such method`,
		"runtime.v1.ImageService/Pull":           "(it has PullImage, CreateContainer and others)",
		strings.Repeat("x", crimethod.MaxName+1): "at most 200 bytes",
	} {
		if err := crimethod.Check(name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", name, err, want)
		}
	}
}
