package integration

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// These flags set the size of TestCrash. `make crash` gives large values; the defaults are small.
var (
	crashes   = flag.Int("crash", 5, "how often TestCrash kills the agent")
	crashPods = flag.Int("crash.pods", 16, "how many pods TestCrash keeps")
	crashSeed = flag.Uint64("crash.seed", 0, "what TestCrash draws from; 0: the time")
)

// TestCrash kills the agent with SIGKILL at random moments and starts it again, while pods of many kinds are created and deleted. It
// watches the runtime and the API: no container restarts without a reason or has two running instances, no Ready pod becomes unready, each
// pod ends within its grace period, and in the end nothing is left of any pod.
func TestCrash(t *testing.T) {
	seed := *crashSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano()) % 1e6
	}
	s := newSpace(t)
	t.Logf("seed %d; to repeat, as far as time allows: make crash N=%d SEED=%d", seed, *crashes, seed)
	c := &crash{space: s, rng: rand.New(rand.NewPCG(seed, 1)), hooks: filepath.Join(s.env.dir, "crash-hooks"), rt: filepath.Join(s.env.dir, "rt-crash"),
		lost: map[string]time.Time{}}
	if err := os.MkdirAll(c.hooks, 0o777); err != nil {
		t.Fatal(err)
	}
	s.env.addRuntime(c.rt)
	if err := s.env.runtimeUp(c.rt, s.env.subnet(c.rt)); err != nil {
		t.Fatal(err)
	}
	var err error
	if c.node, err = s.env.startNode(nodeConfig{Name: "crash", Runtime: c.rt}); err != nil {
		t.Fatal(err)
	}
	if err := c.node.waitReady(patience); err != nil {
		t.Fatal(err)
	}
	c.eyes = newEyes(c)
	c.churn = newChurn(c, rand.New(rand.NewPCG(seed, 2)))
	c.goneMeanwhile()
	c.run(*crashes)
}

// crash is one run of TestCrash.
type crash struct {
	*space
	rng   *rand.Rand
	node  *node
	rt    string // directory of the containerd that the node uses
	hooks string // directory in which each preStop hook creates a file; the file's name is the UID of the pod
	eyes  *eyes
	churn *churn

	lost map[string]time.Time // when the test noticed a lost task, by container ID; zero after containerd was restarted to remove this task
}

// goneMeanwhile removes pods from the API while no agent runs. The next agent has to run their preStop hooks and to respect their grace
// periods; it finds both in annotations of the containers.
func (c *crash) goneMeanwhile() {
	for _, kind := range []string{"hooks", "drain"} {
		c.pod("gone-"+kind, "{}", func(p *v1.Pod) { p.Labels["kind"], p.Spec, p.Spec.NodeName = kind, c.podSpec(kind), c.node.Name })
	}
	uids := map[string]string{}
	for _, kind := range []string{"hooks", "drain"} {
		p := c.ready("gone-" + kind)
		uids[kind] = string(p.UID)
		c.eyes.forced(p) // this deletion removes the object at once, so the checks of a graceful end do not apply
	}
	c.node.kill()
	c.kubectl("delete", "pod", "gone-hooks", "gone-drain", "--grace-period=0", "--force")
	if err := c.node.restart(); err != nil {
		c.Fatal(err)
	}
	c.eventually("nothing to be left of pods that went while no agent ran", c.nothingLeft)
	if data, err := os.ReadFile(filepath.Join(c.hooks, uids["hooks"])); err != nil || len(data) != 1 {
		c.Errorf("the preStop hook of a pod that went while no agent ran was not run once: %q %v", data, err)
	}
	for kind, uid := range uids {
		for _, i := range c.eyes.instances(uid) {
			if i.exit != 0 {
				c.Errorf("%s of a pod that went while no agent ran was not ended in its own time: %s", kind, i)
			}
		}
	}
}

// settleEach is the number of kills of the agent between two calls of settle.
const settleEach = 20

func (c *crash) run(n int) {
	began := time.Now()
	c.churn.begin()
	defer c.churn.pause()
	_ = wait(5*time.Second, func() error { return errorf("the first pods come") })
	for i := 1; i <= n && !c.eyes.found(); i++ {
		c.pass(c.moment())
		c.node.kill()
		if c.rng.IntN(10) < 4 {
			c.pass(time.Duration(c.rng.Int64N(int64(2 * time.Second))))
		}
		if err := c.node.restart(); err != nil {
			c.Fatal(err)
		}
		if i%settleEach == 0 || i == n {
			c.churn.pause()
			c.settle()
			c.Logf("%d of %d crashes, %s: %s", i, n, time.Since(began).Round(time.Second), c.eyes)
			c.churn.begin()
		}
	}
	c.churn.pause()
	if c.eyes.found() {
		c.report()
		return
	}
	c.ending()
	c.Logf("the agent was killed %d times: %s; %d findings", n, c.eyes, len(c.eyes.findings()))
	if c.eyes.found() {
		c.report()
	}
}

// moment returns how long the agent runs before it is killed. Often that is too short for the agent to do anything.
func (c *crash) moment() time.Duration {
	switch r := c.rng.IntN(10); {
	case r < 3:
		return time.Duration(c.rng.Int64N(int64(400 * time.Millisecond)))
	case r < 8:
		return time.Duration(c.rng.Int64N(int64(2500 * time.Millisecond)))
	default:
		return time.Duration(c.rng.Int64N(int64(7 * time.Second)))
	}
}

func (*crash) pass(d time.Duration) {
	_ = wait(d, func() error { return errorf("not yet") })
}

// settle waits until the runtime and the API agree about all pods, and every pod is in the state that its kind expects (crashKind).
func (c *crash) settle() {
	c.Helper()
	began := time.Now()
	if err := wait(8*time.Minute, func() error { // long, because the machine may be slow
		if c.eyes.found() {
			return fatal{errorf("stopped by a finding")}
		}
		return c.heal(began, c.eyes.settled())
	}); err != nil && !c.eyes.found() {
		c.eyes.finding(c.eyes.unsettled, "the node does not settle: %v", err)
	}
}

// heal restarts containerd if the checks have failed for 40 s and containerd has lost a task. containerd loses a task if its client, here
// the agent, is killed at a certain point of a call. The container is then listed as exited and cannot be removed ("cannot delete running
// task", github.com/containerd/containerd/issues/11037); a sandbox can be removed, but its shim and mount stay. Only a restart of
// containerd helps, with any node agent. heal returns unwell, the error of the checks.
func (c *crash) heal(began time.Time, unwell error) error {
	if unwell == nil || time.Since(began) < 40*time.Second {
		return unwell
	}
	lost := ""
	for _, id := range c.eyes.lostTasks() {
		if since, ok := c.lost[id]; !ok {
			c.lost[id] = time.Now()
		} else if !since.IsZero() && time.Since(since) > 10*time.Second { // before that, the task may just be about to end
			lost, c.lost[id] = id, time.Time{}
		}
	}
	if lost == "" {
		return unwell
	}
	c.Logf("%v: the runtime has lost the task of %.12s: it is started again", unwell, lost)
	c.eyes.restartsRuntime()
	_ = syscall.Kill(c.containerdPid(c.rt), syscall.SIGKILL)
	if err := c.env.runtimeUp(c.rt, c.env.subnet(c.rt)); err != nil {
		c.Fatal(err)
	}
	return unwell
}

// ending deletes all pods and searches for anything that they have left behind.
func (c *crash) ending() {
	ctx, ns := context.Background(), c.name
	background, began := metav1.DeletePropagationBackground, time.Now()
	_ = c.client().AppsV1().Deployments(ns).DeleteCollection(ctx, metav1.DeleteOptions{PropagationPolicy: &background}, metav1.ListOptions{})
	err := wait(3*time.Minute, func() error {
		_ = c.client().CoreV1().Pods(ns).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "bare"})
		list, err := c.client().CoreV1().Pods(ns).List(ctx, metav1.ListOptions{})
		if err == nil && len(list.Items) > 0 {
			err = errorf("there are %v", podNames(list.Items))
		}
		return c.heal(began, err)
	})
	if err != nil {
		c.eyes.finding("", "pods do not go: %v", err)
		return
	}
	began = time.Now()
	if err := wait(3*time.Minute, func() error { return c.heal(began, c.nothingLeft()) }); err != nil {
		c.eyes.finding("", "%v", err)
	}
}

// nothingLeft searches for remains of pods. Besides those that the other tests look for, it looks for network namespaces, IP addresses,
// checkpoints, and processes of the runtime.
func (c *crash) nothingLeft() error {
	if err := c.node.checkNothingLeft(); err != nil {
		return err
	}
	for what, found := range map[string][]string{
		"network namespaces": list(filepath.Join(c.rt, "state", "netns")),
		"tasks":              list(filepath.Join(c.rt, "state", "io.containerd.runtime.v2.task", "k8s.io")),
		"addresses":          addresses(filepath.Join(c.rt, "cni", "ipam")),
		"checkpoints":        list(filepath.Join(c.node.dir, "root", "checkpoints")),
	} {
		if len(found) > 0 {
			return errorf("%s are left: %s", what, strings.Join(found, ", "))
		}
	}
	return nil
}

// addresses returns the IP addresses that the CNI plugin has assigned and not released. ipam is the directory of its host-local IPAM.
func addresses(ipam string) (all []string) {
	files, _ := filepath.Glob(filepath.Join(ipam, "*", "10.*"))
	for _, f := range files {
		all = append(all, filepath.Base(f))
	}
	return all
}

// report fails the test with all findings. For the first pods with a finding it also prints everything that was recorded about them.
func (c *crash) report() {
	c.Helper()
	if err := c.node.process.alive(); err != nil {
		c.Log(err)
	}
	shown := map[string]bool{}
	for _, f := range c.eyes.findings() {
		c.Errorf("%s", f.text)
		if f.uid == "" || shown[f.uid] || len(shown) >= 3 {
			continue
		}
		shown[f.uid] = true
		name, text := c.eyes.story(f.uid)
		out, errOut, _ := c.try("get", "--raw", "/api/v1/nodes/"+c.node.Name+"/proxy/explain/"+c.name+"/"+name)
		c.Logf("pod %s %s\n%s\n/explain: %s%s\nwhat the agents logged:\n%s", name, f.uid, text, out, errOut, c.logged(f.uid))
	}
}

// logged returns what all agents, from the first to the last start, have logged about a pod. Each line begins with the number of the start.
func (c *crash) logged(uid string) string {
	var b strings.Builder
	for i := 0; i <= c.node.starts; i++ {
		file := filepath.Join(c.env.dir, "node-crash.log")
		if i > 0 {
			file = filepath.Join(c.env.dir, fmt.Sprintf("node-crash-%d.log", i))
		}
		data, _ := os.ReadFile(file)
		for line := range strings.Lines(string(data)) {
			if strings.Contains(line, uid) {
				fmt.Fprintf(&b, "%3d %s", i, line)
			}
		}
	}
	return b.String()
}

// isDeleted reports whether the pod is being deleted.
func isDeleted(p *v1.Pod) bool { return p.DeletionTimestamp != nil }
