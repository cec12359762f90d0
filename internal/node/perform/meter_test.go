package perform

import (
	"errors"
	"slices"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// counted is a Meter that counts what these tests check.
type counted struct {
	noMeter
	sleeps, fallbacks int
	volumes           []int // number of image volumes of each call; negative: mounting them failed
}

func (c *counted) SleepCut()     { c.sleeps++ }
func (c *counted) HookFellBack() { c.fallbacks++ }

func (c *counted) ImageVolumes(n int, failed bool) {
	if failed {
		n = -n
	}
	c.volumes = append(c.volumes, n)
}

// Image volumes are counted as mounted when their container was created, and as failed if the runtime reports that it could not
// mount one. After any other error they are not counted.
func TestImageVolumesAreCounted(t *testing.T) {
	t.Parallel()
	image := &runtimeapi.Mount{Image: &runtimeapi.ImageSpec{Image: "i"}}
	for _, c := range []struct {
		mounts []*runtimeapi.Mount
		err    error
		want   []int
	}{
		{[]*runtimeapi.Mount{image, {}, image}, nil, []int{2}},
		{[]*runtimeapi.Mount{image}, errors.New("ImageVolumeMountFailed: no such layer"), []int{-1}},
		{[]*runtimeapi.Mount{image}, errors.New("no space left on device"), nil},
		{[]*runtimeapi.Mount{{}}, nil, nil},
	} {
		m := &counted{}
		New(Config{Meter: m}).countImageVolumes(c.mounts, c.err)
		if !slices.Equal(m.volumes, c.want) {
			t.Errorf("%d mounts, error %v: %v, want %v", len(c.mounts), c.err, m.volumes, c.want)
		}
	}
}
