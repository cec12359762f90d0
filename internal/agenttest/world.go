package agenttest

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/wherry-node/wherry/agent"
	"github.com/wherry-node/wherry/internal/checkpoint"
	"github.com/wherry-node/wherry/internal/simcri"
	"github.com/wherry-node/wherry/internal/simkube"
)

// NodeName is the node of every World.
const NodeName = "node-1"

// Namespace is where pods are, unless they say otherwise.
const Namespace = "default"

// agentName is the User-Agent of agents, to the API server.
const agentName = "agent"

// Config says what a World is like. The zero value is one where everything answers at once.
type Config struct {
	Seed    uint64
	Kube    simkube.Config
	Runtime simcri.Config
	// Agent changes the agent's configuration before each start.
	Agent func(*agent.Config)
	// Deps changes what the agent is given before each start.
	Deps func(*agent.Deps)
	// Forgetful: the machine keeps no checkpoints across agents.
	Forgetful bool
	// Standalone: the agent has no API server.
	Standalone bool
	// Plant is a defect that the Witness has to find.
	Plant *Bug
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
	disk    *checkpoint.InMemory
	log     *tail
	atFirst string // the log when the first invariant broke
	// The agent that runs, if one does.
	line  *line
	end   context.CancelFunc
	ended chan error
	// Agents that were killed: what they had under way may go on for a while.
	ghosts []chan error

	diskFull atomic.Bool
	crashes  int
	quiet    bool // what the Witness found is not told
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

// givenUp is what a planted World panics with where another would fail.
type givenUp struct{}

// runPlanted is Run with a defect: it returns what the Witness found instead of failing.
func runPlanted(t *testing.T, cfg Config, f func(w *World)) (found []Violation) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, cfg)
		defer func() {
			w.quiet = true
			w.close()
			found = w.Witness.Violations()
		}()
		defer func() {
			if p := recover(); p != nil && p != (givenUp{}) {
				panic(p)
			}
		}()
		w.StartAgent()
		f(w)
	})
	return found
}

func newWorld(t testing.TB, cfg Config) *World {
	w := &World{TB: t, cfg: cfg, Witness: newWitness(), log: &tail{}, disk: &checkpoint.InMemory{}}
	if path := os.Getenv(logFile); path != "" {
		f, err := os.Create(path) //nolint:gosec // the user's own choice
		if err != nil {
			t.Fatal(err)
		}
		w.log.all = f
	}
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
	var err error
	if w.Admin, err = w.Kube.Client("admin"); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *World) close() {
	w.StopAgent()
	for _, g := range w.ghosts {
		<-g
	}
	w.Runtime.Close()
	if w.quiet {
		return
	}
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
	if w.Alive() {
		w.Fatal("an agent is running")
	}
	kubelet := agent.DefaultConfiguration()
	kubelet.EnableServer = new(false)
	cfg := agent.Config{NodeName: NodeName, Kubelet: kubelet}
	if w.cfg.Agent != nil {
		w.cfg.Agent(&cfg)
	}
	ctx, cancel := context.WithCancel(context.Background())
	l := newLine(w, func() {
		cancel()
		w.Witness.agent(false)
	})
	client := &rest.Config{Host: "http://simkube", Transport: l, UserAgent: agentName, QPS: -1}
	if w.cfg.Standalone {
		client = nil
	}
	shape := agent.Shape{}
	if !w.cfg.Forgetful {
		shape.Disk = disk{w.disk, l}
	}
	deps := agent.Deps{
		Client: client, Runtime: l, Images: l, Dialer: w.Runtime, Machine: agent.SimulatedMachine(shape),
		Log: slog.New(slog.NewTextHandler(w.log, &slog.HandlerOptions{Level: slog.LevelInfo})),
	}
	if w.cfg.Deps != nil {
		w.cfg.Deps(&deps)
	}
	a, err := agent.New(cfg, deps)
	if err != nil {
		w.Fatal(err)
	}
	ended := make(chan error, 1)
	w.line, w.end, w.ended = l, cancel, ended
	w.Witness.agent(true)
	go func() { ended <- a.Run(ctx) }()
}

// Alive reports whether an agent runs; a fuse (CrashAfter) may have ended it.
func (w *World) Alive() bool { return w.line != nil && !w.line.isCut() }

// StopAgent ends the agent, as SIGTERM does, and waits until it has ended.
func (w *World) StopAgent() {
	w.Helper()
	if w.line == nil {
		return
	}
	if w.line.isCut() {
		w.bury()
		return
	}
	w.end()
	if err := <-w.ended; err != nil {
		w.Errorf("the agent ended with %v", err)
	}
	w.Witness.agent(false)
	w.line.end()
	w.line = nil
}

// CrashAgent kills the agent, as SIGKILL does: nothing that it wanted to do happens any more. What the runtime has under
// way for it goes on, or is dropped.
func (w *World) CrashAgent(goesOn bool) {
	if w.Alive() {
		w.line.cut(goesOn)
	}
	w.bury()
}

// CrashAfter kills the agent at its n-th action on the runtime from now: before it is done, or when it is done and the
// agent does not know it yet.
func (w *World) CrashAfter(n int, done, goesOn bool) {
	if w.Alive() {
		w.line.light(n, done, goesOn)
	}
}

// bury leaves a killed agent's goroutines to end in their own time.
func (w *World) bury() {
	if w.line != nil {
		w.ghosts = append(w.ghosts, w.ended)
		w.line = nil
		w.crashes++
	}
}

// SetDiskFull makes writing of checkpoints fail, or succeed again.
func (w *World) SetDiskFull(full bool) { w.diskFull.Store(full) }

// MoveClock moves the machine's clock while no agent runs, as far as a bubble can: what the disk keeps becomes older by
// d. The clock itself goes on evenly, and the API server's and the runtime's with it.
func (w *World) MoveClock(d time.Duration) {
	for _, uid := range w.disk.UIDs() {
		m, err := w.disk.Load(uid)
		if err != nil || m == nil {
			w.Fatalf("load the checkpoint of %s: %v, %v", uid, m, err)
		}
		shiftTimes(m, d)
		if err := w.disk.Save(uid, m); err != nil {
			w.Fatal(err)
		}
	}
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
	w.await(RuleConverges, what, d, ok)
}

// await is Await for a rule that breaks where it is in vain.
func (w *World) await(rule Rule, what string, d time.Duration, ok func() bool) {
	w.Helper()
	for end := time.Now().Add(d); ; time.Sleep(20 * time.Millisecond) {
		synctest.Wait()
		if ok() {
			return
		}
		if time.Now().Before(end) {
			continue
		}
		if w.cfg.Plant != nil {
			w.Witness.note(rule, "after %s not yet: %s", d, what)
			panic(givenUp{})
		}
		w.Fatalf("after %s not yet: %s\n%s", d, what, w.Describe())
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
	all   io.WriteCloser // nil: nobody wants all of it
}

const tailLines = 150

// logFile names a file that gets all that agents say; for one who looks into a failure.
const logFile = "WHERRY_SIM_LOG"

// Write takes one line.
func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.all != nil {
		_, _ = t.all.Write(b) // a help for one who reads along
	}
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
func (w *World) MachineHolds() int { return len(w.disk.UIDs()) }
