package crispec

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
)

func TestVolumeSELinux(t *testing.T) {
	t.Parallel()
	level := func(l string) *v1.SELinuxOptions { return &v1.SELinuxOptions{Level: l} }
	recursive, mount := v1.SELinuxChangePolicyRecursive, v1.SELinuxChangePolicyMountOption
	for name, tt := range map[string]struct {
		pod        *v1.PodSecurityContext
		init, main *v1.SELinuxOptions // main is that of the first of two main containers; the second one does not mount the volume
		want, err  string
	}{
		"nobody has options":              {},
		"the pod has them":                {pod: &v1.PodSecurityContext{SELinuxOptions: level("s0:c1")}, want: "s0:c1"},
		"each container has them":         {init: level("s0:c1"), main: level("s0:c1"), want: "s0:c1"},
		"one container has none":          {init: level("s0:c1")},
		"a container has its own":         {pod: &v1.PodSecurityContext{SELinuxOptions: level("s0:c1")}, main: level("s0:c2"), err: `containers "i" and "a" mount the volume with different SELinux labels`},
		"types may differ":                {init: &v1.SELinuxOptions{Level: "s0:c1", Type: "spc_t"}, main: level("s0:c1"), want: "s0:c1"},
		"the runtime chooses the level":   {pod: &v1.PodSecurityContext{SELinuxOptions: &v1.SELinuxOptions{Type: "container_t"}}},
		"the pod asks for labelled files": {pod: &v1.PodSecurityContext{SELinuxOptions: level("s0:c1"), SELinuxChangePolicy: &recursive}},
		"the pod asks for the option":     {pod: &v1.PodSecurityContext{SELinuxOptions: level("s0:c1"), SELinuxChangePolicy: &mount}, want: "s0:c1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			mounts := []v1.VolumeMount{{Name: "v"}}
			security := func(o *v1.SELinuxOptions) *v1.SecurityContext { return &v1.SecurityContext{SELinuxOptions: o} }
			p := &v1.Pod{Spec: v1.PodSpec{
				SecurityContext: tt.pod,
				InitContainers:  []v1.Container{{Name: "i", VolumeMounts: mounts, SecurityContext: security(tt.init)}},
				Containers: []v1.Container{{Name: "a", VolumeMounts: mounts, SecurityContext: security(tt.main)},
					{Name: "b", VolumeMounts: []v1.VolumeMount{{Name: "w"}}, SecurityContext: security(level("s0:c9"))}},
			}}
			got, err := VolumeSELinux(p, "v")
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("error %v, want one with %q", err, tt.err)
				}
				return
			}
			if err != nil || (got != nil) != (tt.want != "") || got != nil && got.Level != tt.want {
				t.Errorf("got %v, %v; want the level %q", got, err, tt.want)
			}
		})
	}
}
