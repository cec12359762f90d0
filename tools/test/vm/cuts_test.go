package vm

import (
	"fmt"
	"math"
	"os"
	"strings"
	"testing"
	"time"
)

// cutsWithin is the span of time after a change in which TestPowerCuts cuts the power. In an emulated guest a pod starts or ends in it.
const cutsWithin = 15 * time.Second

// cutMoment returns how long after the change the cut of the number i comes. The moments of consecutive numbers are spread over cutsWithin, and no
// two are equal.
func cutMoment(i int) time.Duration {
	const golden = 0.6180339887498949
	_, part := math.Modf(float64(i) * golden)
	return time.Duration(part * float64(cutsWithin)).Round(time.Millisecond)
}

// The power is cut again and again, each time at another moment after a pod was created and another one deleted. Each time the node comes back by itself: a
// pod that ran before counts one restart, the created pod runs, the deleted pod goes, and nothing is left of pods that are gone.
// WHERRY_VM_CUTS has the numbers of the first and of the last cut; a number stands for the same moment in each run.
func TestPowerCuts(t *testing.T) {
	var first, last int
	if text := os.Getenv("WHERRY_VM_CUTS"); text == "" {
		t.Skip("set WHERRY_VM_CUTS=1-20 to cut the power 20 times (1 to 2 minutes each)")
	} else if _, err := fmt.Sscanf(text, "%d-%d", &first, &last); err != nil || first < 1 || last < first {
		t.Fatalf("WHERRY_VM_CUTS is %q, not FIRST-LAST", text)
	}
	n := newNode(t)
	n.create("kept", idle, "")
	n.create(fmt.Sprint("new-", first-1), idle, "")
	n.awaitReady("kept", fmt.Sprint("new-", first-1))
	for i := first; i <= last && !t.Failed(); i++ {
		n.cut(i)
	}
	n.gone()
}

// cut creates the pod of the number i and deletes the one of the number before, cuts the power at the moment of i, and looks at the node that comes back.
func (n *node) cut(i int) {
	n.Helper()
	created, deleted, at := fmt.Sprint("new-", i), fmt.Sprint("new-", i-1), cutMoment(i)
	restarts := n.restarts()["kept"]
	n.create(created, idle, "")
	n.kubectl("delete", "pod", deleted, "--wait=false")
	time.Sleep(at)
	pods := n.pods()
	began := time.Now()
	if err := n.Machine.PowerCut(n.Context()); err != nil {
		n.Fatal(err)
	}
	if err := n.Machine.Boot(n.Context()); err != nil {
		n.Fatal(err)
	}
	booted := time.Since(began)
	if err := n.AwaitReady(n.Context()); err != nil {
		n.Fatal(err)
	}
	n.await("the pods to be as they should be", podBound, func() (bool, string) {
		now := n.pods()
		kept, fresh := now["kept"], now[created]
		done := len(now) == 2 && kept != nil && kept.ready() && kept.Status.ContainerStatuses[0].RestartCount == restarts+1 && fresh != nil && fresh.ready()
		return done, fmt.Sprint(now)
	})
	n.await("nothing of other pods to be left", time.Minute, func() (bool, string) {
		left := n.sh(`ls -d /var/lib/kubelet/pods/* | wc -l; ls -d /var/log/pods/* | wc -l; crictl ps -q | wc -l; crictl pods -s ready -q | wc -l; find /sys/fs/cgroup/kubepods.slice -name '*-pod*.slice' | wc -l; ip -o link show type veth | wc -l`)
		return strings.ReplaceAll(left, "\n", " ") == "2 2 2 2 2 2", "directories, logs, containers, sandboxes, cgroups, network devices: " + left
	})
	n.Logf("| %d | %.1f s | %v | %v | %.0f s | %.0f s |", i, at.Seconds(), pods[created], pods[deleted], booted.Seconds(), time.Since(began).Seconds())
}
