package vm

import (
	"fmt"
	"strings"
	"testing"
)

// When a pod with tellsItsEnd and endsVolume ends, it writes the time, in seconds, to a file with its name in the directory ends of the guest.
const (
	ends        = "/root/ends"
	tellsItsEnd = `command: [sh, -c, "trap 'sleep 1; date +%s > /out/$(hostname); sync; exit 0' TERM; while :; do sleep 0.2; done"], volumeMounts: [{name: out, mountPath: /out}]`
	endsVolume  = "  volumes: [{name: out, hostPath: {path: /root/ends, type: DirectoryOrCreate}}]\n  terminationGracePeriodSeconds: 20\n"
)

// A reboot of the machine waits for pods (graceful node shutdown). Regular pods end before critical ones, each within the period of its
// group. The API gets their last status before the machine is down. After the reboot these pods do not run again, and the node accepts new
// pods.
func TestShutdownWaitsForPods(t *testing.T) {
	n := newNode(t)
	n.reconfigure("shutdownGracePeriod: 120s\nshutdownGracePeriodCriticalPods: 60s\n")
	defer n.reconfigure("")
	n.await("the agent to delay shutdowns", podBound, func() (bool, string) {
		list := n.sh("systemd-inhibit --list --no-legend || true")
		return strings.Contains(list, "kubelet") && strings.Contains(list, "delay"), list
	})
	// An earlier configuration may have left a longer delay, which the agent does not shorten.
	delay := n.sh("busctl get-property org.freedesktop.login1 /org/freedesktop/login1 org.freedesktop.login1.Manager InhibitDelayMaxUSec")
	if us := n.number(strings.TrimPrefix(delay, "t ")); us < 120_000_000 {
		t.Errorf("logind delays a shutdown by %d us", us)
	}
	n.sh("rm -rf " + ends)
	n.create("regular", tellsItsEnd, endsVolume)
	n.createIn("kube-system", "critical", tellsItsEnd, endsVolume+"  priorityClassName: system-node-critical\n")
	n.awaitReady("regular")
	n.await("the critical pod", podBound, func() (bool, string) {
		out := n.kubectl("get", "pod", "-n", "kube-system", "critical", "-o", "jsonpath={.status.phase}")
		return out == "Running", out
	})
	if err := n.Machine.Reboot(t.Context()); err != nil {
		t.Fatal(err)
	}
	var regular, critical int
	for name, to := range map[string]*int{"regular": &regular, "critical": &critical} {
		*to = n.number(n.file(ends + "/" + name))
	}
	if regular == 0 || critical <= regular {
		t.Errorf("the regular pod ended at %d, the critical one at %d", regular, critical)
	}
	for _, where := range [][]string{{"default", "regular"}, {"kube-system", "critical"}} {
		got := n.kubectl("get", "pod", "-n", where[0], where[1], "-o", "jsonpath={.status.phase} {.status.reason} {.status.message}")
		if got != "Failed Terminated Pod was terminated in response to imminent node shutdown." {
			t.Errorf("pod %s: the API has: %s", where[1], got)
		}
	}
	if got := n.kubectl("get", "events", "--field-selector", "involvedObject.kind=Node,reason=Shutdown", "-o", "jsonpath={.items[*].message}"); !strings.Contains(got, "detected shutdown event") {
		t.Errorf("the node's events say: %q", got)
	}
	if err := n.AwaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := n.sh("crictl ps -q | wc -l"); got != "0" {
		t.Errorf("after the reboot %s containers run", got)
	}
	n.kubectl("delete", "pod", "-n", "kube-system", "critical", "--wait=false")
	n.create("later", idle, "")
	n.awaitReady("later")
	n.gone()
}

// With shutdownGracePeriodByPodPriority, the pods end group by group, from the lowest priority to the highest, and the API gets the last status
// of each before the machine is down. The periods are long because an emulated machine needs 10 s or more to end a pod; a group whose pods have
// ended does not wait for the rest of its period.
func TestShutdownByPriority(t *testing.T) {
	n := newNode(t)
	n.reconfigure("shutdownGracePeriodByPodPriority: [{priority: 0, shutdownGracePeriodSeconds: 60}, {priority: 1000, shutdownGracePeriodSeconds: 60}, {priority: 100000, shutdownGracePeriodSeconds: 60}]\n")
	defer n.reconfigure("")
	n.await("the agent to delay shutdowns", podBound, func() (bool, string) {
		list := n.sh("systemd-inhibit --list --no-legend || true")
		return strings.Contains(list, "kubelet") && strings.Contains(list, "delay"), list
	})
	for name, value := range map[string]int{"middle": 1000, "high": 100000} {
		class := fmt.Sprintf("{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: %s}, value: %d}\n", name, value)
		n.apply(class)
	}
	n.sh("rm -rf " + ends)
	names := []string{"low", "middle", "high"}
	for _, name := range names {
		spec := endsVolume
		if name != "low" {
			spec += "  priorityClassName: " + name + "\n"
		}
		n.create(name, tellsItsEnd, spec)
	}
	n.awaitReady(names...)
	if err := n.Machine.Reboot(t.Context()); err != nil {
		t.Fatal(err)
	}
	last := 0
	for _, name := range names {
		at := n.number(n.file(ends + "/" + name))
		if at <= last {
			t.Errorf("the pod %s ended at %d, and one of a lower priority at %d", name, at, last)
		}
		last = at
		got := n.kubectl("get", "pod", name, "-o", "jsonpath={.status.phase} {.status.reason}")
		t.Logf("%s ended at %d; the API has: %s", name, at, got)
		if got != "Failed Terminated" {
			t.Errorf("pod %s: the API has: %s", name, got)
		}
	}
	if err := n.AwaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	n.gone()
}
