package vm

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/wherry-node/wherry/tools/internal/vmnode"
)

// kubelet.service has started and reports its state to systemd, and the Node object describes the machine.
func TestJoined(t *testing.T) {
	n := newNode(t)
	// The agent tells systemd its state from time to time, so this may come later than the Node's condition.
	n.await("the unit's status", time.Minute, func() (bool, string) {
		status := n.sh("systemctl status kubelet --no-pager -n 0")
		for _, want := range []string{"Active: active (running)", `Status: "node ` + vmnode.NodeName + `, ready`, "/usr/bin/kubelet"} {
			if !strings.Contains(status, want) {
				return false, "it lacks " + want + ":\n" + status
			}
		}
		return true, ""
	})
	properties := n.sh("systemctl show kubelet -p Type -p NotifyAccess -p WatchdogUSec -p KillMode -p Delegate -p NRestarts -p Slice")
	for _, want := range []string{"Type=notify", "WatchdogUSec=1min", "KillMode=process", "Delegate=yes", "NRestarts=0", "Slice=system.slice"} {
		if !strings.Contains(properties, want+"\n") && !strings.HasSuffix(properties, want) {
			t.Errorf("the unit lacks %s: %s", want, properties)
		}
	}
	info := n.kubectl("get", "node", vmnode.NodeName, "-o", "jsonpath={.status.nodeInfo.osImage}|{.status.nodeInfo.containerRuntimeVersion}|{.status.capacity.cpu}|{.status.nodeInfo.kubeletVersion}")
	if !regexp.MustCompile(`^Debian GNU/Linux 12 .*\|containerd://v?2\.4\.\d+\|[24]\|v1\.\d+\.\d+\+wherry\..*$`).MatchString(info) {
		t.Errorf("the node says of itself: %s", info)
	}
	if got := n.sh("stat -fc %T /sys/fs/cgroup"); got != "cgroup2fs" {
		t.Errorf("the guest has %s, not cgroup v2", got)
	}
	if got := n.sh("ls -d /sys/devices/system/node/node* | wc -l"); got != "2" {
		t.Errorf("the guest has %s NUMA nodes", got)
	}
}

// The cgroups of pods are in the systemd slice of their QoS class, and the cgroup v2 files have the right limits.
func TestSlicesAndLimits(t *testing.T) {
	n := newNode(t)
	n.create("guaranteed", idle+`, resources: {limits: {cpu: 200m, memory: 64Mi}}`, "")
	n.create("burstable", idle+`, resources: {requests: {cpu: 100m, memory: 32Mi}, limits: {memory: 96Mi}}`, "")
	n.create("besteffort", idle, "")
	pods := n.awaitReady("guaranteed", "burstable", "besteffort")
	for _, c := range []struct {
		name, class, parent string
		pod, container      map[string]string
	}{
		{"guaranteed", "Guaranteed", "kubepods.slice/kubepods-pod",
			map[string]string{"cpu.max": "20000 100000", "memory.max": "67108864"},
			map[string]string{"cpu.max": "20000 100000", "memory.max": "67108864", "memory.oom.group": "1"}},
		{"burstable", "Burstable", "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod",
			map[string]string{"cpu.max": "max 100000", "memory.max": "100663296"},
			map[string]string{"cpu.max": "max 100000", "memory.max": "100663296", "memory.oom.group": "1"}},
		{"besteffort", "BestEffort", "kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod",
			map[string]string{"cpu.max": "max 100000", "memory.max": "max", "cpu.weight": "1"},
			map[string]string{"cpu.max": "max 100000", "memory.max": "max", "cpu.weight": "1"}},
	} {
		p := pods[c.name]
		if p.Status.QosClass != c.class {
			t.Errorf("%s: the class is %s", c.name, p.Status.QosClass)
		}
		slice := "/sys/fs/cgroup/" + c.parent + strings.ReplaceAll(p.Metadata.UID, "-", "_") + ".slice"
		_, id, _ := strings.Cut(p.Status.ContainerStatuses[0].ContainerID, "//")
		scope := slice + "/cri-containerd-" + id + ".scope"
		for dir, files := range map[string]map[string]string{slice: c.pod, scope: c.container} {
			for file, want := range files {
				if got := n.file(dir + "/" + file); got != want {
					t.Errorf("%s: %s/%s is %q, want %q", c.name, dir, file, got, want)
				}
			}
		}
		// The slice must be a loaded unit of systemd. systemd then knows the limits, so that a daemon-reload does not reset them.
		unit := slice[strings.LastIndexByte(slice, '/')+1:]
		if got := n.sh("systemctl show -p ActiveState -p LoadState " + unit); got != "LoadState=loaded\nActiveState=active" {
			t.Errorf("%s: systemd says of %s: %q", c.name, unit, got)
		}
	}
	n.weights(pods)
	n.nodeAllocatable()
	before := n.limits()
	n.sh("systemctl daemon-reload")
	if after := n.limits(); after != before {
		t.Errorf("daemon-reload changed limits from:\n%s\nto:\n%s", before, after)
	}
}

// weights checks that a larger CPU request gives a larger cpu.weight, to a pod and to a QoS class.
func (n *node) weights(pods map[string]*pod) {
	weight := func(path string) (w int) {
		_, _ = fmt.Sscan(n.file("/sys/fs/cgroup/kubepods.slice/"+path+"/cpu.weight"), &w)
		return w
	}
	slice := func(name string) string { return strings.ReplaceAll(pods[name].Metadata.UID, "-", "_") + ".slice" }
	guaranteed := weight("kubepods-pod" + slice("guaranteed"))
	burstable := weight("kubepods-burstable.slice/kubepods-burstable-pod" + slice("burstable"))
	classes := [2]int{weight("kubepods-burstable.slice"), weight("kubepods-besteffort.slice")}
	if guaranteed <= burstable || burstable <= 1 || classes[0] <= classes[1] || classes[1] != 1 {
		n.Errorf("weights: guaranteed (200m) %d, burstable (100m) %d, classes burstable and best effort %v", guaranteed, burstable, classes)
	}
}

// nodeAllocatable checks that memory.max of kubepods.slice is the memory of the node.
func (n *node) nodeAllocatable() {
	var bytes, capacity int64
	_, _ = fmt.Sscan(n.file("/sys/fs/cgroup/kubepods.slice/memory.max"), &bytes)
	var unit string
	_, _ = fmt.Sscanf(n.kubectl("get", "node", vmnode.NodeName, "-o", "jsonpath={.status.capacity.memory}"), "%d%s", &capacity, &unit)
	if unit != "Ki" || bytes != capacity<<10 {
		n.Errorf("kubepods.slice has memory.max %d; the node's capacity is %d%s", bytes, capacity, unit)
	}
}

// limits returns the content of all limit files below kubepods.slice.
func (n *node) limits() string {
	return n.sh(`cd /sys/fs/cgroup/kubepods.slice && find . -name cpu.max -o -name cpu.weight -o -name memory.max -o -name memory.min -o -name memory.high -o -name pids.max |
  sort | while read -r f; do echo "$f $(cat $f)"; done`)
}

// The field podPidsLimit of the configuration becomes pids.max of each pod's slice.
func TestPidsLimit(t *testing.T) {
	n := newNode(t)
	n.reconfigure("podPidsLimit: 321\n")
	defer n.reconfigure("")
	n.create("few", idle, "")
	p := n.awaitReady("few")["few"]
	path := "/sys/fs/cgroup/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod" + strings.ReplaceAll(p.Metadata.UID, "-", "_") + ".slice/pids.max"
	if got := n.file(path); got != "321" {
		t.Errorf("pids.max of the pod is %s", got)
	}
}

// reconfigure writes the agent's configuration with the additional fields extra (YAML), and restarts the agent.
func (n *node) reconfigure(extra string) {
	n.Helper()
	if err := n.Configure(n.Context(), extra); err != nil {
		n.Fatal(err)
	}
	n.sh("systemctl restart kubelet")
}

// If the kernel kills a container because of its memory limit, the container's status has the reason OOMKilled and exit code 137.
func TestKilledForMemory(t *testing.T) {
	n := newNode(t)
	n.create("greedy", `command: [sh, -c, "echo up; sleep 3; exec tail /dev/zero"], resources: {limits: {memory: 24Mi}}`, "  restartPolicy: OnFailure")
	n.await("the container to be killed for its memory", podBound, func() (bool, string) {
		p := n.pods()["greedy"]
		if p == nil || len(p.Status.ContainerStatuses) == 0 {
			return false, "no status yet"
		}
		c := p.Status.ContainerStatuses[0]
		for _, s := range []containerState{c.State, c.LastState} {
			if s.Terminated != nil {
				if s.Terminated.Reason != "OOMKilled" || s.Terminated.ExitCode != 137 {
					t.Fatalf("it ended as %+v", *s.Terminated)
				}
				return true, ""
			}
		}
		return false, p.String()
	})
}

// systemd's watchdog restarts an agent that hangs. The containers keep running.
func TestWatchdog(t *testing.T) {
	n := newNode(t)
	n.create("bystander", idle, "")
	n.awaitReady("bystander")
	before, pid := n.containers(), n.sh("systemctl show -p MainPID --value kubelet")
	n.sh("mkdir -p /run/systemd/system/kubelet.service.d; printf '[Service]\\nWatchdogSec=10\\nRestartSec=1\\n' > /run/systemd/system/kubelet.service.d/99-test.conf; systemctl daemon-reload; systemctl restart kubelet")
	defer n.sh("rm /run/systemd/system/kubelet.service.d/99-test.conf; systemctl daemon-reload; systemctl restart kubelet")
	restarted := n.sh("systemctl show -p MainPID --value kubelet")
	if restarted == pid {
		t.Fatalf("the restarted agent is still process %s", pid)
	}
	n.sh("kill -STOP " + restarted)
	n.await("systemd to restart the agent", 2*time.Minute, func() (bool, string) {
		state := n.sh("systemctl show -p MainPID -p ActiveState -p Result kubelet")
		now := n.sh("systemctl show -p MainPID --value kubelet")
		return now != restarted && now != "0" && strings.Contains(state, "ActiveState=active"), state
	})
	if log := n.sh("journalctl -u kubelet --no-pager -o cat -g 'Watchdog timeout' || true"); !strings.Contains(log, "Watchdog timeout") {
		t.Errorf("the journal does not say that it was the watchdog: %q", log)
	}
	if after := n.containers(); after != before {
		t.Errorf("the containers before and after:\n%s\n%s", before, after)
	}
}
