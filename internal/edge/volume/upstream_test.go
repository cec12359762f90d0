package volume_test

import (
	"path/filepath"
	"slices"
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

// Beside a mount point, a CSI volume has only files that upstream's kubelet removes with it. It removes the directory with rmdir, which fails
// if another file is there.
func TestUpstreamsKubeletCanRemoveTheDirectories(t *testing.T) {
	t.Parallel()
	f := newCSI(t, simcsi.Config{Stage: true})
	f.disk("d", v1.ReadWriteOnce)
	setUp(t, f.fixture, podOf("a", claim("v", "d", false), vol("i", v1.VolumeSource{CSI: &v1.CSIVolumeSource{Driver: driverName}})))
	for pattern, want := range map[string][]string{
		"plugins/kubernetes.io/csi/" + driverName + "/*": {"globalmount", "vol_data.json"},
		"pods/a/volumes/kubernetes.io~csi/pv-d":          {"mount", "vol_data.json"},
		"pods/a/volumes/kubernetes.io~csi/i":             {"mount", "vol_data.json"},
	} {
		var names []string
		found, _ := filepath.Glob(filepath.Join(f.root, pattern, "*"))
		for _, path := range found {
			names = append(names, filepath.Base(path))
		}
		if !slices.Equal(names, want) {
			t.Errorf("in %s there is %q, want %q", pattern, names, want)
		}
	}
}
