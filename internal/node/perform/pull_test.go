package perform

import (
	"context"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/edge/image"
)

// stalling is a node whose pulls stall, and end well later.
type stalling struct{}

func (stalling) Ensure(_ context.Context, r image.Request) (image.Result, *image.Error) {
	r.Pulling()
	r.Stalled("no data has arrived for 2m0s")
	return image.Result{Ref: "sha256:1", Image: &runtimeapi.Image{Id: "sha256:1"}, Pulled: true}, nil
}

// A pull that stalls has an event that names the image and says since when nothing happens. The pull goes on.
func TestAPullThatStallsHasAnEvent(t *testing.T) {
	t.Parallel()
	events := &messages{}
	x := New(Config{Images: stalling{}, Recorder: events})
	p := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "main", Image: "app:1"}}}}
	out := x.Do(t.Context(), pod.Job{Pod: p, Action: pod.Action{Op: pod.OpPullImage, Container: "main"}})
	if out.Err != nil || out.ID != "sha256:1" {
		t.Errorf("the outcome is %+v", out)
	}
	if want := `Still pulling image "app:1": no data has arrived for 2m0s`; !slices.Contains(events.messages, want) {
		t.Errorf("events %q, want %q", events.messages, want)
	}
}
