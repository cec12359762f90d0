package perform

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/core/crispec"
	"github.com/wherry-node/wherry/internal/edge/userns"
)

// A pod with "hostUsers: false" gets a user namespace if its runtime handler supports that. With other handlers it gets a clear
// error.
func TestUserns(t *testing.T) {
	t.Parallel()
	ids := userns.New(userns.Config{})
	if err := ids.Load(); err != nil {
		t.Fatal(err)
	}
	x := New(Config{IDs: ids})
	facts := Facts{UserNamespaces: map[string]bool{"": true, "old": false}}
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "a", Name: "p", Namespace: "n"}}
	if u, err := x.userns(p, "", &facts); u != nil || err != nil {
		t.Errorf("a pod that does not ask for it: %v %v", u, err)
	}
	p.Spec.HostUsers = new(bool)
	u, err := x.userns(p, "", &facts)
	if err != nil || u.Uids[0].HostId != 65536 || u.Gids[0].Length != 65536 || u.Uids[0].ContainerId != 0 {
		t.Errorf("namespace %v, %v", u, err)
	}
	for handler, want := range map[string]string{
		"old":     "can't set `spec.hostUsers: false`, RuntimeClass handler \"old\" does not support user namespaces",
		"unknown": "can't set `spec.hostUsers: false`, RuntimeClass handler \"unknown\" does not support user namespaces",
	} {
		if _, err := x.userns(p, handler, &facts); err == nil || err.Error() != want {
			t.Errorf("handler %s: %v, want %s", handler, err, want)
		}
	}
	if _, err := x.userns(p, "", &Facts{}); err == nil || err.Error() != "can't set `spec.hostUsers: false`, runtime does not support user namespaces" {
		t.Errorf("a runtime that cannot: %v", err)
	}
	for what, change := range map[string]func(*v1.PodSpec){
		"hostNetwork": func(s *v1.PodSpec) { s.HostNetwork = true },
		"hostPID":     func(s *v1.PodSpec) { s.HostPID = true },
		"hostIPC":     func(s *v1.PodSpec) { s.HostIPC = true },
	} {
		q := p.DeepCopy()
		change(&q.Spec)
		if _, err := crispec.Sandbox(crispec.SandboxInput{Pod: q, Userns: u, Policy: crispec.DefaultPolicy()}); err == nil {
			t.Errorf("a user namespace with %s", what)
		}
	}
	if got := ids.Pods(); len(got) != 1 || got[0] != types.UID("a") {
		t.Errorf("ranges of %v", got)
	}
}

// A runtime that is too old for image volumes would mount something else, so the agent sends it no request.
func TestImageVolumeOfOldRuntime(t *testing.T) {
	t.Parallel()
	facts := Facts{RuntimeName: "containerd", RuntimeVersion: "v2.0.5"}
	x := New(Config{Facts: func() Facts { return facts }})
	vol := v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{Image: &v1.ImageVolumeSource{Reference: "example.org/data:1"}}}
	p := &v1.Pod{Spec: v1.PodSpec{Volumes: []v1.Volume{vol}}}
	c := &v1.Container{VolumeMounts: []v1.VolumeMount{{Name: "v", MountPath: "/v"}}}
	if got := x.imageVolumes(p, c); len(got) != 0 {
		t.Errorf("the agent pulls images that the runtime cannot mount: %v", got)
	}
	_, err := x.imageVolume(t.Context(), p, &vol, "", "")
	if want := "the container runtime, containerd v2.0.5, cannot mount images: use containerd 2.1 or CRI-O 1.31, or newer"; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	facts.RuntimeVersion = "v2.1.4"
	if got := x.imageVolumes(p, c); len(got) != 1 {
		t.Errorf("image volumes %v", got)
	}
	_, err = x.imageVolume(t.Context(), p, &vol, "sub", "")
	if want := "the container runtime, containerd v2.1.4, cannot mount a subPath of an image: use containerd 2.2 or CRI-O 1.33, or newer"; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}
