package volume_test

import (
	"path/filepath"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/sim/simcsi"
)

// Upstream's kubelet looks for the subPaths of a volume under the name of the persistent volume. It unmounts those that it finds before the
// volume; one that it does not find keeps the file system busy, and the pod's directory is never removed.
func TestSubPathsAreWhereUpstreamsKubeletLooks(t *testing.T) {
	t.Parallel()
	f := newCSI(t, simcsi.Config{Stage: true})
	f.disk("d", v1.ReadWriteOnce)
	for _, c := range []struct {
		volume v1.Volume
		name   string
	}{
		{claim("v", "d", false), "pv-d"},
		{vol("i", v1.VolumeSource{CSI: &v1.CSIVolumeSource{Driver: driverName}}), "i"},
		{emptyDir("e"), "e"},
	} {
		p := podOf("a", c.volume)
		p.Spec.Containers[0].VolumeMounts[0].SubPath = "sub"
		setUp(t, f.fixture, p)
		got, err := f.mount(t, p)
		if want := filepath.Join(f.root, "pods/a/volume-subpaths", c.name, "c/0"); err != nil || got != want {
			t.Errorf("the subPath of volume %s is at %s (%v), want %s", c.volume.Name, got, err, want)
		}
		if err := f.TearDown(t.Context(), pod.RefOf(p)); err != nil {
			t.Fatal(err)
		}
	}
}
