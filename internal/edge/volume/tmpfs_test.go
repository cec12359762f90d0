package volume_test

import (
	"bytes"
	"io/fs"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/internal/edge/volume"
)

// tmpfsHost records the flags of each tmpfs, by the name of its volume.
type tmpfsHost struct {
	dirHost
	flags   map[string]uintptr
	maySwap bool
}

func (h *tmpfsHost) MountTmpfs(target string, _ int64, _ fs.FileMode, _ int, flags uintptr) (bool, error) {
	h.flags[filepath.Base(target)] = flags
	return h.maySwap, nil
}

// Volumes of secrets allow no devices and no setuid programs, and no programs at all unless the pod gives a file an
// execute bit. An emptyDir in memory allows programs: pods put them there and run them.
func TestSecretsAreMountedNosuidNodevNoexec(t *testing.T) {
	t.Parallel()
	const still, runs = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC, unix.MS_NOSUID | unix.MS_NODEV
	optional := ptr(true)
	secret := func(mode *int32, items ...v1.KeyToPath) v1.VolumeSource {
		return v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "s", Optional: optional, DefaultMode: mode, Items: items}}
	}
	field := func(mode *int32) []v1.DownwardAPIVolumeFile {
		return []v1.DownwardAPIVolumeFile{{Path: "name", Mode: mode, FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.name"}}}
	}
	projected := func(mode *int32, s v1.VolumeProjection) v1.VolumeSource {
		return v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{DefaultMode: mode, Sources: []v1.VolumeProjection{s}}}
	}
	script := v1.KeyToPath{Key: "k", Path: "p", Mode: ptr(int32(0o700))}
	config := v1.LocalObjectReference{Name: "c"}
	h := &tmpfsHost{flags: map[string]uintptr{}}
	v := volume.New(volume.Config{RootDir: t.TempDir(), Host: h, Objects: &api{}})
	for name, c := range map[string]struct {
		source v1.VolumeSource
		want   uintptr
	}{
		"plain":        {secret(nil), still},
		"mode":         {secret(ptr(int32(0o440))), still},
		"scripts":      {secret(ptr(int32(0o755))), runs},
		"script":       {secret(nil, script), runs},
		"field":        {v1.VolumeSource{DownwardAPI: &v1.DownwardAPIVolumeSource{Items: field(nil)}}, still},
		"field-runs":   {v1.VolumeSource{DownwardAPI: &v1.DownwardAPIVolumeSource{Items: field(ptr(int32(0o755)))}}, runs},
		"projected":    {projected(nil, v1.VolumeProjection{Secret: &v1.SecretProjection{LocalObjectReference: config, Optional: optional}}), still},
		"proj-secret":  {projected(nil, v1.VolumeProjection{Secret: &v1.SecretProjection{LocalObjectReference: config, Optional: optional, Items: []v1.KeyToPath{script}}}), runs},
		"proj-config":  {projected(nil, v1.VolumeProjection{ConfigMap: &v1.ConfigMapProjection{LocalObjectReference: config, Optional: optional, Items: []v1.KeyToPath{script}}}), runs},
		"proj-field":   {projected(nil, v1.VolumeProjection{DownwardAPI: &v1.DownwardAPIProjection{Items: field(ptr(int32(0o711)))}}), runs},
		"proj-default": {projected(ptr(int32(0o555)), v1.VolumeProjection{DownwardAPI: &v1.DownwardAPIProjection{Items: field(nil)}}), runs},
		"memory":       {v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory}}, 0},
	} {
		if err := v.SetUp(t.Context(), volume.Pod{Pod: aPod(vol(name, c.source))}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if got, mounted := h.flags[name]; !mounted || got != c.want {
			t.Errorf("%s: flags %#x (mounted: %t), want %#x", name, got, mounted, c.want)
		}
	}
}

// On a real machine, the tmpfs of a Secret volume is mounted with nosuid, nodev and noexec.
func TestASecretsMountHasItsFlags(t *testing.T) {
	t.Parallel()
	needRoot(t)
	f := newFixture(t)
	p := aPod(vol("s", v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "s", Optional: ptr(true)}}))
	setUp(t, f, p)
	var st unix.Statfs_t
	if err := unix.Statfs(dir(t, f, p, "s"), &st); err != nil || st.Type != unix.TMPFS_MAGIC {
		t.Fatalf("%+v, %v", st, err)
	}
	if want := int64(unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC); st.Flags&want != want {
		t.Errorf("flags %#x lack %#x", st.Flags, want&^st.Flags)
	}
}

// The warning that secrets may be swapped out is logged once, not for every volume.
func TestSecretsThatMaySwapAreLoggedOnce(t *testing.T) {
	t.Parallel()
	for _, may := range []bool{true, false} {
		var log bytes.Buffer
		v := volume.New(volume.Config{RootDir: t.TempDir(), Host: &tmpfsHost{flags: map[string]uintptr{}, maySwap: may}, Objects: &api{}, Log: slog.New(slog.NewTextHandler(&log, nil))})
		for _, name := range []string{"a", "b"} {
			p := aPod(vol(name, v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "s", Optional: ptr(true)}}))
			if err := v.SetUp(t.Context(), volume.Pod{Pod: p}); err != nil {
				t.Fatal(err)
			}
		}
		want := 0
		if may {
			want = 1
		}
		if n := strings.Count(log.String(), "secrets of pods"); n != want {
			t.Errorf("said %d times, want %d: %s", n, want, log.String())
		}
	}
}
