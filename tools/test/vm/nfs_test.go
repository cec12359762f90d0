package vm

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/wherry-node/wherry/tools/internal/vmnode"
)

// These say how many pods use the NFS server that stops, for how long it stops, and how many other pods start and end before and after that.
const (
	nfsPods   = 5
	nfsPause  = 10 * time.Minute
	nfsRounds = 3
)

// nfsVolume is a volume on the NFS server of the guest, which is its own client.
const nfsVolume = "  volumes: [{name: data, nfs: {server: 127.0.0.1, path: /srv/nfs}}]\n"

// nfsWriter appends a line to a file of the pod on the server every 5 s. It counts the writes that fail in its log.
const nfsWriter = `command: [sh, -c, "trap 'exit 0' TERM; while :; do date +%s >> /data/$HOSTNAME || echo failed; sleep 5 & wait $!; done"], volumeMounts: [{name: data, mountPath: /data}]`

// The NFS server of five pods stops for ten minutes, and the agent restarts meanwhile. The node stays Ready, and other pods start, log
// and end, and the statistics answer, about as fast as before. A pod of the server that is deleted meanwhile goes. When the server is back,
// the other pods go on in the same containers without a failed write, and one that was created meanwhile starts.
func TestNFSServerStops(t *testing.T) {
	n := newNode(t)
	n.sh(`mkdir -p /srv/nfs && rm -f /srv/nfs/* && chmod 777 /srv/nfs && echo '/srv/nfs 127.0.0.1(rw,no_root_squash,no_subtree_check)' > /etc/exports && systemctl restart nfs-server && exportfs -ra`)
	defer n.sh("systemctl restart nfs-server") // otherwise a failure would leave mounts behind that hang
	names := n.nfsWriters()
	restarts := n.restarts()
	beside := &besideNFS{node: n}
	for range nfsRounds {
		beside.round("before")
	}

	n.sh("systemctl stop nfs-server")
	stopped := time.Now()
	n.kubectl("delete", "pod", names[0], "--wait=false")
	n.create("late", nfsWriter, nfsVolume)
	var gone time.Duration
	for restarted := false; time.Since(stopped) < nfsPause; {
		beside.round("during")
		if gone == 0 && n.pods()[names[0]] == nil {
			gone = time.Since(stopped)
		}
		if !restarted && time.Since(stopped) > nfsPause/2 {
			restarted = true
			n.sh("systemctl restart kubelet")
		}
	}
	if gone == 0 {
		t.Errorf("the pod %s was deleted when the server stopped, and is there %v later", names[0], nfsPause)
	}
	if p := n.pods()["late"]; p == nil || p.ready() {
		t.Errorf("the pod that was created without its server: %v", p)
	}
	away := time.Since(stopped)
	n.sh("systemctl start nfs-server && exportfs -ra")
	began := time.Now()
	left := append(names[1:], "late")
	pods := n.awaitReady(left...)
	n.nfsWrites(left)
	t.Logf("the server was away for %v; the deleted pod was gone after at most %v; all pods wrote again %v after the server's start",
		away.Round(time.Second), gone.Round(time.Second), time.Since(began).Round(time.Second))
	for _, name := range names[1:] {
		if now := pods[name].Status.ContainerStatuses[0].RestartCount; now != restarts[name] {
			t.Errorf("%s has restarted %d times", name, now-restarts[name])
		}
		if log := n.kubectl("logs", name); log != "" {
			t.Errorf("writes of %s failed %d times", name, strings.Count(log, "failed"))
		}
	}
	for range nfsRounds {
		beside.round("after")
	}
	beside.report()
	n.noPods()
	if left := n.sh("grep -E ' nfs4? ' /proc/mounts || true"); left != "" { // nfsd, the server's own file system, stays
		t.Errorf("NFS mounts are left:\n%s", left)
	}
}

// nfsWriters starts the pods that write to the server, and returns their names when each has written.
func (n *node) nfsWriters() (names []string) {
	n.Helper()
	for i := range nfsPods {
		names = append(names, fmt.Sprintf("nfs-%d", i))
		n.create(names[i], nfsWriter, nfsVolume)
	}
	n.awaitReady(names...)
	n.nfsWrites(names)
	return names
}

// nfsWrites waits until each of the pods has written a line to the server after the call.
func (n *node) nfsWrites(names []string) {
	n.Helper()
	now := n.sh("date +%s")
	n.await("each pod to write", podBound, func() (bool, string) {
		out := n.sh(`cd /srv/nfs && for f in ` + strings.Join(names, " ") + `; do [ "$(tail -n 1 $f 2>/dev/null || echo 0)" -gt ` + now + ` ] || echo $f; done`)
		return out == "", "these do not write: " + out
	})
}

// besideNFS starts and ends pods that use no NFS, one after another, and keeps what each took.
type besideNFS struct {
	*node
	rounds []nfsRound
}

// nfsRound is what one pod without NFS took in a phase of the test: until it was Ready, until its log and the node's statistics were read,
// and until it was gone after its deletion. lease is how old the node's lease was.
type nfsRound struct {
	phase                          string
	start, log, stats, stop, lease time.Duration
}

func (b *besideNFS) round(phase string) {
	b.Helper()
	r := nfsRound{phase: phase}
	name := fmt.Sprint("other-", len(b.rounds))
	measure := func(took *time.Duration, do func()) {
		b.Helper()
		began := time.Now()
		do()
		*took = time.Since(began)
	}
	measure(&r.start, func() {
		b.create(name, idle, "")
		b.awaitReady(name)
	})
	measure(&r.log, func() {
		if out := b.kubectl("logs", name); strings.TrimSpace(out) != "up" {
			b.Errorf("the log of %s is %q", name, out)
		}
	})
	measure(&r.stats, func() {
		if out := b.kubectl("get", "--raw", "/api/v1/nodes/"+vmnode.NodeName+"/proxy/stats/summary"); !strings.Contains(out, `"`+name+`"`) {
			b.Errorf("the statistics of the node do not have %s", name)
		}
	})
	if out := b.kubectl("get", "node", vmnode.NodeName, "-o", `jsonpath={.status.conditions[?(@.type=="Ready")].status}`); out != "True" {
		b.Errorf("the node's condition Ready is %s", out)
	}
	r.lease = b.leaseAge()
	measure(&r.stop, func() {
		b.kubectl("delete", "pod", name, "--wait=false")
		b.await("a pod without NFS to go", podBound, func() (bool, string) {
			p := b.pods()[name]
			return p == nil, fmt.Sprint(p)
		})
	})
	b.rounds = append(b.rounds, r)
}

// leaseAge returns how old the node's lease is by the clock of the guest, which wrote it.
func (n *node) leaseAge() time.Duration {
	n.Helper()
	text := n.kubectl("get", "lease", "-n", "kube-node-lease", vmnode.NodeName, "-o", "jsonpath={.spec.renewTime}")
	renewed, err := time.Parse(time.RFC3339, text)
	if err != nil {
		n.Fatal(err)
	}
	return time.UnixMilli(int64(n.number(n.sh("date +%s%3N")))).Sub(renewed)
}

// report logs the table of the phases, and checks that the phase during was about as fast as the phase before, and that the node's lease never became
// as old as its 40 s.
func (b *besideNFS) report() {
	b.Helper()
	columns := []struct {
		what string
		of   func(nfsRound) time.Duration
	}{
		{"start", func(r nfsRound) time.Duration { return r.start }},
		{"log", func(r nfsRound) time.Duration { return r.log }},
		{"statistics", func(r nfsRound) time.Duration { return r.stats }},
		{"end", func(r nfsRound) time.Duration { return r.stop }},
		{"age of the lease", func(r nfsRound) time.Duration { return r.lease }},
	}
	medians := map[string]map[string]time.Duration{}
	for _, phase := range []string{"before", "during", "after"} {
		line := "| " + phase
		medians[phase] = map[string]time.Duration{}
		for i, c := range columns {
			var took []time.Duration
			for _, r := range b.rounds {
				if r.phase == phase {
					took = append(took, c.of(r))
				}
			}
			slices.Sort(took)
			if i == 0 {
				line += fmt.Sprint(" | ", len(took))
			}
			medians[phase][c.what] = took[len(took)/2]
			line += fmt.Sprintf(" | %.1f (%.1f) s", took[len(took)/2].Seconds(), took[len(took)-1].Seconds())
		}
		b.Log(line + " |")
	}
	for _, c := range columns[:4] {
		if before, during := medians["before"][c.what], medians["during"][c.what]; during > 3*before+5*time.Second {
			b.Errorf("%s: a median of %v while the server was away, and of %v before", c.what, during, before)
		}
	}
	for _, r := range b.rounds {
		if r.lease >= 40*time.Second {
			b.Errorf("%s: the node's lease was %v old", r.phase, r.lease)
		}
	}
}
