package podworker

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/core/decide"
	"github.com/wherry-node/wherry/internal/core/pod"
)

// probing is a node that records whether the memory passed to the last call of Probe said that the pod ends.
type probing struct {
	*still
	ending atomic.Bool
}

func (p *probing) Probe(_ *v1.Pod, _ *pod.Observed, m *decide.Memory, _ *decide.ProbeResults) {
	p.ending.Store(!m.StopBegan.IsZero())
}

// runningCache has a pod whose only container runs.
type runningCache struct{}

func (runningCache) Get(types.UID) (*pod.Observed, time.Time) {
	return &pod.Observed{Sandboxes: []pod.Sandbox{{ID: "s", Ready: true}},
		Containers: []pod.Container{{ID: "c", Name: "main", SandboxID: "s", State: pod.StateRunning, StartedAt: time.Now()}}}, time.Now()
}
func (runningCache) Inspect(types.UID) time.Time { return time.Now() }

// When a pod's activeDeadlineSeconds has passed, a turn decides to end the pod. The same turn also tells the probes that the pod ends,
// because the next turn may come only after the whole grace period.
func TestProbesHearOfAnEndInTheTurnThatBeginsIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := &probing{still: &still{setUps: make(chan chan pod.Outcome, 10), pod: &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{UID: "u", Name: "p", Namespace: "ns"},
			Spec: v1.PodSpec{RestartPolicy: v1.RestartPolicyAlways, ActiveDeadlineSeconds: new(int64(8)), TerminationGracePeriodSeconds: new(int64(30)),
				Containers: []v1.Container{{Name: "main", Image: "i"}}},
		}}}
		onNode(t, p, runningCache{}, p.pod).Look("it is new")
		(<-p.setUps) <- pod.Outcome{}
		time.Sleep(7 * time.Second)
		synctest.Wait()
		if p.ending.Load() {
			t.Error("the probes were told that the pod ends before its time is over")
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if !p.ending.Load() {
			t.Error("the probes were not told that the pod ends")
		}
	})
}

// The volumes are set up again if a field of the pod that a downward API volume shows has changed, and only then.
func TestDownwardChanged(t *testing.T) {
	t.Parallel()
	downward := v1.Volume{VolumeSource: v1.VolumeSource{DownwardAPI: &v1.DownwardAPIVolumeSource{}}}
	projected := v1.Volume{VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{
		{Secret: &v1.SecretProjection{}}, {DownwardAPI: &v1.DownwardAPIProjection{}}}}}}
	secret := v1.Volume{VolumeSource: v1.VolumeSource{Secret: &v1.SecretVolumeSource{}}}
	made := func(generation int64, label, annotation, status string, volumes ...v1.Volume) *v1.Pod {
		return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Generation: generation, Labels: map[string]string{"l": label}, Annotations: map[string]string{"a": annotation}},
			Spec: v1.PodSpec{Volumes: volumes}, Status: v1.PodStatus{Message: status}}
	}
	for name, c := range map[string]struct {
		before, after *v1.Pod
		want          bool
	}{
		"first turn":       {nil, made(1, "x", "y", "", downward), false},
		"label":            {made(1, "x", "y", "", downward), made(1, "z", "y", "", downward), true},
		"annotation":       {made(1, "x", "y", "", projected), made(1, "x", "z", "", projected), true},
		"resources":        {made(1, "x", "y", "", downward), made(2, "x", "y", "", downward), true},
		"status alone":     {made(1, "x", "y", "", downward), made(1, "x", "y", "new", downward), false},
		"no such volume":   {made(1, "x", "y", "", secret), made(2, "z", "z", "", secret), false},
		"no source has it": {made(1, "x", "y", "", downward), nil, false},
	} {
		w := &Worker{lastPod: c.before}
		if got := w.downwardChanged(c.after); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
		if w.downwardChanged(c.after) {
			t.Errorf("%s: told twice", name)
		}
	}
}
