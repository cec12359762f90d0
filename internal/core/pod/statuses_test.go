package pod

import (
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
)

func TestStatuses(t *testing.T) {
	t.Parallel()
	of := func(names ...string) (out []v1.ContainerStatus) {
		for _, n := range names {
			out = append(out, v1.ContainerStatus{Name: n})
		}
		return out
	}
	s := &v1.PodStatus{InitContainerStatuses: of("i", "j"), ContainerStatuses: of("a", "b"), EphemeralContainerStatuses: of("e")}
	names := func(base bool, most int) (out []string) {
		all := Statuses(s)
		if base {
			all = BaseStatuses(s)
		}
		for st := range all {
			if len(out) == most {
				break
			}
			out = append(out, st.Name)
		}
		return out
	}
	for _, c := range []struct {
		base bool
		most int
		want []string
	}{{false, 9, []string{"i", "j", "a", "b", "e"}}, {true, 9, []string{"i", "j", "a", "b"}}, {false, 3, []string{"i", "j", "a"}}, {false, 0, nil}} {
		if got := names(c.base, c.most); !slices.Equal(got, c.want) {
			t.Errorf("base %v, at most %d: %v, want %v", c.base, c.most, got, c.want)
		}
	}
	if st := StatusOf(s, "b"); st != &s.ContainerStatuses[1] || StatusOf(s, "e") != &s.EphemeralContainerStatuses[0] || StatusOf(s, "x") != nil {
		t.Error("a status by name is not that of the list")
	}
}

func TestIsSidecar(t *testing.T) {
	t.Parallel()
	for policy, want := range map[v1.ContainerRestartPolicy]bool{
		v1.ContainerRestartPolicyAlways: true, v1.ContainerRestartPolicyOnFailure: false, v1.ContainerRestartPolicyNever: false} {
		if IsSidecar(&v1.Container{RestartPolicy: &policy}) != want {
			t.Errorf("%s: %v", policy, !want)
		}
	}
	if IsSidecar(&v1.Container{}) {
		t.Error("without a policy it is one")
	}
}

func TestBareID(t *testing.T) {
	t.Parallel()
	for id, want := range map[string]string{"containerd://abc": "abc", "cri-o://a://b": "a://b", "abc": "", "": "", "containerd://": ""} {
		if got := BareID(id); got != want {
			t.Errorf("%q: %q, want %q", id, got, want)
		}
	}
}
