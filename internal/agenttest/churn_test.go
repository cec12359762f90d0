package agenttest

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/internal/simcri"
	"github.com/wherry-node/wherry/internal/simkube"
)

// Flags of TestChurn; a failing seed prints the command that repeats it.
//
//nolint:gochecknoglobals // flags of a test binary
var (
	seeds     = flag.Int("seeds", 12, "how many seeds TestChurn runs")
	firstSeed = flag.Uint64("seed", 1, "the first of them")
)

// TestChurn lets seeded users, runtimes, networks and restarts loose on an agent for half an hour each, while the
// Witness looks; then everything is well again, and the API must come to say what the runtime does.
func TestChurn(t *testing.T) {
	t.Parallel()
	for i := range *seeds {
		seed := *firstSeed + uint64(i)
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			defer func() {
				if t.Failed() {
					t.Logf("to repeat: go test ./internal/agenttest -run 'TestChurn/^%d$' -seed %d -seeds 1", seed, seed)
				}
			}()
			cfg := Config{Seed: seed, Runtime: simcri.Config{Latency: latencies()},
				Kube: simkube.Config{Latency: 4 * time.Millisecond, WatchLatency: 8 * time.Millisecond}}
			Run(t, cfg, func(w *World) { newChurn(w, seed).run() })
		})
	}
}

// churn is one seeded run.
type churn struct {
	*World
	rng    *rand.Rand
	names  []string
	next   int
	faults []func()
}

func newChurn(w *World, seed uint64) *churn {
	return &churn{World: w, rng: rand.New(rand.NewPCG(seed, 7))}
}

const (
	churnFor  = 30 * time.Minute
	churnPods = 12
	slowest   = 30 * time.Second // call of the runtime
)

func (c *churn) run() {
	c.Witness.KnownWithin = 2*slowest + 15*time.Second // a creation and a start
	for end := time.Now().Add(churnFor); time.Now().Before(end); {
		c.step()
		time.Sleep(c.between(100*time.Millisecond, 20*time.Second))
	}
	for _, remove := range c.faults {
		remove()
	}
	if c.end == nil {
		c.StartAgent()
	}
	c.WaitConverged(8 * time.Minute)
	for _, name := range c.alive() {
		c.Delete(name, 1)
	}
	c.Await("nothing is left", 8*time.Minute, func() bool {
		return len(c.Kube.Pods()) == 0 && len(c.Witness.Containers()) == 0 && len(c.Witness.Sandboxes()) == 0 && c.MachineHolds() == 0
	})
	c.Await("the node is Ready", 5*time.Minute, func() bool { return c.NodeReady().Status == v1.ConditionTrue })
}

func (c *churn) between(low, high time.Duration) time.Duration {
	return low + time.Duration(c.rng.Int64N(int64(high-low)))
}

// alive are the names of pods in the API, in an order that a seed repeats.
func (c *churn) alive() []string {
	c.names = slices.DeleteFunc(c.names, func(n string) bool { return c.Kube.Pod(Namespace, n) == nil })
	return slices.Clone(c.names)
}

func (c *churn) pick() string {
	if names := c.alive(); len(names) > 0 {
		return names[c.rng.IntN(len(names))]
	}
	return ""
}

// step does one thing that happens to nodes.
func (c *churn) step() {
	switch n := c.rng.IntN(100); {
	case n < 40:
		c.create()
	case n < 60:
		if name := c.pick(); name != "" {
			c.Delete(name, []int64{-1, -1, 0, 1, 5, 30}[c.rng.IntN(6)])
		}
	case n < 72:
		c.kill()
	case n < 76:
		if ids := c.Witness.Sandboxes(); len(ids) > 0 {
			c.Runtime.KillSandbox(ids[c.rng.IntN(len(ids))])
		}
	case n < 84:
		c.runtimeFault()
	case n < 88:
		c.Outage(c.between(time.Second, 4*time.Minute))
	case n < 91:
		c.Kube.CutWatches()
		if c.rng.IntN(2) == 0 {
			c.Kube.Compact()
		}
	case n < 95:
		c.apiFault()
	default:
		c.StopAgent()
		if c.rng.IntN(3) == 0 { // what happens to nodes without an agent
			for range c.rng.IntN(3) {
				if name := c.pick(); name != "" {
					c.Delete(name, []int64{-1, 0}[c.rng.IntN(2)])
				}
				c.kill()
			}
		}
		time.Sleep(c.between(0, 3*time.Minute))
		c.StartAgent()
	}
}

func (c *churn) kill() {
	var running []Instance
	for _, in := range c.Witness.Containers() {
		if in.Running {
			running = append(running, in)
		}
	}
	if len(running) > 0 {
		c.Runtime.Exit(running[c.rng.IntN(len(running))].ID, int32(c.rng.IntN(2)), "", "")
	}
}

// create creates a pod with some of what pods have; now and then under a name that was used before.
func (c *churn) create() {
	if len(c.alive()) >= churnPods {
		return
	}
	name := fmt.Sprintf("p%d", c.next)
	c.next++
	if c.rng.IntN(3) == 0 {
		name = fmt.Sprintf("same%d", c.rng.IntN(3))
	}
	if c.Kube.Pod(Namespace, name) != nil {
		return
	}
	p := Pod(name, func(p *v1.Pod) { p.Spec.TerminationGracePeriodSeconds = new(int64(c.rng.IntN(40))) })
	some := func(percent int) bool { return c.rng.IntN(100) < percent }
	always := v1.ContainerRestartPolicyAlways
	main := &p.Spec.Containers[0]
	if some(30) {
		p.Spec.InitContainers = append(p.Spec.InitContainers, v1.Container{Name: "init", Image: "i:1", Command: []string{"sh", "-c", "sleep 2"}})
	}
	if some(20) {
		p.Spec.InitContainers = append(p.Spec.InitContainers, v1.Container{Name: "side", Image: "i:1", RestartPolicy: &always})
	}
	if some(20) {
		p.Spec.Containers = append(p.Spec.Containers, v1.Container{Name: "second", Image: "i:2"})
	}
	main = &p.Spec.Containers[0]
	switch c.rng.IntN(6) {
	case 0:
		p.Annotations[simcri.AnnotationStopAfter] = "never"
	case 1:
		p.Annotations[simcri.AnnotationStopAfter] = c.between(0, 50*time.Second).String()
	}
	switch c.rng.IntN(6) {
	case 0:
		p.Annotations[simcri.AnnotationRunFor+".main"] = c.between(0, 5*time.Minute).String()
		p.Annotations[simcri.AnnotationExitCode+".main"] = fmt.Sprint(c.rng.IntN(2))
		p.Spec.RestartPolicy = []v1.RestartPolicy{v1.RestartPolicyAlways, v1.RestartPolicyOnFailure, v1.RestartPolicyNever}[c.rng.IntN(3)]
	case 1:
		main.LivenessProbe, main.ReadinessProbe = httpProbe(5, 2), httpProbe(3, 1)
		if some(50) {
			p.Annotations[simcri.AnnotationFailAfter+".main"] = c.between(10*time.Second, 3*time.Minute).String()
		}
	case 2:
		main.Lifecycle = &v1.Lifecycle{PreStop: &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{"sh", "-c", "sleep 3"}}}}
		if some(50) {
			main.Lifecycle.PostStart = &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{"sh", "-c", "sleep 1"}}}
		}
	case 3:
		p.Spec.ActiveDeadlineSeconds = new(int64(c.rng.IntN(200) + 1))
	case 4:
		main.Image = "registry.invalid/x:1"
	}
	c.Create(p)
	c.names = append(c.names, name)
}

// runtimeFault injects something that happens to runtimes, for a while.
func (c *churn) runtimeFault() {
	methods := []string{"RunPodSandbox", "CreateContainer", "StartContainer", "StopContainer", "StopPodSandbox", "RemoveContainer",
		"RemovePodSandbox", "PodSandboxStatus", "ContainerStatus", "ListContainers", "PullImage", simcri.MethodEvent, "ExecSync", ""}
	f := simcri.Fault{Method: methods[c.rng.IntN(len(methods))], Times: 1 + c.rng.IntN(6), Chance: 0.2 + c.rng.Float64()*0.8}
	switch c.rng.IntN(6) {
	case 0:
		f.Effect, f.Err = simcri.Lost, status.Error(codes.DeadlineExceeded, "lost")
		f.Delay = c.between(0, 10*time.Second)
	case 1:
		f.Effect = simcri.Hang
		f.Times = 1
	case 2:
		f.Effect, f.Delay = simcri.Slow, c.between(time.Second, slowest)
	case 3:
		f.Effect, f.Err = simcri.Refuse, status.Error(codes.Unavailable, "connection refused")
	case 4:
		f.Effect, f.Delay = simcri.KeepName, c.between(0, time.Minute)
		if f.Method != "RunPodSandbox" && f.Method != "CreateContainer" {
			f.Effect = simcri.Refuse
		}
	case 5:
		c.Runtime.Disconnect()
	}
	c.faults = append(c.faults, c.Runtime.Inject(f))
}

// apiFault injects something that happens to API servers, to requests of the agent.
func (c *churn) apiFault() {
	f := simkube.Fault{Times: 1 + c.rng.IntN(4)}
	f.Verb, f.Resource = "patch", "pods/status"
	switch c.rng.IntN(4) {
	case 0:
		f.Verb, f.Resource = "update", "leases"
	case 1:
		f.Verb, f.Resource = "patch", "nodes/status"
	}
	f.Effect = []simkube.Effect{simkube.Break, simkube.Slow, simkube.Lost, simkube.Hang}[c.rng.IntN(4)]
	f.Delay = c.between(0, 20*time.Second)
	c.faults = append(c.faults, c.Kube.Inject(f))
}
