package csispec_test

import (
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/wherry-node/wherry/internal/core/csispec"
)

func persistent(fsType string, modes ...v1.PersistentVolumeAccessMode) *csispec.Input {
	pv := &v1.PersistentVolume{}
	pv.Spec.AccessModes = modes
	pv.Spec.CSI = &v1.CSIPersistentVolumeSource{Driver: "d", VolumeHandle: "h", FSType: fsType, VolumeAttributes: map[string]string{"a": "b"}}
	return &csispec.Input{PV: pv, Pod: &v1.Pod{Spec: v1.PodSpec{SecurityContext: &v1.PodSecurityContext{FSGroup: new(int64(7))}}}, Handle: "h", StagingPath: "/s", TargetPath: "/t"}
}

// TestAccessModes checks that a request names the first access mode of the persistent volume, in a form that the driver knows.
func TestAccessModes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		modes []v1.PersistentVolumeAccessMode
		multi bool
		want  csi.VolumeCapability_AccessMode_Mode
	}{
		{nil, false, csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
		{[]v1.PersistentVolumeAccessMode{v1.ReadWriteOnce}, false, csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
		{[]v1.PersistentVolumeAccessMode{v1.ReadWriteOnce}, true, csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER},
		{[]v1.PersistentVolumeAccessMode{v1.ReadWriteOncePod}, false, csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
		{[]v1.PersistentVolumeAccessMode{v1.ReadWriteOncePod}, true, csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER},
		{[]v1.PersistentVolumeAccessMode{v1.ReadOnlyMany, v1.ReadWriteOnce}, true, csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY},
		{[]v1.PersistentVolumeAccessMode{v1.ReadWriteMany}, false, csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER},
	} {
		in := persistent("ext4", c.modes...)
		in.Can.SingleNodeMultiWriter = c.multi
		if got := csispec.Stage(in).VolumeCapability.AccessMode.Mode; got != c.want {
			t.Errorf("%v, several writers known: %v: %v, want %v", c.modes, c.multi, got, c.want)
		}
	}
}

// TestRequestsAreCopies checks that making a request changes neither the persistent volume nor the secrets of the input.
func TestRequestsAreCopies(t *testing.T) {
	t.Parallel()
	in := persistent("ext4", v1.ReadWriteOnce)
	in.Driver = &storagev1.CSIDriver{Spec: storagev1.CSIDriverSpec{PodInfoOnMount: new(true), ServiceAccountTokenInSecrets: new(true)}}
	in.Secrets, in.Tokens = map[string]string{"key": "s"}, "{}"
	r := csispec.Publish(in)
	if len(in.PV.Spec.CSI.VolumeAttributes) != 1 || len(in.Secrets) != 1 {
		t.Errorf("changed: %v, %v", in.PV.Spec.CSI.VolumeAttributes, in.Secrets)
	}
	if r.Secrets["csi.storage.k8s.io/serviceAccount.tokens"] != "{}" || r.VolumeContext["csi.storage.k8s.io/serviceAccount.tokens"] != "" || r.VolumeContext["a"] != "b" {
		t.Errorf("tokens belong to the secrets: %v", r)
	}
	if r.VolumeCapability.GetMount().VolumeMountGroup != "" {
		t.Error("a driver that cannot set a group gets one")
	}
	in.Can.MountGroup = true
	if got := csispec.Publish(in).VolumeCapability.GetMount().VolumeMountGroup; got != "7" {
		t.Errorf("group %q", got)
	}
}

func TestAgentSetsGroup(t *testing.T) {
	t.Parallel()
	policy := func(p storagev1.FSGroupPolicy) *storagev1.CSIDriver {
		return &storagev1.CSIDriver{Spec: storagev1.CSIDriverSpec{FSGroupPolicy: &p}}
	}
	for _, c := range []struct {
		name   string
		change func(in *csispec.Input)
		want   bool
	}{
		{"a disk of one node", func(*csispec.Input) {}, true},
		{"no fsGroup", func(in *csispec.Input) { in.Pod.Spec.SecurityContext = nil }, false},
		{"the driver does it", func(in *csispec.Input) { in.Can.MountGroup = true }, false},
		{"read-only", func(in *csispec.Input) { in.ReadOnly = true }, false},
		{"no file system named", func(in *csispec.Input) { in.PV.Spec.CSI.FSType = "" }, false},
		{"many nodes", func(in *csispec.Input) { in.PV.Spec.AccessModes = []v1.PersistentVolumeAccessMode{v1.ReadWriteMany} }, false},
		{"policy None", func(in *csispec.Input) { in.Driver = policy(storagev1.NoneFSGroupPolicy) }, false},
		{"policy File, many nodes", func(in *csispec.Input) {
			in.Driver, in.PV.Spec.AccessModes, in.PV.Spec.CSI.FSType = policy(storagev1.FileFSGroupPolicy), []v1.PersistentVolumeAccessMode{v1.ReadWriteMany}, ""
		}, true},
		{"inline", func(in *csispec.Input) { in.PV, in.Inline = nil, &v1.CSIVolumeSource{FSType: new("ext4")} }, true},
		{"inline, no file system named", func(in *csispec.Input) { in.PV, in.Inline = nil, &v1.CSIVolumeSource{} }, false},
	} {
		in := persistent("ext4", v1.ReadWriteOnce)
		c.change(in)
		if got := csispec.AgentSetsGroup(in); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

func TestModesOfADriver(t *testing.T) {
	t.Parallel()
	with := func(modes ...storagev1.VolumeLifecycleMode) *storagev1.CSIDriver {
		return &storagev1.CSIDriver{Spec: storagev1.CSIDriverSpec{VolumeLifecycleModes: modes}}
	}
	for _, c := range []struct {
		driver *storagev1.CSIDriver
		inline bool
		want   string
	}{
		{nil, false, ""}, {nil, true, "has no CSIDriver object"},
		{with(), false, ""}, {with(), true, "does not name Ephemeral"},
		{with(storagev1.VolumeLifecycleEphemeral), true, ""}, {with(storagev1.VolumeLifecycleEphemeral), false, "does not name Persistent"},
	} {
		err := csispec.CheckMode(c.driver, "d", c.inline)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, inline %v: %v, want %q", c.driver, c.inline, err, c.want)
		}
	}
	if !csispec.NeedsAttach(nil) || !csispec.NeedsAttach(with()) || csispec.NeedsAttach(&storagev1.CSIDriver{Spec: storagev1.CSIDriverSpec{AttachRequired: new(false)}}) {
		t.Error("only a CSIDriver object can say that no attachment is needed")
	}
}

// TestNames compares the names of volumes, attachments and directories with fixed values, because other programs compute the same names:
// the attacher, kube-scheduler, upstream's kubelet.
func TestNames(t *testing.T) {
	t.Parallel()
	for got, want := range map[string]string{
		string(csispec.UniqueName("disks.example.com", "vol-1")):      "kubernetes.io/csi/disks.example.com^vol-1",
		csispec.StagingDir("abc"):                                     "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
		strings.TrimPrefix(csispec.InlineHandle("a", "bc"), "csi-"):   "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
		strings.TrimPrefix(csispec.Attachment("a", "b", "c"), "csi-"): "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
	} {
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
