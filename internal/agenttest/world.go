package agenttest

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"github.com/wherry-node/wherry/agent"
	"github.com/wherry-node/wherry/internal/simcri"
	"github.com/wherry-node/wherry/internal/simkube"
)

// NodeName is the node of every World.
const NodeName = "node-1"

// Namespace is where pods are, unless they say otherwise.
const Namespace = "default"

// Config says what a World is like. The zero value is one where everything answers at once.
type Config struct {
	Seed    uint64
	Kube    simkube.Config
	Runtime simcri.Config
	// Agent changes the agent's configuration before each start.
	Agent func(*agent.Config)
	// Forgetful: the machine keeps no checkpoints across agents.
	Forgetful bool
	// Standalone: the agent has no API server.
	Standalone bool
}

// World is one node: an agent, its runtime and its API server, in a bubble of their own time.
type World struct {
	testing.TB
	Kube    *simkube.Kube
	Runtime *simcri.Runtime
	// Admin is a client that is not the agent's.
	Admin   kubernetes.Interface
	Witness *Witness

	cfg     Config
	node    kubernetes.Interface
	machine *agent.Machine
	log     *tail
	atFirst string // the log when the first invariant broke
	end     context.CancelFunc
	ended   chan error
}

// Run runs f in a bubble with a running agent. When f returns, the agent is ended; whatever the Witness saw fails the
// test, and so does a goroutine that is left.
func Run(t *testing.T, cfg Config, f func(w *World)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, cfg)
		defer w.close()
		w.StartAgent()
		f(w)
	})
}

func newWorld(t testing.TB, cfg Config) *World {
	w := &World{TB: t, cfg: cfg, Witness: newWitness(), log: &tail{}}
	w.Witness.onBroken = func() { w.atFirst = w.log.String() }
	cfg.Kube.Seed, cfg.Runtime.Seed = cfg.Seed, cfg.Seed
	also := cfg.Kube.OnChange
	cfg.Kube.OnChange = func(typ watch.EventType, old, obj runtime.Object) {
		w.Witness.apiChanged(typ, old, obj)
		if also != nil {
			also(typ, old, obj)
		}
	}
	cfg.Runtime.Observe = w.Witness.runtimeChanged
	w.Kube, w.Runtime = simkube.New(cfg.Kube), simcri.New(cfg.Runtime)
	w.machine = agent.SimulatedMachine(agent.Shape{Keep: !cfg.Forgetful})
	var err error
	if w.Admin, err = w.Kube.Client("admin"); err != nil {
		t.Fatal(err)
	}
	if w.node, err = w.Kube.Client("agent"); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *World) close() {
	w.StopAgent()
	w.Runtime.Close()
	for _, v := range w.Witness.Violations() {
		w.Errorf("invariant: %s", v)
	}
	switch {
	case w.atFirst != "":
		w.Logf("what the agent said before the first:\n%s", w.atFirst)
	case w.Failed():
		w.Logf("the agent's last words:\n%s", w.log)
	}
}

// StartAgent starts an agent on what its predecessor left.
func (w *World) StartAgent() {
	w.Helper()
	if w.end != nil {
		w.Fatal("an agent is running")
	}
	kubelet := agent.DefaultConfiguration()
	kubelet.EnableServer = new(false)
	cfg := agent.Config{NodeName: NodeName, Kubelet: kubelet}
	if w.cfg.Agent != nil {
		w.cfg.Agent(&cfg)
	}
	runtimes, images := w.Runtime.Clients()
	client := w.node
	if w.cfg.Standalone {
		client = nil
	}
	a, err := agent.New(cfg, agent.Deps{
		Client: client, Runtime: runtimes, Images: images, Dialer: w.Runtime, Machine: w.machine,
		Log: slog.New(slog.NewTextHandler(w.log, &slog.HandlerOptions{Level: slog.LevelInfo})),
	})
	if err != nil {
		w.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	w.end, w.ended = cancel, ended
	w.Witness.agent(true)
	go func() { ended <- a.Run(ctx) }()
}

// StopAgent ends the agent and waits until it has.
func (w *World) StopAgent() {
	w.Helper()
	if w.end == nil {
		return
	}
	w.end()
	if err := <-w.ended; err != nil {
		w.Errorf("the agent ended with %v", err)
	}
	w.Witness.agent(false)
	w.end = nil
}

// RestartAgent ends the agent and, after the pause, starts another.
func (w *World) RestartAgent(pause time.Duration) {
	w.Helper()
	w.StopAgent()
	time.Sleep(pause)
	w.StartAgent()
}

// Outage makes the API server unreachable for a time.
func (w *World) Outage(d time.Duration) {
	w.SetOutage(true)
	time.Sleep(d)
	w.SetOutage(false)
}

// SetOutage makes the API server unreachable, for all but the World's own methods, or reachable again.
func (w *World) SetOutage(on bool) {
	w.Kube.SetOutage(on)
	w.Witness.outage(on)
}

// Pod is a pod of one container that serves until it is stopped; options change it.
func Pod(name string, options ...func(*v1.Pod)) *v1.Pod {
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: name, Annotations: map[string]string{}},
		Spec:       v1.PodSpec{NodeName: NodeName, Containers: []v1.Container{{Name: "main", Image: "registry.example/app:1"}}},
	}
	for _, o := range options {
		o(p)
	}
	return p
}

// Annotate sets an annotation, for simcri's behaviours.
func Annotate(key, value string) func(*v1.Pod) {
	return func(p *v1.Pod) { p.Annotations[key] = value }
}

// Create creates a pod and returns its UID.
func (w *World) Create(p *v1.Pod) types.UID {
	w.Helper()
	got, err := w.Admin.CoreV1().Pods(p.Namespace).Create(context.Background(), p, metav1.CreateOptions{})
	if err != nil {
		w.Fatalf("create pod %s: %v", p.Name, err)
	}
	return got.UID
}

// Delete deletes a pod; a negative grace is the pod's own.
func (w *World) Delete(name string, grace int64) {
	w.Helper()
	o := metav1.DeleteOptions{}
	if grace >= 0 {
		o.GracePeriodSeconds = &grace
	}
	if p := w.Kube.Pod(Namespace, name); p != nil {
		w.Witness.deleting(p, o.GracePeriodSeconds)
	}
	if err := w.Admin.CoreV1().Pods(Namespace).Delete(context.Background(), name, o); err != nil {
		w.Fatalf("delete pod %s: %v", name, err)
	}
}

// Kill ends a running container from outside.
func (w *World) Kill(pod, container string, code int32, reason string) {
	w.Helper()
	id := w.Witness.Running(Namespace, pod, container)
	if id == "" {
		w.Fatalf("kill %s/%s: it does not run", pod, container)
	}
	w.Runtime.Exit(id, code, reason, "")
}

// KillSandboxes ends everything in the runtime, as a reboot of the machine does.
func (w *World) KillSandboxes() {
	for _, id := range w.Witness.Sandboxes() {
		w.Runtime.KillSandbox(id)
	}
}

// Await waits, at most for d, until the condition holds, and looks every 20 ms.
func (w *World) Await(what string, d time.Duration, ok func() bool) {
	w.Helper()
	for end := time.Now().Add(d); ; time.Sleep(20 * time.Millisecond) {
		synctest.Wait()
		if ok() {
			return
		}
		if !time.Now().Before(end) {
			w.Fatalf("after %s not yet: %s\n%s", d, what, w.Describe())
		}
	}
}

// WaitPhase waits for a pod's phase in the API.
func (w *World) WaitPhase(name string, phase v1.PodPhase) {
	w.Helper()
	w.Await(fmt.Sprintf("pod %s %s", name, phase), 2*time.Minute, func() bool {
		p := w.Kube.Pod(Namespace, name)
		return p != nil && p.Status.Phase == phase
	})
}

// WaitReady waits until pods are ready in the API.
func (w *World) WaitReady(names ...string) {
	w.Helper()
	w.Await(fmt.Sprintf("pods %s ready", names), 2*time.Minute, func() bool {
		return !slices.ContainsFunc(names, func(n string) bool { return !Ready(w.Kube.Pod(Namespace, n)) })
	})
}

// WaitGone waits until pods are gone from the API and from the runtime.
func (w *World) WaitGone(names ...string) {
	w.Helper()
	w.Await(fmt.Sprintf("pods %s gone", names), 5*time.Minute, func() bool {
		return !slices.ContainsFunc(names, func(n string) bool {
			return w.Kube.Pod(Namespace, n) != nil || w.Witness.Present(Namespace, n)
		})
	})
}

// WaitConverged waits until the API says what the runtime does.
func (w *World) WaitConverged(d time.Duration) {
	w.Helper()
	w.Await("the API says what the runtime does", d, func() bool { return len(w.Differences()) == 0 })
}

// Ready reports whether a pod's Ready condition is true.
func Ready(p *v1.Pod) bool { return Condition(p, v1.PodReady) == v1.ConditionTrue }

// Condition returns the status of a pod's condition, "" without one.
func Condition(p *v1.Pod, typ v1.PodConditionType) v1.ConditionStatus {
	if p == nil {
		return ""
	}
	for i := range p.Status.Conditions {
		if p.Status.Conditions[i].Type == typ {
			return p.Status.Conditions[i].Status
		}
	}
	return ""
}

// NodeReady returns the node's Ready condition; one without a status before it is there.
func (w *World) NodeReady() v1.NodeCondition {
	n := w.Kube.Node(NodeName)
	if n == nil {
		return v1.NodeCondition{}
	}
	for _, c := range n.Status.Conditions {
		if c.Type == v1.NodeReady {
			return c
		}
	}
	return v1.NodeCondition{}
}

// Describe says where everything is, for failures.
func (w *World) Describe() string {
	var b strings.Builder
	pods := w.Kube.Pods()
	for _, p := range pods {
		fmt.Fprintf(&b, "API: pod %s %s %s", p.Name, p.UID, p.Status.Phase)
		if p.DeletionTimestamp != nil {
			fmt.Fprintf(&b, " deleted at %s grace %d", p.DeletionTimestamp.Format(time.TimeOnly), *p.DeletionGracePeriodSeconds)
		}
		for _, list := range [][]v1.ContainerStatus{p.Status.InitContainerStatuses, p.Status.ContainerStatuses} {
			for i := range list {
				fmt.Fprintf(&b, "\n       %s ready=%v restarts=%d id=%.20s %s", list[i].Name, list[i].Ready, list[i].RestartCount, list[i].ContainerID, stateOf(&list[i]))
			}
		}
		b.WriteByte('\n')
	}
	return b.String() + w.Witness.String()
}

func stateOf(s *v1.ContainerStatus) string {
	switch {
	case s.State.Running != nil:
		return "running"
	case s.State.Terminated != nil:
		return fmt.Sprintf("terminated %d %s", s.State.Terminated.ExitCode, s.State.Terminated.Reason)
	case s.State.Waiting != nil:
		return "waiting " + s.State.Waiting.Reason
	}
	return "-"
}

// Differences lists where the API does not say what the runtime does.
func (w *World) Differences() []string {
	var out []string
	pods := w.Kube.Pods()
	for _, c := range w.Witness.Containers() {
		if pods[c.UID] == nil {
			out = append(out, fmt.Sprintf("the runtime has container %s of pod %s (%s), the API not the pod", c.Name, c.Pod, c.UID))
		}
	}
	for uid, p := range pods {
		for i := range p.Status.ContainerStatuses {
			s := &p.Status.ContainerStatuses[i]
			c := w.Witness.Newest(uid, s.Name)
			switch {
			case s.State.Running != nil && (c == nil || !c.Running || !strings.HasSuffix(s.ContainerID, c.ID)):
				out = append(out, fmt.Sprintf("pod %s: the API says that %s runs as %s, the runtime %v", p.Name, s.Name, s.ContainerID, c))
			case s.State.Running == nil && c != nil && c.Running:
				out = append(out, fmt.Sprintf("pod %s: the runtime runs %s, the API says %s", p.Name, s.Name, stateOf(s)))
			}
		}
		if p.DeletionTimestamp != nil {
			out = append(out, fmt.Sprintf("pod %s is still being deleted", p.Name))
		}
	}
	slices.Sort(out)
	return out
}

// tail keeps the last lines of a log.
type tail struct {
	mu    sync.Mutex
	lines []string
}

const tailLines = 150

// Write takes one line.
func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.lines) == tailLines {
		t.lines = slices.Delete(t.lines, 0, tailLines/3)
	}
	t.lines = append(t.lines, string(b))
	return len(b), nil
}

// String is what was kept.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.Join(t.lines, "")
}

// MachineHolds is how many pods left something on the machine.
func (w *World) MachineHolds() int { return w.machine.Kept() }
