package podworker

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// "A container using Downward API volumes gets updates": the volumes are made again when what they show of the pod has
// changed, and only then.
func TestRetold(t *testing.T) {
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
		w := &Worker{told: c.before}
		if got := w.retold(c.after); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
		if w.retold(c.after) {
			t.Errorf("%s: told twice", name)
		}
	}
}
