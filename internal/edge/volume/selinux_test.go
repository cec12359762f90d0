package volume_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/edge/volume"
	"github.com/wherry-node/wherry/internal/sim/simcsi"
)

// withSELinux makes the machine one with SELinux, and the driver one that can mount with a label.
func (f *csiFixture) withSELinux(anyMode bool) {
	f.seLinux = &volume.SELinux{AnyMode: anyMode, FileLabel: func(user, level string) (string, error) {
		if user == "" {
			user = "system_u"
		}
		return user + ":object_r:container_file_t:" + level, nil
	}}
	f.claims.drivers[driverName].Spec.SELinuxMount = ptr(true)
	f.Volumes = f.restart()
}

// levelled returns a pod whose processes have a level of SELinux.
func levelled(uid types.UID, level string) *v1.Pod {
	p := podOf(uid, claim("v", "d", false))
	p.Spec.SecurityContext = &v1.PodSecurityContext{SELinuxOptions: &v1.SELinuxOptions{Level: level}}
	return p
}

// relabelled reports whether the runtime has to label the files of the pod's volume.
func relabelled(t *testing.T, f *csiFixture, p *v1.Pod) bool {
	t.Helper()
	mounts, err := f.Mounts(t.Context(), volume.MountInput{Pod: p, Container: &p.Spec.Containers[0]})
	if err != nil {
		t.Fatal(err)
	}
	return mounts[slices.IndexFunc(mounts, func(m *runtimeapi.Mount) bool { return m.ContainerPath == "/v" })].SelinuxRelabel
}

// options returns the mount options that the driver was given last, to stage and to publish.
func (f *csiFixture) options() (stage, publish string) {
	stage = strings.Join(f.driver.LastStage().GetVolumeCapability().GetMount().GetMountFlags(), " ")
	return stage, strings.Join(f.driver.LastPublish().GetVolumeCapability().GetMount().GetMountFlags(), " ")
}

// A volume for one pod is mounted with the label of the pod's containers, and the runtime labels none of its files, also after a restart of the
// agent. Upstream's kubelet finds the label in the volume's file.
func TestVolumeIsMountedWithSELinuxLabel(t *testing.T) {
	t.Parallel()
	f := newCSI(t, simcsi.Config{Stage: true})
	f.withSELinux(false)
	f.disk("d", v1.ReadWriteOncePod).Spec.MountOptions = []string{"noatime"}
	p := levelled("a", "s0:c15,c25")
	setUp(t, f.fixture, p)
	const want = `noatime context="system_u:object_r:container_file_t:s0:c15,c25"`
	if stage, publish := f.options(); stage != want || publish != want {
		t.Errorf("options to stage %s, to publish %s, want %s", stage, publish, want)
	}
	f.Volumes = f.restart()
	if relabelled(t, f, p) {
		t.Error("the runtime is asked to label the files of a volume that is mounted with a label, which the kernel refuses")
	}
	var data map[string]string
	text, err := os.ReadFile(filepath.Join(f.root, "pods/a/volumes/kubernetes.io~csi/pv-d/vol_data.json"))
	if err := errors.Join(err, json.Unmarshal(text, &data)); err != nil || data["seLinuxMountContext"] != "system_u:object_r:container_file_t:s0:c15,c25" {
		t.Errorf("vol_data.json: %s, %v", text, err)
	}
}

func TestVolumeIsMountedWithoutSELinuxLabel(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*csiFixture, *v1.Pod){
		"no SELinux on the machine":           func(f *csiFixture, _ *v1.Pod) { f.seLinux = nil },
		"the driver cannot mount with labels": func(f *csiFixture, _ *v1.Pod) { f.claims.drivers[driverName].Spec.SELinuxMount = nil },
		"a volume for several pods": func(f *csiFixture, _ *v1.Pod) {
			f.claims.pvs["pv-d"].Spec.AccessModes = []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce}
		},
		"the pod has no label": func(_ *csiFixture, p *v1.Pod) { p.Spec.SecurityContext = nil },
		"the pod wants each file to be labelled": func(_ *csiFixture, p *v1.Pod) {
			p.Spec.SecurityContext.SELinuxChangePolicy = ptr(v1.SELinuxChangePolicyRecursive)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newCSI(t, simcsi.Config{Stage: true})
			f.withSELinux(false)
			f.disk("d", v1.ReadWriteOncePod)
			p := levelled("a", "s0:c1")
			change(f, p)
			f.Volumes = f.restart()
			setUp(t, f.fixture, p)
			if stage, publish := f.options(); stage+publish != "" {
				t.Errorf("options to stage %s, to publish %s", stage, publish)
			}
			if !relabelled(t, f, p) {
				t.Error("nobody labels the files of the volume")
			}
		})
	}
}

// With the gate SELinuxMount, volumes of all access modes have a label. A pod that needs another one waits until the volume is unmounted.
func TestSELinuxMountGate(t *testing.T) {
	t.Parallel()
	f := newCSI(t, simcsi.Config{Stage: true})
	f.withSELinux(true)
	f.disk("d", v1.ReadWriteMany)
	one, same, other := levelled("one", "s0:c1"), levelled("same", "s0:c1"), levelled("other", "s0:c2")
	setUp(t, f.fixture, one)
	setUp(t, f.fixture, same)
	wantError(t, f.SetUp(t.Context(), volume.Pod{Pod: other}), "v", "has the volume mounted with the SELinux label system_u:object_r:container_file_t:s0:c1, "+
		"and this pod needs the SELinux label system_u:object_r:container_file_t:s0:c2: waits for the end of that pod")
	for _, uid := range []types.UID{"one", "same"} {
		if err := f.TearDown(t.Context(), pod.Ref{UID: uid}); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Contains(f.woken, "other") {
		t.Errorf("the pod that waits is not tried again: %v", f.woken)
	}
	setUp(t, f.fixture, other)
	if stage, _ := f.options(); stage != `context="system_u:object_r:container_file_t:s0:c2"` {
		t.Errorf("options to stage %s", stage)
	}
}

// A volume that a pod has left staged with another label is unstaged first, also if that fails at first, and the
// pod that needs the new label ends meanwhile.
func TestVolumeStagedWithAnotherSELinuxLabel(t *testing.T) {
	t.Parallel()
	f := newCSI(t, simcsi.Config{Stage: true})
	f.withSELinux(false)
	f.disk("d", v1.ReadWriteOncePod)
	setUp(t, f.fixture, levelled("one", "s0:c1"))
	f.driver.SetFault("NodeUnstageVolume", &simcsi.Fault{Err: status.Error(codes.Internal, "not now")})
	if err := f.TearDown(t.Context(), pod.Ref{UID: "one"}); err == nil {
		t.Fatal("the volume is unstaged")
	}
	if err := os.RemoveAll(filepath.Join(f.root, "pods/one")); err != nil {
		t.Fatal(err)
	}
	two := levelled("two", "s0:c2")
	wantError(t, f.SetUp(t.Context(), volume.Pod{Pod: two}), "v", "unstage the volume, which has the SELinux label system_u:object_r:container_file_t:s0:c1")
	f.Volumes = f.restart()
	wantError(t, f.SetUp(t.Context(), volume.Pod{Pod: two}), "v", "unstage the volume, which has the SELinux label system_u:object_r:container_file_t:s0:c1")
	if err := f.TearDown(t.Context(), pod.RefOf(two)); err == nil {
		t.Fatal("the volume is unstaged")
	}
	f.driver.SetFault("NodeUnstageVolume", nil)
	setUp(t, f.fixture, levelled("three", "s0:c2"))
	if stage, _ := f.options(); stage != `context="system_u:object_r:container_file_t:s0:c2"` || f.driver.Count("NodeStageVolume") != 2 {
		t.Errorf("options to stage %s, staged %d times", stage, f.driver.Count("NodeStageVolume"))
	}
	calls := f.driver.Calls()
	if last := calls[len(calls)-3:]; !slices.Equal(last, []string{"NodeUnstageVolume disk-d", "NodeStageVolume disk-d", "NodePublishVolume disk-d"}) {
		t.Errorf("calls: %q", calls)
	}
}

// A volume that is mounted stays as it is, although its driver can mount with labels now, or although the agent before this one wrote no label.
func TestMountedVolumeKeepsItsSELinuxLabel(t *testing.T) {
	t.Parallel()
	f := newCSI(t, simcsi.Config{Stage: true})
	f.withSELinux(false)
	object := f.claims.drivers[driverName]
	object.Spec.SELinuxMount, object.Spec.RequiresRepublish = ptr(false), ptr(true)
	f.disk("d", v1.ReadWriteOncePod)
	p := levelled("a", "s0:c1")
	setUp(t, f.fixture, p)
	object.Spec.SELinuxMount = ptr(true)
	setUp(t, f.fixture, p)
	if err := os.RemoveAll(filepath.Join(f.root, "pods/a/claims")); err != nil { // upstream's kubelet has no records
		t.Fatal(err)
	}
	f.Volumes = f.restart()
	setUp(t, f.fixture, p)
	if n := f.driver.Count("NodeUnstageVolume"); n != 0 {
		t.Errorf("a volume is unstaged %d times while its pod uses it", n)
	}
	if _, publish := f.options(); publish != "" || !relabelled(t, f, p) {
		t.Errorf("options to publish: %s", publish)
	}
}

// An agent that does not see that the machine has SELinux leaves a volume alone that has a label, because its pod uses it.
func TestLabelledVolumeStaysMountedWithoutSELinux(t *testing.T) {
	t.Parallel()
	f := newCSI(t, simcsi.Config{Stage: true})
	f.withSELinux(false)
	f.claims.drivers[driverName].Spec.RequiresRepublish = ptr(true)
	f.disk("d", v1.ReadWriteOncePod)
	p := levelled("a", "s0:c1")
	setUp(t, f.fixture, p)
	f.seLinux = nil
	f.Volumes = f.restart()
	setUp(t, f.fixture, p)
	if n := f.driver.Count("NodeUnstageVolume"); n != 0 {
		t.Errorf("a volume is unstaged %d times while its pod uses it", n)
	}
}

// A tenant writes seLinuxOptions. They must not add mount options of their own.
func TestSELinuxOptionsAddNoMountOption(t *testing.T) {
	t.Parallel()
	f := newCSI(t, simcsi.Config{Stage: true})
	f.withSELinux(false)
	f.disk("d", v1.ReadWriteOncePod)
	for _, level := range []string{`s0",suid,x="`, "s0\nsuid", "s0 suid", strings.Repeat("s", 256)} {
		wantError(t, f.SetUp(t.Context(), volume.Pod{Pod: levelled("a", level)}), "v", "is not valid: use letters")
	}
	if n := f.driver.Count("NodeStageVolume"); n != 0 {
		t.Errorf("staged %d times", n)
	}
}
