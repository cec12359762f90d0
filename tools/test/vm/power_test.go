package vm

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// The method some creates three pods, which have different fields and run until they are deleted. It returns their names when they are
// Ready.
func (n *node) some() []string {
	n.Helper()
	n.create("plain", idle, "")
	n.create("bound", idle+`, resources: {limits: {cpu: 200m, memory: 64Mi}}, readinessProbe: {exec: {command: [cat, /tmp/x]}, periodSeconds: 5}, lifecycle: {postStart: {exec: {command: [touch, /tmp/x]}}}`, "")
	n.create("volumes", idle+`, volumeMounts: [{name: data, mountPath: /data}, {name: memory, mountPath: /memory}]`,
		"  volumes: [{name: data, emptyDir: {}}, {name: memory, emptyDir: {medium: Memory}}]")
	names := []string{"plain", "bound", "volumes"}
	n.awaitReady(names...)
	return names
}

// comeBack waits until the node and its pods run again after a reboot, and checks that each pod runs only once. restartsBefore has the
// restart counts from before the reboot.
func (n *node) comeBack(names []string, restartsBefore map[string]int) {
	n.Helper()
	// After the boot the API has the old statuses until the agent writes new ones, so the test looks at the runtime first.
	n.await("the pods to be back", podBound, func() (bool, string) {
		running := n.sh(`crictl ps -q | wc -l`)
		return running == "3", running + " containers run"
	})
	if err := n.AwaitReady(n.Context()); err != nil {
		n.Fatal(err)
	}
	n.await("each pod to count its restart", podBound, func() (bool, string) {
		pods := n.pods()
		var left []string
		for _, name := range names {
			p := pods[name]
			if p == nil || !p.ready() || p.Status.ContainerStatuses[0].RestartCount != restartsBefore[name]+1 {
				left = append(left, fmt.Sprintf("%s: %v", name, p))
			}
		}
		return len(left) == 0, strings.Join(left, "; ")
	})
	var sandboxes struct {
		Items []struct{ Metadata struct{ Name string } }
	}
	if err := json.Unmarshal([]byte(n.sh("crictl pods -s ready -o json")), &sandboxes); err != nil {
		n.Fatal(err)
	}
	var got []string
	for _, s := range sandboxes.Items {
		got = append(got, s.Metadata.Name)
	}
	slices.Sort(got)
	if want := slices.Sorted(slices.Values(names)); !slices.Equal(got, want) {
		n.Errorf("sandboxes that are ready: %v, want one each of %v", got, want)
	}
	if got := n.sh("systemctl is-failed kubelet containerd || true"); got != "active\nactive" {
		n.Errorf("the units are: %s", got)
	}
}

func (n *node) restarts() map[string]int {
	counts := map[string]int{}
	for name, p := range n.pods() {
		counts[name] = p.Status.ContainerStatuses[0].RestartCount
	}
	return counts
}

// After a power cut the node comes back by itself. Each pod runs once, counts one restart and, when it is deleted, leaves nothing behind.
func TestPowerCut(t *testing.T) {
	n := newNode(t)
	names := n.some()
	before := n.restarts()
	began := time.Now()
	if err := n.Machine.PowerCut(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := n.Machine.Boot(t.Context()); err != nil {
		t.Fatal(err)
	}
	n.comeBack(names, before)
	t.Logf("back %.0f s after the cut", time.Since(began).Seconds())
	n.gone()
}

// After a power cut while pods start, all pods start, and none runs twice.
func TestPowerCutWhilePodsStart(t *testing.T) {
	n := newNode(t)
	names := []string{"early", "middle", "late"}
	for _, name := range names {
		n.create(name, idle, "")
	}
	n.await("the first sandbox", podBound, func() (bool, string) {
		count := n.sh(`crictl pods -q | wc -l`)
		return count != "0", count
	})
	if err := n.Machine.PowerCut(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := n.Machine.Boot(t.Context()); err != nil {
		t.Fatal(err)
	}
	n.awaitReady(names...)
	if got := n.sh(`crictl ps -q | wc -l`); got != "3" {
		t.Errorf("%s containers run, of 3 pods", got)
	}
	n.gone()
}

// After an orderly reboot the node also comes back by itself, and each pod runs once.
func TestReboot(t *testing.T) {
	n := newNode(t)
	names := n.some()
	before := n.restarts()
	if err := n.Machine.Reboot(t.Context()); err != nil {
		t.Fatal(err)
	}
	n.comeBack(names, before)
	n.gone()
}

// gone deletes all pods and checks that they leave nothing behind on the machine.
func (n *node) gone() {
	n.Helper()
	n.noPods()
	n.await("what the pods had to go", time.Minute, func() (bool, string) {
		left := map[string]string{}
		for what, script := range map[string]string{
			"directories": "ls /var/lib/kubelet/pods", "logs": "ls /var/log/pods", "links of logs": "ls /var/log/containers",
			"mounts":    "grep -o ' /var/lib/kubelet/pods/[^ ]*' /proc/self/mountinfo || true",
			"cgroups":   "find /sys/fs/cgroup/kubepods.slice -name '*-pod*.slice'",
			"sandboxes": "crictl pods -q",
			"network":   "ip -o link show type veth",
		} {
			if out := n.sh(script); out != "" {
				left[what] = out
			}
		}
		return len(left) == 0, fmt.Sprint(left)
	})
}
