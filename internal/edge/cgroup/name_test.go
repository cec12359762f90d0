package cgroup

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

func TestNames(t *testing.T) {
	t.Parallel()
	const uid = types.UID("0a1b-2c")
	for _, tc := range []struct {
		name  string
		n     naming
		class v1.PodQOSClass
		want  string
	}{
		{"cgroupfs guaranteed", naming{}, v1.PodQOSGuaranteed, "/kubepods/pod0a1b-2c"},
		{"cgroupfs burstable", naming{}, v1.PodQOSBurstable, "/kubepods/burstable/pod0a1b-2c"},
		{"cgroupfs below a root", naming{root: split("/wherry/x-1/")}, v1.PodQOSBestEffort, "/wherry/x-1/kubepods/besteffort/pod0a1b-2c"},
		{"systemd guaranteed", naming{systemd: true}, v1.PodQOSGuaranteed, "/kubepods.slice/kubepods-pod0a1b_2c.slice"},
		{
			"systemd burstable", naming{systemd: true}, v1.PodQOSBurstable,
			"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod0a1b_2c.slice",
		},
		{
			"systemd below a root", naming{systemd: true, root: split("/wherry/x-1")}, v1.PodQOSBestEffort,
			"/wherry.slice/wherry-x_1.slice/wherry-x_1-kubepods.slice/wherry-x_1-kubepods-besteffort.slice/" +
				"wherry-x_1-kubepods-besteffort-pod0a1b_2c.slice",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			got := tc.n.pod(tc.class, uid)
			if got != tc.want {
				t.Errorf("path:\n got %s\nwant %s", got, tc.want)
			}
			back, ok := tc.n.uid(tc.class, got[len(tc.n.qos(tc.class))+1:])
			if !ok || back != uid {
				t.Errorf("uid of %s: got %q, %v", got, back, ok)
			}
		})
	}
}

// The names of systemReservedCgroup and kubeReservedCgroup lead to the same cgroups as with upstream's kubelet.
func TestNamesOfReservedCgroups(t *testing.T) {
	t.Parallel()
	for name, want := range map[string][2]string{ // with the systemd driver, with the cgroupfs driver
		"/system.slice":                   {"/system.slice", "/system.slice"},
		"system.slice":                    {"/system.slice", "/system.slice"},
		"/podruntime":                     {"/podruntime.slice", "/podruntime"},
		"/kube.slice/kube-reserved.slice": {"/kube.slice/kube-reserved.slice", "/kube.slice/kube-reserved.slice"},
		"kube-reserved.slice":             {"/kube.slice/kube-reserved.slice", "/kube-reserved.slice"},
		"/kube.slice/kube-a_b.slice":      {"/kube.slice/kube-a_b.slice", "/kube.slice/kube-a_b.slice"},
		"/":                               {"/", "/"},
	} {
		for i, n := range []naming{{systemd: true, root: []string{"not", "of", "the", "name"}}, {root: []string{"not"}}} {
			if got := n.existing(name); got != want[i] {
				t.Errorf("%q, systemd %v: got %s, want %s", name, n.systemd, got, want[i])
			}
		}
	}
}

func TestNamesThatAreNoPods(t *testing.T) {
	t.Parallel()
	for _, base := range []string{"burstable", "pod", "crio-1.scope", "kubepods-burstable.slice", "kubepods-pod.slice", "podman.service"} {
		for _, n := range []naming{{}, {systemd: true}} {
			uid, ok := n.uid(v1.PodQOSGuaranteed, base)
			if ok && !(base == "podman.service" && !n.systemd) { // with this driver any name after "pod" may be a UID
				t.Errorf("systemd %v: %s was taken for pod %q", n.systemd, base, uid)
			}
		}
	}
}

func TestOwner(t *testing.T) {
	t.Parallel()
	const uid, id = types.UID("0a1b-2c"), "4f5e6d"
	for _, n := range []naming{{}, {root: []string{"a", "b"}}, {systemd: true}, {systemd: true, root: []string{"a-1"}}} {
		c := &Cgroups{names: n}
		for _, class := range classes() {
			group := n.pod(class, uid)
			for path, container := range map[string]string{
				group: "", group + "/" + id: id, group + "/cri-containerd-" + id + ".scope": id, group + "/crio-" + id + ".scope/made/by-it": id,
				"/docker/1234" + group + "/" + id: id, // the agent runs in a container
			} {
				if u, got := c.Owner(path); u != uid || got != container {
					t.Errorf("owner of %s: pod %q, container %q; want %q, %q", path, u, got, uid, container)
				}
			}
		}
	}
	c := &Cgroups{}
	for _, path := range []string{"", "/", "/pod1", "/kubepods", "/kubepods/besteffort", "/kubepods/pod", "/user.slice/pod1/x", "/kubepods/besteffort/pod../x"} {
		if u, got := c.Owner(path); u != "" || got != "" {
			t.Errorf("owner of %s: pod %q, container %q; want none", path, u, got)
		}
	}
}
