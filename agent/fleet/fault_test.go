package fleet_test

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/wherry-node/wherry/agent"
	"github.com/wherry-node/wherry/agent/fleet"
	"github.com/wherry-node/wherry/agent/simulated"
)

// leaseAge returns how old the lease of a node is.
func (b *bench) leaseAge(t *testing.T, node string) time.Duration {
	t.Helper()
	l, err := b.admin.CoordinationV1().Leases(v1.NamespaceNodeLease).Get(t.Context(), node, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return time.Since(l.Spec.RenewTime.Time)
}

func (b *bench) container(t *testing.T, pod string) v1.ContainerStatus {
	t.Helper()
	p, err := b.admin.CoreV1().Pods("default").Get(t.Context(), pod, metav1.GetOptions{})
	if err != nil || len(p.Status.ContainerStatuses) != 1 {
		t.Fatalf("pod %s: %v, %d containers", pod, err, len(p.Status.ContainerStatuses))
	}
	return p.Status.ContainerStatuses[0]
}

// only returns a Selector that chooses the node of this name.
func only(name string) fleet.Selector { return fleet.Selector{Names: []string{name}} }

// A machine that crashes loses its containers and starts new ones after it is healed. If only the agent ends, the containers continue to
// run. In both cases the node's lease is not renewed until the fault is healed.
func TestCrashAndReturn(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		kind  fleet.FaultKind
		stays bool
	}{{fleet.FaultCrash, false}, {fleet.FaultAgent, true}} {
		synctest.Test(t, func(t *testing.T) {
			b := start(t, fleet.Config{Name: "f", Groups: []fleet.Group{{Count: 2}}})
			b.until(t, "both join", settled)
			b.createPod(t, "p", "f-node-1")
			b.until(t, "it runs", func(s fleet.Status) bool { return s.Pods.Running == 1 })
			time.Sleep(5 * time.Second) // until the leases exist
			before := b.container(t, "p").ContainerID
			if _, err := b.fleet.Inject(only("f-node-1"), fleet.Fault{Kind: c.kind}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(50 * time.Second)
			if s := b.fleet.Status(); s.Nodes.Crashed != 1 {
				t.Errorf("%s: %+v", c.kind, s.Nodes)
			}
			if age := b.leaseAge(t, "f-node-1"); age < 40*time.Second {
				t.Errorf("%s: the lease of the node is %s old", c.kind, age)
			}
			if age := b.leaseAge(t, "f-node-2"); age > 11*time.Second {
				t.Errorf("%s: the lease of the other node is %s old", c.kind, age)
			}
			if _, err := b.fleet.Heal(fleet.Selector{All: true}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(30 * time.Second)
			after := b.container(t, "p")
			if age := b.leaseAge(t, "f-node-1"); age > 11*time.Second || after.State.Running == nil || (after.ContainerID == before) != c.stays {
				t.Errorf("%s, healed: lease %s old, container %+v, was %s", c.kind, age, after, before)
			}
			b.end(t)
		})
	}
}

// A machine that shuts down ends its pods if its node has a shutdownGracePeriod. Without one, and after the shutdown has been cancelled, pods
// run.
func TestShutdown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		graceful := agent.DefaultConfiguration()
		graceful.ShutdownGracePeriod.Duration, graceful.ShutdownGracePeriodCriticalPods.Duration = time.Minute, 10*time.Second
		b := start(t, fleet.Config{Name: "f", Groups: []fleet.Group{{Count: 1, Kubelet: &graceful}, {Name: "abrupt", Count: 1}}})
		b.until(t, "both join", settled)
		b.createPod(t, "p", "f-node-1")
		b.createPod(t, "q", "f-abrupt-1")
		b.until(t, "they run", func(s fleet.Status) bool { return s.Pods.Running == 2 })
		if _, err := b.fleet.Inject(fleet.Selector{All: true}, fleet.Fault{Kind: fleet.FaultShutdown}); err != nil {
			t.Fatal(err)
		}
		b.until(t, "the pod of one ends", func(s fleet.Status) bool { return s.Pods.Running == 1 && s.Pods.Failed == 1 })
		if c := b.container(t, "q"); c.State.Running == nil {
			t.Errorf("a node without shutdownGracePeriod ended its container: %+v", c)
		}
		if s := b.fleet.Status(); s.Nodes.Ready != 1 {
			t.Errorf("%d nodes are ready, want the one without shutdownGracePeriod", s.Nodes.Ready)
		}
		if _, err := b.fleet.Heal(fleet.Selector{All: true}); err != nil {
			t.Fatal(err)
		}
		b.until(t, "both are ready", func(s fleet.Status) bool { return s.Nodes.Ready == 2 })
		b.createPod(t, "r", "f-node-1")
		b.until(t, "a new pod runs", func(s fleet.Status) bool { return s.Pods.Running == 2 })
		b.end(t)
	})
}

// A node whose network is not set up is not Ready. Its pods run on, and new ones wait until the fault is healed. An agent that restarts meanwhile
// says the same; a machine that boots has a new runtime, and its node is Ready.
func TestNotReady(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := start(t, fleet.Config{Name: "f", Groups: []fleet.Group{{Count: 3}}})
		b.until(t, "all join", settled)
		b.createPod(t, "p", "f-node-1")
		b.until(t, "it runs", func(s fleet.Status) bool { return s.Pods.Running == 1 })
		before := b.container(t, "p").ContainerID
		first, second := only("f-node-1"), only("f-node-2")
		for _, s := range []fleet.Selector{first, second} {
			if _, err := b.fleet.Inject(s, fleet.Fault{Kind: fleet.FaultNotReady}); err != nil {
				t.Fatal(err)
			}
		}
		b.until(t, "two are not ready", func(s fleet.Status) bool { return s.Nodes.Ready == 1 })
		if _, err := b.fleet.Inject(first, fleet.Fault{Kind: fleet.FaultAgent, For: 5 * time.Second}); err != nil {
			t.Fatal(err)
		}
		if _, err := b.fleet.Inject(second, fleet.Fault{Kind: fleet.FaultCrash, For: 5 * time.Second}); err != nil {
			t.Fatal(err)
		}
		b.createPod(t, "q", "f-node-1")
		time.Sleep(2 * time.Minute)
		if s := b.fleet.Status(); s.Nodes.Ready != 2 || s.Pods.Running != 1 || b.container(t, "p").ContainerID != before {
			t.Errorf("during the fault: %+v", s)
		}
		if c := b.node(t, "f-node-1").Status.Conditions; !slices.ContainsFunc(c, func(c v1.NodeCondition) bool {
			return c.Type == v1.NodeReady && c.Status == v1.ConditionFalse && strings.Contains(c.Message, "cni plugin not initialized")
		}) {
			t.Errorf("conditions %+v", c)
		}
		if _, err := b.fleet.Heal(first); err != nil {
			t.Fatal(err)
		}
		b.until(t, "all are ready, and the new pod runs", func(s fleet.Status) bool { return s.Nodes.Ready == 3 && s.Pods.Running == 2 })
		b.end(t)
	})
}

// A partitioned node does not renew its lease and does not see new pods. After the partition it starts the pod that was created meanwhile
// and renews its lease.
func TestPartition(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := start(t, fleet.Config{Name: "f", Groups: []fleet.Group{{Count: 3}}})
		b.until(t, "all join", settled)
		time.Sleep(5 * time.Second) // until the leases exist
		chosen, err := b.fleet.Inject(only("f-node-2"), fleet.Fault{Kind: fleet.FaultPartition, For: time.Minute})
		if diff := cmp.Diff([]string{"f-node-2"}, chosen); diff != "" || err != nil {
			t.Fatal(diff, err)
		}
		b.createPod(t, "p", "f-node-2")
		b.createPod(t, "q", "f-node-3")
		time.Sleep(55 * time.Second)
		s := b.fleet.Status()
		if s.Nodes.Partitioned != 1 || s.Pods.Running != 1 || s.Leases.P99 > time.Second {
			t.Errorf("during the partition: %+v", s)
		}
		if age := b.leaseAge(t, "f-node-2"); age < 50*time.Second {
			t.Errorf("the lease is %s old", age)
		}
		b.until(t, "the pod runs after the partition", func(s fleet.Status) bool { return s.Pods.Running == 2 && s.Nodes.Partitioned == 0 })
		time.Sleep(5 * time.Second)
		if age := b.leaseAge(t, "f-node-2"); age > 15*time.Second {
			t.Errorf("after the partition the lease is %s old", age)
		}
		b.end(t)
	})
}

// While RunPodSandbox has a delay of 20 s, a pod starts late. After Heal a pod starts at once.
func TestSlowRuntime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := start(t, fleet.Config{Name: "f", Groups: []fleet.Group{{Count: 1}}})
		b.until(t, "it joins", settled)
		slow := fleet.Fault{Kind: fleet.FaultRuntime, Runtime: simulated.Fault{Method: "RunPodSandbox", Delay: 20 * time.Second}}
		if _, err := b.fleet.Inject(fleet.Selector{All: true}, slow); err != nil {
			t.Fatal(err)
		}
		b.createPod(t, "p", "f-node-1")
		time.Sleep(15 * time.Second)
		if s := b.fleet.Status(); s.Pods.Running != 0 {
			t.Errorf("the pod runs although the runtime is slow: %+v", s)
		}
		b.until(t, "the pod runs later", func(s fleet.Status) bool { return s.Pods.Running == 1 })
		if _, err := b.fleet.Heal(fleet.Selector{All: true}); err != nil {
			t.Fatal(err)
		}
		b.createPod(t, "q", "f-node-1")
		time.Sleep(5 * time.Second)
		if s := b.fleet.Status(); s.Pods.Running != 2 {
			t.Errorf("the pod does not run although the runtime is healed: %+v", s)
		}
		b.end(t)
	})
}

// The same seed chooses the same nodes. A selector that chooses no node is an error.
func TestSelectors(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := start(t, fleet.Config{Name: "f", Groups: []fleet.Group{
			{Name: "a", Count: 10, Zones: []string{"z1", "z2"}}, {Name: "b", Count: 10, Labels: map[string]string{"disk": "slow"}},
		}})
		b.until(t, "all join", settled)
		slow := fleet.Fault{Kind: fleet.FaultRuntime, Runtime: simulated.Fault{Delay: time.Millisecond}}
		choose := func(s fleet.Selector) string {
			names, err := b.fleet.Inject(s, slow)
			if err != nil {
				t.Fatal(err)
			}
			return strings.Join(names, " ")
		}
		first := choose(fleet.Selector{Percent: 20, Seed: 7})
		if n := len(strings.Fields(first)); n != 4 || choose(fleet.Selector{Count: 4, Seed: 7}) != first || choose(fleet.Selector{Count: 4, Seed: 8}) == first {
			t.Errorf("20 %% of 20 nodes: %s", first)
		}
		if of := choose(fleet.Selector{Group: "b", Count: 100}); strings.Count(of, "f-b-") != 10 || strings.Contains(of, "f-a-") {
			t.Errorf("of group b: %s", of)
		}
		if of := choose(fleet.Selector{Labels: "topology.kubernetes.io/zone=z2", All: true}); of != "f-a-10 f-a-2 f-a-4 f-a-6 f-a-8" {
			t.Errorf("of zone z2: %s", of)
		}
		if of := choose(fleet.Selector{Labels: "topology.kubernetes.io/zone notin (z1), disk!=slow", Percent: 40}); len(strings.Fields(of)) != 2 || strings.Contains(of, "f-b-") {
			t.Errorf("40 %% of zone z2: %s", of)
		}
		for want, s := range map[string]fleet.Selector{
			`no node is chosen: 0 nodes could be with labels "disk=fast"`:                   {Labels: "disk=fast", All: true},
			`no node is chosen: the fleet has no such node in group "a" with labels "disk"`: {Labels: "disk", Group: "a", Names: []string{"f-b-1"}},
			`label selector "disk in": `:                                                    {Labels: "disk in", All: true},
			"the label selector has 5000 bytes, more than 4096":                             {Labels: strings.Repeat("a", 5000), All: true},
			"in one way":            {},
			"names, by a count":     {All: true, Count: 3},
			"the fleet has no such": {Names: []string{"x"}},
			`group "x": no such group: the fleet has a, b`: {Group: "x", All: true},
			"no node is chosen":                            {Percent: 0.1},
			"a positive number":                            {Count: -1},
		} {
			if _, err := b.fleet.Inject(s, slow); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%+v: %v, want %s", s, err, want)
			}
		}
		if err := b.fleet.Scale("", 3); err == nil || err.Error() != "the fleet has several groups: choose one of a, b" {
			t.Errorf("scale no group: %v", err)
		}
		for want, fault := range map[string]fleet.Fault{
			`fault "melt"`:  {Kind: "melt"},
			"negative time": {Kind: fleet.FaultCrash, For: -1},
			"needs a delay": {Kind: fleet.FaultRuntime},
		} {
			if _, err := b.fleet.Inject(fleet.Selector{All: true}, fault); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%+v: %v, want %s", fault, err, want)
			}
		}
		b.end(t)
	})
}

// Nodes that cannot have a fault are left out, and the answer says how many and why. If none is left, or if a node was named that cannot have it,
// that is an error, and no node has the fault.
func TestNodesThatAreLeftOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		gpus := []simulated.Devices{{Resource: "example.com/gpu", Count: 4}}
		b := start(t, fleet.Config{Name: "f", Groups: []fleet.Group{{Name: "a", Count: 4, Devices: gpus}, {Name: "b", Count: 3}}})
		b.until(t, "all join", settled)
		if _, err := b.fleet.Inject(only("f-a-1"), fleet.Fault{Kind: fleet.FaultCrash}); err != nil {
			t.Fatal(err)
		}
		all, named, crashed := fleet.Selector{All: true}, fleet.Selector{Names: []string{"f-a-1", "f-a-2"}}, only("f-a-1")
		lasts := func(f fleet.Fault) fleet.Fault {
			f.For = time.Minute
			return f
		}
		hangs := lasts(fleet.Fault{Kind: fleet.FaultRuntime, Runtime: simulated.Fault{Method: "PullImage", Hang: true}})
		broken := lasts(fleet.Fault{Kind: fleet.FaultDevices, Devices: simulated.DeviceFault{Resource: "example.com/gpu"}})
		full := lasts(fleet.Fault{Kind: fleet.FaultPressure, Pressure: simulated.Pressure{Disk: 50}})
		for _, c := range []struct {
			of      fleet.Selector
			fault   fleet.Fault
			on, out int
			why     string
		}{
			{all, hangs, 6, 1, "node f-a-1 has crashed: its runtime does not run"},
			{fleet.Selector{Percent: 100}, full, 6, 1, "node f-a-1 has crashed: it has no memory and disk in use"},
			{all, lasts(fleet.Fault{Kind: fleet.FaultShutdown}), 6, 1, "node f-a-1 has crashed: it cannot shut down"},
			{all, broken, 3, 4, "node f-a-1 has crashed: it has no devices"},
			{fleet.Selector{Group: "a", Count: 4}, broken, 3, 1, "node f-a-1 has crashed: it has no devices"},
			{all, lasts(fleet.Fault{Kind: fleet.FaultLease}), 7, 0, ""},
		} {
			in, err := b.fleet.InjectEach(c.of, c.fault)
			if err != nil || len(in.On) != c.on || in.LeftOut != c.out || in.Why != c.why {
				t.Errorf("%s: %+v, %v, want %+v", c.fault.Kind, in, err, c)
			}
			time.Sleep(2 * time.Minute)
		}
		for want, c := range map[string]struct {
			of    fleet.Selector
			fault fleet.Fault
		}{
			"node f-a-1 has crashed: its runtime does not run":           {named, hangs},
			"node f-a-1 has crashed: it has no memory and disk in use":   {crashed, full},
			"node f-b-1: the node has no devices example.com/gpu":        {fleet.Selector{Group: "b", All: true}, broken},
			`method "PulImage": CRI v1 has no such method; did you mean`: {all, fleet.Fault{Kind: fleet.FaultRuntime, Runtime: simulated.Fault{Method: "PulImage", Hang: true}}},
		} {
			if in, err := b.fleet.InjectEach(c.of, c.fault); err == nil || !strings.Contains(err.Error(), want) || len(in.On) != 0 {
				t.Errorf("%+v, %v, want %s", in, err, want)
			}
		}
		if faults := b.fleet.Status().Faults; len(faults) != 1 || faults[0].Kind != fleet.FaultCrash {
			t.Errorf("faults at the end: %+v", faults)
		}
		b.end(t)
	})
}

// Each fault lasts for its own duration, even if another fault of the same kind on the node ends or is healed earlier.
func TestFaultsOverlap(t *testing.T) {
	t.Parallel()
	for _, kind := range []fleet.FaultKind{fleet.FaultCrash, fleet.FaultAgent, fleet.FaultPartition} {
		synctest.Test(t, func(t *testing.T) {
			b := start(t, fleet.Config{Name: "f", Groups: []fleet.Group{{Count: 1}}})
			b.until(t, "it joins", settled)
			inject := func(lasts time.Duration) {
				t.Helper()
				if _, err := b.fleet.Inject(fleet.Selector{All: true}, fleet.Fault{Kind: kind, For: lasts}); err != nil {
					t.Fatal(err)
				}
			}
			suffers := func(when string, want bool) {
				t.Helper()
				s := b.fleet.Status()
				if got := s.Nodes.Crashed+s.Nodes.Partitioned > 0; got != want {
					t.Errorf("%s, %s: the node suffers is %v: %+v", kind, when, got, s.Nodes)
				}
			}
			inject(60 * time.Second)
			time.Sleep(10 * time.Second)
			inject(20 * time.Second) // this fault ends before the first one
			time.Sleep(25 * time.Second)
			suffers("after the shorter fault", true)
			time.Sleep(30 * time.Second)
			suffers("after both", false)

			inject(20 * time.Second)
			if _, err := b.fleet.Heal(fleet.Selector{All: true}); err != nil {
				t.Fatal(err)
			}
			inject(0) // this fault lasts until Heal
			time.Sleep(30 * time.Second)
			suffers("after the end of a fault that was healed before", true)
			if _, err := b.fleet.Heal(fleet.Selector{All: true}); err != nil {
				t.Fatal(err)
			}
			suffers("after the second heal", false)
			b.end(t)
		})
	}
}
