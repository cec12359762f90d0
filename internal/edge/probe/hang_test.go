package probe

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/wherry-node/wherry/internal/core/pod"
)

// silence is a network in which connections to the address nowhere hang, and all others succeed at once.
type silence struct {
	began     time.Time
	mu        sync.Mutex
	hung, top int
	good      []string // when the other connections were made
}

const nowhere = "10.255.255.1"

func (n *silence) DialContext(ctx context.Context, _, addr string) (net.Conn, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !strings.HasPrefix(addr, nowhere+":") {
		n.good = append(n.good, time.Since(n.began).String())
		a, b := net.Pipe()
		return a, b.Close()
	}
	n.hung++
	n.top = max(n.top, n.hung)
	n.mu.Unlock()
	<-ctx.Done()
	n.mu.Lock()
	n.hung--
	return nil, ctx.Err()
}

// connected returns when connections were made that did not hang.
func (n *silence) connected() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.good)
}

// hanging runs f in a network of type silence, and collects the reports of late probes.
func hanging(t *testing.T, cfg Config, f func(t *testing.T, r *rig, n *silence, late *[]Lateness, behind *[]Behind)) {
	var mu sync.Mutex
	var late []Lateness
	var behind []Behind
	n := &silence{}
	cfg.Dialer = n
	cfg.Late = func(l Lateness) { mu.Lock(); late = append(late, l); mu.Unlock() }
	cfg.Behind = func(b Behind) { mu.Lock(); behind = append(behind, b); mu.Unlock() }
	inBubble(t, cfg, func(t *testing.T, r *rig) {
		n.began = time.Now()
		f(t, r, n, &late, &behind)
	})
}

// setHung sets pods with containers whose probes, made by probe, hang.
func (r *rig) setHung(pods, containers int, probe func(path string) *v1.Probe) {
	for i := range pods {
		var targets []Target
		for k := range containers {
			spec := &v1.Container{LivenessProbe: probe("/live"), ReadinessProbe: probe("/ready")}
			targets = append(targets, Target{ContainerID: fmt.Sprintf("hung-%d-%d", i, k), StartedAt: time.Now(), Spec: spec})
		}
		r.Set(hungPod(i), targets)
	}
}

func hungPod(i int) pod.Ref {
	name := fmt.Sprint("hung-", i)
	return pod.Ref{Namespace: "ns", Name: name, UID: types.UID(name)}
}

// setGood sets one pod whose liveness probe opens a connection, the first time after delay, then every ten seconds.
func (r *rig) setGood(delay int32) {
	spec := &v1.Container{LivenessProbe: &v1.Probe{
		ProbeHandler:  v1.ProbeHandler{TCPSocket: &v1.TCPSocketAction{Port: intstr.FromInt(80)}},
		PeriodSeconds: 10, InitialDelaySeconds: delay,
	}}
	r.Set(ref, []Target{{ContainerID: "good", Host: "10.0.0.1", StartedAt: time.Now(), Spec: spec}})
}

func hungGet(path string) *v1.Probe {
	return &v1.Probe{
		ProbeHandler:  v1.ProbeHandler{HTTPGet: &v1.HTTPGetAction{Host: nowhere, Path: path, Port: intstr.FromInt(80)}},
		PeriodSeconds: 1, TimeoutSeconds: 1_000_000,
	}
}

// expectNothingLeft fails the test if checks are still counted although no pod is left.
func (r *rig) expectNothingLeft(t *testing.T) {
	t.Helper()
	r.Probes.mu.Lock()
	defer r.Probes.mu.Unlock()
	if len(r.running) > 0 || r.slow > 0 || len(r.usage) > 0 || r.timers.Len() > 0 {
		t.Errorf("still counted: %d checks, %d slow ones, %d shares, %d timers", len(r.running), r.slow, len(r.usage), r.timers.Len())
	}
}

// The connections of one pod with very many probes, or of many pods, hang, and timeoutSeconds has no maximum. The probes of another pod run
// on time.
func TestHungConnectionsDelayNoOtherPod(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name             string
		pods, containers int
		top              int
	}{
		{"one pod", 1, 64, connsPerPod},
		{"twenty pods", 20, 16, 20 * connsPerPod},
	} {
		t.Run(c.name, func(t *testing.T) {
			hanging(t, Config{}, func(t *testing.T, r *rig, n *silence, late *[]Lateness, behind *[]Behind) {
				r.setHung(c.pods, c.containers, hungGet)
				pass(5 * time.Second)
				r.setGood(1)
				pass(time.Minute)
				r.expect(t, "connections", n.connected(), []string{"6s", "16s", "26s", "36s", "46s", "56s"})
				if n.top != c.top {
					t.Errorf("%d connections hung at once, want %d", n.top, c.top)
				}
				if len(*late)+len(*behind) > 0 {
					t.Errorf("reported: %+v, %+v", *late, *behind)
				}
				for i := range c.pods {
					r.Forget(hungPod(i).UID)
				}
				r.Forget(ref.UID)
				pass(0)
				r.expectNothingLeft(t)
			})
		})
	}
}

// The commands of sixteen pods hang. The probes of another pod run on time.
func TestHungCommandsDelayNoOtherPod(t *testing.T) {
	hanging(t, Config{}, func(t *testing.T, r *rig, n *silence, _ *[]Lateness, _ *[]Behind) {
		r.hangs, r.took = true, 100*time.Hour
		r.setHung(16, execsPerPod, func(path string) *v1.Probe {
			p := execProbe(path, 1, 0, 1)
			p.TimeoutSeconds = 1_000_000
			return p
		})
		pass(5 * time.Second)
		r.mu.Lock()
		if r.now != 16*execsPerPod {
			t.Errorf("%d commands hang, want %d", r.now, 16*execsPerPod)
		}
		r.mu.Unlock()
		r.setGood(1)
		other := pod.Ref{Namespace: "ns", Name: "other", UID: "other"}
		r.Set(other, []Target{{ContainerID: "good-command", StartedAt: time.Now(), Spec: &v1.Container{LivenessProbe: execProbe("x", 10, 1, 1)}}})
		pass(10 * time.Second)
		r.expect(t, "connections", n.connected(), []string{"6s"})
		r.mu.Lock()
		if last := r.execs[len(r.execs)-1]; last != "6s good-command x" {
			t.Errorf("the last command is %q", last)
		}
		r.mu.Unlock()
		for i := range 16 {
			r.Forget(hungPod(i).UID)
		}
		r.Forget(ref.UID)
		r.Forget(other.UID)
		pass(0)
		r.expectNothingLeft(t)
	})
}

// The number of checks that hang is bounded. If that bound is reached, the probes that cannot begin are reported, once, while they wait.
func TestSlowChecksAreBounded(t *testing.T) {
	const most = 2 * (1 + slowest)
	hanging(t, Config{MaxParallel: 2}, func(t *testing.T, r *rig, n *silence, _ *[]Lateness, behind *[]Behind) {
		r.setHung(5, 5, hungGet) // 50 probes
		r.setGood(30)
		pass(5 * time.Minute)
		if got := n.connected(); n.top != most || len(got) > 0 {
			t.Errorf("%d checks hung at once, want %d; other connections at %v", n.top, most, got)
		}
		if len(*behind) != 1 {
			t.Fatalf("Behind was called with %+v, want one call", *behind)
		}
		if b := (*behind)[0]; b.Waiting != 50-most+1 || b.Most < behindWindow || b.Most > behindWindow+2*fullAgain {
			t.Errorf("%+v", b)
		}
		for i := range 5 {
			r.Forget(hungPod(i).UID)
		}
		pass(0)
		if got := n.connected(); len(got) == 0 || got[0] != "5m0s" {
			t.Errorf("after the end of the checks that hang, connections at %v", got)
		}
		r.Forget(ref.UID)
		pass(0)
		r.expectNothingLeft(t)
	})
}

// Checks of a pod wait for other checks of the same pod, and each gets its turn, although those that have ended are due again at once. The
// report about a late probe says why, and the node is not reported as behind.
func TestAPodThatDelaysItselfIsNotALateNode(t *testing.T) {
	hanging(t, Config{}, func(t *testing.T, r *rig, _ *silence, late *[]Lateness, behind *[]Behind) {
		r.setHung(1, 64, func(path string) *v1.Probe {
			p := hungGet(path)
			p.TimeoutSeconds, p.FailureThreshold = 5, 1000
			return p
		})
		r.setGood(1)
		pass(5 * time.Minute)
		if got := len(r.Failing(hungPod(0).UID)); got != 2*64 {
			t.Errorf("only %d probes have had their turn", got)
		}
		if len(*late) == 0 || len(*behind) > 0 {
			t.Errorf("%d reports about probes, want some; about the node: %+v", len(*late), *behind)
		}
		for _, l := range *late {
			if !l.Own || l.Pod != hungPod(0) {
				t.Errorf("%+v", l)
			}
		}
	})
}
