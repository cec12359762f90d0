package vm

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// newer builds packages with a later version and copies them into the guest. It returns their file names in the guest.
func (n *node) newer(version string) string {
	n.Helper()
	dir := n.TempDir()
	if err := n.MakePackages(n.Context(), dir, version); err != nil {
		n.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.deb"))
	if err != nil || len(files) != 2 {
		n.Fatalf("%d packages were made (%v)", len(files), err)
	}
	n.sh("mkdir -p /root/newer; rm -f /root/newer/*")
	var names []string
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err == nil {
			name := "/root/newer/" + filepath.Base(file)
			names = append(names, name)
			err = n.Machine.CopyIn(n.Context(), name, 0o644, data)
		}
		if err != nil {
			n.Fatal(err)
		}
	}
	return strings.Join(names, " ")
}

// apt runs apt-get in the guest and returns its output. Its time limit is long, because apt-get is slow under emulation.
func (n *node) apt(args string) string {
	n.Helper()
	out, err := n.Machine.Shell(n.Context(), 6*time.Minute, "DEBIAN_FRONTEND=noninteractive apt-get -q -y "+args+" 2>&1")
	if err != nil {
		n.Fatal(err)
	}
	return out
}

// An upgrade of the packages replaces the running agent, and changes neither containers nor configuration.
func TestUpgrade(t *testing.T) {
	n := newNode(t)
	n.create("one", idle, "")
	n.create("two", idle+`, resources: {limits: {cpu: 100m, memory: 32Mi}}`, "")
	n.awaitReady("one", "two")
	n.sh(`echo 'KUBELET_EXTRA_ARGS=--node-labels=example.org/kept=yes' > /etc/default/kubelet`)
	before, pid := n.containers(), n.sh("systemctl show -p MainPID --value kubelet")
	n.apt("install --no-install-recommends " + n.newer("0.1.0~upgrade"))
	if got := n.sh("dpkg-query -W -f '${Package} ${Version} ${Status}\\n' wherry wherry-kubelet"); got != "wherry 0.1.0~upgrade install ok installed\nwherry-kubelet 0.1.0~upgrade install ok installed" {
		t.Errorf("dpkg says: %s", got)
	}
	if now := n.sh("systemctl show -p MainPID --value kubelet"); now == pid || now == "0" {
		t.Errorf("the agent is process %s, and was %s", now, pid)
	}
	if got := n.sh("cat /etc/default/kubelet"); !strings.Contains(got, "example.org/kept=yes") {
		t.Errorf("the administrator's /etc/default/kubelet is now: %s", got)
	}
	if err := n.AwaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, p := range n.awaitReady("one", "two") {
		if c := p.Status.ContainerStatuses[0]; c.RestartCount != 0 {
			t.Errorf("%s was restarted %d times", name, c.RestartCount)
		}
	}
	if after := n.containers(); after != before {
		t.Errorf("the containers before and after:\n%s\n%s", before, after)
	}
	n.sh("sed -i 's/^KUBELET_EXTRA_ARGS=.*/KUBELET_EXTRA_ARGS=/' /etc/default/kubelet; systemctl restart kubelet")
}

// Removing the packages leaves containers and state. A purge while the node has pods leaves the state and says so; a purge of a drained
// node leaves nothing. The test installs the packages again at the end.
func TestRemoveAndPurge(t *testing.T) {
	n := newNode(t)
	n.create("stays", idle, "")
	n.awaitReady("stays")
	before := n.containers()
	n.apt("remove wherry-kubelet wherry")
	if got := n.sh("systemctl is-active kubelet || true"); got != "inactive" && got != "unknown" {
		t.Errorf("after the removal the unit is %s", got)
	}
	if after := n.containers(); after != before {
		t.Errorf("the containers before and after the removal:\n%s\n%s", before, after)
	}
	if out := n.apt("purge wherry-kubelet wherry"); !strings.Contains(out, "drain a node before its agent is purged") {
		t.Errorf("a purge with a pod on the node says:\n%s", out)
	}
	n.sh("test -e /etc/kubernetes/kubelet.conf; test -d /var/lib/kubelet/pods")

	// After a new installation the agent continues with the existing pod. Then the node is drained.
	n.apt("install --no-install-recommends /opt/payload/packages/wherry_*.deb /opt/payload/packages/wherry-kubelet_*.deb")
	n.sh("systemctl enable -q kubelet; systemctl start kubelet")
	if err := n.AwaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	n.awaitReady("stays")
	if after := n.containers(); after != before {
		t.Errorf("the containers before and after the agent came back:\n%s\n%s", before, after)
	}
	n.noPods()
	n.apt("purge wherry-kubelet wherry")
	left := n.sh(`for f in /usr/bin/wherry /usr/bin/kubelet /var/lib/kubelet /etc/kubernetes/kubelet.conf /etc/default/kubelet /run/wherry /var/log/pods \
  /var/log/containers /etc/systemd/system/multi-user.target.wants/kubelet.service /usr/lib/systemd/system/kubelet.service \
  /usr/share/doc/wherry /usr/share/doc/wherry-kubelet /sys/fs/cgroup/kubepods.slice /run/systemd/transient/kubepods.slice; do
  if [ -e $f ] || [ -L $f ]; then echo $f; fi; done; systemctl list-units --all --no-legend 'kube*'; mount | grep kubelet || true`)
	if left != "" {
		t.Errorf("after the purge of a drained node there is left:\n%s", left)
	}
	if got := n.sh("ls /etc/kubernetes/pki"); got != "ca.crt" {
		t.Errorf("/etc/kubernetes/pki has %q", got)
	}
	n.kubectl("delete", "node", "--all")
	if err := n.Install(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := n.AwaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
}
