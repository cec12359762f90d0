package volume

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// growing is a host on which a volume grows by a byte with each walk. If err is set, a walk fails.
type growing struct {
	Host
	walks  uint64
	err    error
	memory bool // the volume is a file system of its own
}

func (*growing) DiskSpace(string) (capacity, available, inodes, inodesFree uint64, err error) {
	return 100, 50, 100, 50, nil
}

func (g *growing) IsMountPoint(string) (bool, error) { return g.memory, nil }

func (g *growing) DiskUsage(context.Context, string) (bytes, inodes uint64, err error) {
	g.walks++
	return g.walks, 1, g.err
}

// UsageNow walks a volume although the last walk was a second ago, so that the node evicts the pod that fills the disk now. Usage gets the
// result of that walk. A walk that fails is not kept for Usage.
func TestUsageNowIsNotOld(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		host := &growing{}
		var measured []string
		v := New(Config{RootDir: t.TempDir(), Host: host, Measured: func(source string, _ time.Duration) { measured = append(measured, source) }})
		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "uid"}}
		p.Spec.Volumes = []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}}}
		p.Spec.Containers = []v1.Container{{Name: "c", VolumeMounts: []v1.VolumeMount{{Name: "v", MountPath: "/v"}}}}
		for i, step := range []struct {
			measure func(context.Context, *v1.Pod) ([]Usage, error)
			err     error
			want    uint64
		}{{v.Usage, nil, 1}, {v.Usage, nil, 1}, {v.UsageNow, nil, 2}, {v.UsageNow, nil, 3}, {v.Usage, nil, 3}, {v.UsageNow, errors.New("moved"), 4}, {v.Usage, nil, 3}} {
			host.err = step.err
			got, err := step.measure(t.Context(), p)
			if !errors.Is(err, step.err) || len(got) != 1 || got[0].UsedBytes != step.want {
				t.Errorf("step %d: %+v, %v; want %d bytes, %v", i, got, err, step.want, step.err)
			}
			time.Sleep(time.Second)
		}
		time.Sleep(usageTTL)
		host.err = nil
		if got, err := v.Usage(t.Context(), p); err != nil || got[0].UsedBytes != 5 {
			t.Errorf("after a minute: %+v, %v", got, err)
		}
		if uint64(len(measured)) != host.walks || slices.ContainsFunc(measured, func(source string) bool { return source != "du" }) {
			t.Errorf("%d walks are measured as %v", host.walks, measured)
		}
		host.memory, measured = true, nil
		if _, err := v.Usage(t.Context(), p); err != nil || !slices.Equal(measured, []string{"statfs"}) {
			t.Errorf("a volume in memory is measured as %v, %v", measured, err)
		}
	})
}
