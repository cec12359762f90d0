package volume

import (
	"errors"
	"testing"

	"github.com/wherry-node/wherry/internal/core/pod"
)

// If several volumes of a pod fail, what the pod lacks is known nevertheless: a pod that must give up this node does so whichever of its volumes says that, and
// otherwise the reason is that of the first volume, whose failure the message begins with.
func TestSeveralFailuresHaveTheLackThatDecides(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		lacks []pod.Lack
		want  pod.Lack
	}{
		"all volumes are beyond the limit":   {[]pod.Lack{pod.LackVolumeLimit, pod.LackVolumeLimit}, pod.LackVolumeLimit},
		"the last volume is":                 {[]pod.Lack{pod.LackConfigMap, pod.LackVolumeLimit}, pod.LackVolumeLimit},
		"none is, and the first has a claim": {[]pod.Lack{pod.LackClaim, pod.LackSecret}, pod.LackClaim},
		"the first has no known reason":      {[]pod.Lack{pod.LackNone, pod.LackSecret}, pod.LackNone},
	} {
		errs := []*Error{nil} // a volume that was set up
		for _, lack := range c.lacks {
			errs = append(errs, failed("v", &pod.Lacking{What: lack, Err: errors.New("it lacks something")}))
		}
		var got *Error
		if err := joinErrors(errs); !errors.As(err, &got) || got.Lack != c.want {
			t.Errorf("%s: %v, want the lack %v", name, err, c.want)
		}
	}
}
