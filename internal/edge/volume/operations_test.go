package volume_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/edge/volume"
	"github.com/wherry-node/wherry/internal/sim/simcsi"
)

// operations collects the operations on volumes.
type operations struct {
	mu  sync.Mutex
	all []string
}

func (o *operations) ended(op volume.Operation) {
	o.mu.Lock()
	defer o.mu.Unlock()
	end := "success"
	if op.Err != nil {
		end = "failure"
	}
	if mounted := op.Name == "volume_mount" && op.Err == nil; mounted != (op.Overall > 0) {
		end += fmt.Sprint(" after an overall time of ", op.Overall)
	}
	o.all = append(o.all, fmt.Sprint(op.Plugin, " ", op.Name, " ", end))
}

// take returns the operations since the last call, sorted.
func (o *operations) take() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	out := o.all
	o.all = nil
	slices.Sort(out)
	return out
}

// Each operation on a volume is reported with its plugin, and the volumes are counted by plugin. The plugin of a CSI volume never has the
// name of a driver that is not registered, because a pod can name any driver.
func TestOperationsAndCounts(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	var ops operations
	f.Volumes = volume.New(volume.Config{RootDir: f.root, Host: host(t), Objects: f.api, Claims: f.claims, Operated: ops.ended})
	f.api.configMaps["conf"] = &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "conf"}, Data: map[string]string{"k": "v"}}
	p := aPod(vol("empty", v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}),
		vol("other", v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}),
		vol("conf", v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: v1.LocalObjectReference{Name: "conf"}}}),
		vol("lacks", v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "nosuch"}}),
		vol("host", v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: "/"}}),
		vol("foreign", v1.VolumeSource{CSI: &v1.CSIVolumeSource{Driver: "nobody-has.example.com"}}),
		claim("unbound", "nosuch", false))
	if d := cmp.Diff([]volume.Count{
		{Plugin: "N/A", Desired: 1}, {Plugin: "kubernetes.io/configmap", Desired: 1}, {Plugin: "kubernetes.io/csi", Desired: 1},
		{Plugin: "kubernetes.io/empty-dir", Desired: 2}, {Plugin: "kubernetes.io/host-path", Desired: 1}, {Plugin: "kubernetes.io/secret", Desired: 1},
	}, f.Counts([]*v1.Pod{p})); d != "" {
		t.Errorf("before the set-up (-want +got):\n%s", d)
	}
	if err := f.SetUp(t.Context(), volume.Pod{Pod: p}); err == nil {
		t.Error("volumes without their sources were set up")
	}
	if d := cmp.Diff([]string{
		"N/A volume_mount failure", "kubernetes.io/configmap volume_mount success", "kubernetes.io/csi volume_mount failure",
		"kubernetes.io/empty-dir volume_mount success", "kubernetes.io/empty-dir volume_mount success", "kubernetes.io/host-path volume_mount success",
		"kubernetes.io/secret volume_mount failure",
	}, ops.take()); d != "" {
		t.Errorf("set-up (-want +got):\n%s", d)
	}
	actual := func(pods ...*v1.Pod) map[string]int {
		out := map[string]int{}
		for _, c := range f.Counts(pods) {
			if c.Actual > 0 {
				out[c.Plugin] = c.Actual
			}
		}
		return out
	}
	if d := cmp.Diff(map[string]int{"kubernetes.io/configmap": 1, "kubernetes.io/empty-dir": 2, "kubernetes.io/host-path": 1}, actual(p)); d != "" {
		t.Errorf("after the set-up (-want +got):\n%s", d)
	}
	if d := cmp.Diff(map[string]int{"kubernetes.io/configmap": 1, "kubernetes.io/empty-dir": 2}, actual()); d != "" {
		t.Errorf("after the pod's deletion (-want +got):\n%s", d)
	}
	if err := f.TearDown(t.Context(), pod.Ref{UID: p.UID}); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"kubernetes.io/configmap volume_unmount success", "kubernetes.io/empty-dir volume_unmount success"}, ops.take()); d != "" {
		t.Errorf("take-down (-want +got):\n%s", d)
	}
	if n := f.Counts(nil); len(n) != 0 {
		t.Errorf("after the take-down: %v", n)
	}
}

// The plugin of a CSI volume has the name of the driver, also if the volume has a claim.
func TestOperationsOfACSIVolume(t *testing.T) {
	t.Parallel()
	f := newCSI(t, simcsi.Config{Stage: true})
	f.disk("d", v1.ReadWriteOnce)
	p := podOf("a", claim("v", "d", false))
	setUp(t, f.fixture, p)
	plugin := "kubernetes.io/csi:" + driverName
	if d := cmp.Diff([]volume.Count{{Plugin: plugin, Desired: 1, Actual: 1}}, f.Counts([]*v1.Pod{p})); d != "" {
		t.Errorf("counts (-want +got):\n%s", d)
	}
	if err := f.TearDown(t.Context(), pod.Ref{UID: p.UID}); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{plugin + " unmount_device success", plugin + " volume_mount success", plugin + " volume_unmount success"}, f.ops.take()); d != "" {
		t.Errorf("operations (-want +got):\n%s", d)
	}
	if n := f.Counts(nil); len(n) != 0 {
		t.Errorf("after the take-down: %v", n)
	}
}
