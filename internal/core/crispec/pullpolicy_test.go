package crispec

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
)

func TestDefaultPullPolicy(t *testing.T) {
	t.Parallel()
	digest := "@sha256:" + strings.Repeat("0", 64)
	for image, want := range map[string]v1.PullPolicy{
		"app": v1.PullAlways, "app:latest": v1.PullAlways, "registry.example:5000/app": v1.PullAlways, "app:1": v1.PullIfNotPresent,
		"app" + digest: v1.PullIfNotPresent, "app:1" + digest: v1.PullIfNotPresent, "app:latest" + digest: v1.PullAlways, "NOT an image": v1.PullIfNotPresent,
	} {
		if got := DefaultPullPolicy(image); got != want {
			t.Errorf("%s: %s, want %s", image, got, want)
		}
	}
}
