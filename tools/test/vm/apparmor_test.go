package vm

import (
	"strings"
	"testing"
)

// A container runs under the AppArmor profile that its pod names: the runtime's own, one that the machine has loaded, or none. A profile that
// nobody has loaded keeps its container from being created, and the pod's status names the profile.
func TestAppArmor(t *testing.T) {
	n := newNode(t)
	if enabled := n.file("/sys/module/apparmor/parameters/enabled"); enabled != "Y" {
		t.Fatalf("the guest's kernel has no AppArmor: %s", enabled)
	}
	const name = "wherry-test-no-files-in-tmp"
	n.sh(`cat > /etc/apparmor.d/` + name + ` <<'EOF'
profile ` + name + ` flags=(attach_disconnected) {
  file,
  signal,
  ptrace,
  deny /tmp/** w,
}
EOF
apparmor_parser -r /etc/apparmor.d/` + name)
	defer n.sh("apparmor_parser -R /etc/apparmor.d/" + name + "; rm /etc/apparmor.d/" + name)
	profile := func(kind, local string) string {
		if local != "" {
			local = ", localhostProfile: " + local
		}
		return idle + `, securityContext: {appArmorProfile: {type: ` + kind + local + `}}`
	}
	n.create("default", profile("RuntimeDefault", ""), "")
	n.create("local", profile("Localhost", name), "")
	n.create("none", profile("Unconfined", ""), "")
	n.create("missing", profile("Localhost", "nobody-has-loaded-this"), "")
	n.awaitReady("default", "local", "none")
	for pod, want := range map[string]string{"default": "cri-containerd.apparmor.d (enforce)", "local": name + " (enforce)", "none": "unconfined"} {
		if got := strings.TrimSpace(n.kubectl("exec", pod, "--", "cat", "/proc/1/attr/current")); got != want {
			t.Errorf("pod %s runs under the profile %q, want %q", pod, got, want)
		}
	}
	// The shell prints the error of touch and ends with 0, because an exit code of kubectl would fail the test.
	const write = "mkdir -p /tmp; touch /tmp/file 2>&1 || true"
	if out := n.kubectl("exec", "local", "--", "sh", "-c", write); !strings.Contains(out, "Permission denied") {
		t.Errorf("the profile does not keep the container from writing to /tmp: %q", out)
	}
	if out := n.kubectl("exec", "none", "--", "sh", "-c", write); strings.TrimSpace(out) != "" {
		t.Errorf("a container without a profile cannot write to /tmp: %q", out)
	}
	n.await("the status of the pod with the missing profile", podBound, func() (bool, string) {
		out := n.kubectl("get", "pod", "missing", "-o", "jsonpath={.status.containerStatuses[0].state.waiting}")
		return strings.Contains(out, "nobody-has-loaded-this"), out
	})
	n.noPods()
}
