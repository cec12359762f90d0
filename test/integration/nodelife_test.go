package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// witness watches a node, and the pods of a namespace, in the API, and records what must not happen.
type witness struct {
	mu   sync.Mutex
	saw  []string // what was seen and must not happen, in order
	stop func()
}

// witness starts to watch the node and the pods. It records each time when one of them stops being Ready.
func (s *space) witness(n *node) *witness {
	s.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	w := &witness{}
	var wg sync.WaitGroup
	w.stop = func() { cancel(); wg.Wait() }
	s.Cleanup(w.stop)
	see := func(open func(metav1.ListOptions) (watch.Interface, error), options metav1.ListOptions, check func(any) string) {
		watcher, err := open(options)
		if err != nil {
			s.Fatal(err)
		}
		wg.Go(func() {
			defer watcher.Stop()
			for ev := range watcher.ResultChan() {
				if bad := check(ev.Object); bad != "" {
					w.mu.Lock()
					w.saw = append(w.saw, fmt.Sprintf("%s %s %s", time.Now().Format("15:04:05.000"), ev.Type, bad))
					w.mu.Unlock()
				}
			}
			if ctx.Err() == nil {
				w.mu.Lock()
				w.saw = append(w.saw, "the watch ended before the test")
				w.mu.Unlock()
			}
		})
	}
	c := s.client().CoreV1()
	see(func(o metav1.ListOptions) (watch.Interface, error) { return c.Pods(s.name).Watch(ctx, o) }, metav1.ListOptions{}, func(o any) string {
		if p, ok := o.(*v1.Pod); ok && strings.HasPrefix(p.Name, "stays") && (!isTrue(p, v1.PodReady) || p.DeletionTimestamp != nil) {
			return "pod " + p.Name + " is " + summary(p)
		}
		return ""
	})
	see(func(o metav1.ListOptions) (watch.Interface, error) { return c.Nodes().Watch(ctx, o) }, metav1.ListOptions{FieldSelector: "metadata.name=" + n.Name}, func(o any) string {
		if obj, ok := o.(*v1.Node); ok {
			if r := nodeCondition(obj, v1.NodeReady); r.Status != v1.ConditionTrue {
				return fmt.Sprintf("node %s is Ready=%s: %s", n.Name, r.Status, r.Message)
			}
		}
		return ""
	})
	return w
}

// The method nothing ends the watches of w, and fails the test if w has recorded anything. The text while describes, for the error message,
// what the test did meanwhile.
func (w *witness) nothing(s *space, while string) {
	s.Helper()
	w.stop()
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.saw) > 0 {
		s.Errorf("%s: %s", while, strings.Join(w.saw, "\n"))
	}
}

func nodeCondition(n *v1.Node, kind v1.NodeConditionType) v1.NodeCondition {
	for _, c := range n.Status.Conditions {
		if c.Type == kind {
			return c
		}
	}
	return v1.NodeCondition{Type: kind}
}

// agentEvents returns the agent's events about the pods that must not be affected (see stayers).
func (s *space) agentEvents() (all []string) {
	s.Helper()
	list, err := s.client().CoreV1().Events(s.name).List(context.Background(), metav1.ListOptions{})
	if err != nil {
		s.Fatal(err)
	}
	for _, ev := range list.Items {
		if ev.Source.Component == "kubelet" && strings.HasPrefix(ev.InvolvedObject.Name, "stays") {
			all = append(all, fmt.Sprintf("%s %s %s x%d", ev.InvolvedObject.Name, ev.Reason, ev.Message, ev.Count))
		}
	}
	slices.Sort(all)
	return all
}

// untilReady waits until the Ready condition of the node has the status want, and returns the condition.
func (s *space) untilReady(n *node, want v1.ConditionStatus) (c v1.NodeCondition) {
	s.Helper()
	s.eventually(fmt.Sprintf("node %s to be Ready=%s", n.Name, want), func() (err error) {
		if c, err = n.ready(); err == nil && c.Status != want {
			err = errorf("it is %s: %s", c.Status, c.Message)
		}
		return err
	})
	return c
}

const staying = `
containers:
- {name: http, image: $web, readinessProbe: {httpGet: {path: /healthz, port: 8080}, periodSeconds: 2, timeoutSeconds: 120}}
- {name: shell, image: $busybox, command: [sleep, "100000"], readinessProbe: {exec: {command: ["true"]}, periodSeconds: 2, timeoutSeconds: 120}}`

const stayingPlain = `containers: [{name: main, image: $busybox, command: [sleep, "100000"]}]`

// onNode binds a pod to a node, whatever taints the node has.
func onNode(n *node) func(*v1.Pod) {
	return func(p *v1.Pod) {
		p.Spec.NodeName = n.Name
		p.Spec.Tolerations = []v1.Toleration{{Operator: v1.TolerationOpExists}}
	}
}

// stayers starts two pods that must not be affected by what happens to the node.
func (s *space) stayers(n *node) {
	s.Helper()
	s.pod("stays-probed", staying, onNode(n))
	s.pod("stays-plain", stayingPlain, onNode(n))
	s.ready("stays-probed")
	s.ready("stays-plain")
}

// proof starts a pod, waits until it is Ready, and begins to delete it. By then the agent has handled everything that happened before.
func (s *space) proof(n *node, name string) {
	s.Helper()
	s.pod(name, `containers: [{name: main, image: $busybox, command: [sleep, "100000"], readinessProbe: {exec: {command: ["true"]}, initialDelaySeconds: 3, timeoutSeconds: 20}}]`, onNode(n))
	s.ready(name)
	s.kubectl("delete", "pod", name, "--wait=false")
}

// ids returns the container IDs of the pods that stayers started, as the runtime has them.
func (s *space) ids(n *node) string {
	s.Helper()
	var all []string
	for _, name := range []string{"stays-probed", "stays-plain"} {
		out, err := n.crictl("ps", "-q", "--no-trunc", "--label", "io.kubernetes.pod.uid="+string(s.get(name).UID))
		if err != nil {
			s.Fatal(err)
		}
		all = append(all, strings.Fields(out)...)
	}
	slices.Sort(all)
	if len(all) != 3 {
		s.Fatalf("the staying pods have %d containers, want 3", len(all))
	}
	return strings.Join(all, "\n")
}

// agentLife kills, stops, replaces and disconnects the agent. Running pods are not affected.
func agentLife(t *testing.T, e *env) {
	s := newSpaceOn(t, e)
	rt := filepath.Join(the.dir, "rt-agent")
	the.addRuntime(rt)
	if err := e.runtimeUp(rt, the.subnet(rt)); err != nil { // two containerd instances in one network namespace need different subnets
		t.Fatal(err)
	}
	relay, bootstrap := newRelay(t, e, "agent")
	n, err := e.startNode(nodeConfig{Name: "agent", Runtime: rt, Flags: []string{"--bootstrap-kubeconfig", bootstrap},
		Config: "rotateCertificates: true\nnodeStatusUpdateFrequency: 2s\nnodeLeaseDurationSeconds: 8\n"})
	if err != nil {
		t.Fatal(err)
	}
	if err := n.waitReady(patience); err != nil {
		t.Fatal(err)
	}
	s.stayers(n)
	for _, name := range []string{"stays-probed", "stays-plain"} {
		s.started(name)
	}
	ids, events := s.ids(n), s.agentEvents()
	same := func(after string) {
		s.Helper()
		s.same("containers after "+after, s.ids(n), ids)
		if now := s.agentEvents(); !slices.Equal(now, events) {
			s.Errorf("events after %s:\n got %s\nwant %s", after, strings.Join(now, "\n     "), strings.Join(events, "\n     "))
		}
	}

	for _, how := range []struct {
		name string
		end  func()
	}{{"kill -9", n.kill}, {"a stop", func() { n.process.stop() }}} {
		w := s.witness(n)
		how.end()
		if err := n.restart(); err != nil {
			t.Fatal(err)
		}
		s.proof(n, "after-"+strings.ReplaceAll(how.name, " ", ""))
		w.nothing(s, "over "+how.name+" and a start")
		same(how.name)
	}
	killedAnyTime(s, n)
	same("many ends by kill -9")
	leaseByHand(s, n)
	same("the time without an agent")
	for _, name := range []string{"stays-probed", "stays-plain"} {
		s.ready(name) // the node lifecycle controller had marked it as not ready
	}
	outage(s, n, relay)
	same("an API server out of reach")
	s.kubectl("delete", "pods", "--all", "--wait=false")
	for _, name := range []string{"stays-probed", "stays-plain"} {
		s.gone(name)
	}
	s.eventually("nothing to be left of the pods", n.checkNothingLeft)
}

// killedAnyTime kills the agent at various moments while pods are created and deleted. No container gets two running instances, and the
// next agent removes what is left.
func killedAnyTime(s *space, n *node) {
	for i, after := range []time.Duration{0, 60 * time.Millisecond, 200 * time.Millisecond, 500 * time.Millisecond, time.Second, 1700 * time.Millisecond} {
		if i > 0 {
			s.kubectl("delete", "pods", "-l", fmt.Sprintf("round=%d", i-1), "--wait=false")
		}
		for _, name := range []string{"a", "b"} {
			s.pod(fmt.Sprintf("come-%s-%d", name, i), "initContainers: [{name: first, image: $busybox, command: [sh, -c, exit 0]}]\n"+stayingPlain, onNode(n),
				func(p *v1.Pod) { p.Labels["round"] = strconv.Itoa(i) })
		}
		_ = wait(after, func() error { return errorf("not yet") })
		n.kill()
		if err := n.restart(); err != nil {
			s.Fatal(err)
		}
		s.eventually("the runtime to answer", func() error { return n.twice() })
	}
	for _, name := range []string{"come-a-5", "come-b-5"} {
		if c := s.ready(name).Status.ContainerStatuses[0]; c.RestartCount > 1 { // an interrupted start may count as one restart
			s.Errorf("%s was started %d times", name, c.RestartCount+1)
		}
	}
	s.kubectl("delete", "pods", "-l", "round=5", "--wait=false")
	s.eventually("the pods to go", func() error {
		list, err := s.client().CoreV1().Pods(s.name).List(context.Background(), metav1.ListOptions{LabelSelector: "round"})
		if err == nil && len(list.Items) > 0 {
			err = errorf("there are %v", podNames(list.Items))
		}
		return err
	})
	s.eventually("nothing to be left of them", func() error {
		err := n.checkNothingLeft()
		if err == nil || !strings.Contains(err.Error(), "_come-") {
			return nil // other errors are about pods of other tests
		}
		return err
	})
	if err := n.twice(); err != nil {
		s.Error(err)
	}
}

// twice returns an error if a container of a pod has two running instances. The error is fatal, so the functions that wait return at once.
func (n *node) twice() error {
	out, err := n.crictl("ps", "-o", "json")
	if err != nil {
		return err
	}
	var list struct {
		Containers []struct {
			Labels   map[string]string
			Metadata struct{ Name string }
		}
	}
	if err := json.Unmarshal([]byte(out), &list); err != nil {
		return err
	}
	seen := map[string]bool{}
	for _, c := range list.Containers {
		key := c.Labels["io.kubernetes.pod.namespace"] + "/" + c.Labels["io.kubernetes.pod.name"] + "/" + c.Metadata.Name
		if seen[key] {
			return fatal{errorf("%s runs twice:\n%s", key, out)}
		}
		seen[key] = true
	}
	return nil
}

// leaseByHand checks that the Ready condition of a node without an agent becomes Unknown, that renewing the lease does not change that, and
// that `wherry lease renew --ready` makes the node Ready again.
func leaseByHand(s *space, n *node) {
	n.process.stop()
	began := time.Now()
	out, errOut, err := s.env.runWherry("lease", "renew", n.Name, "--once")
	if err != nil || !strings.Contains(out, "Ready is True") {
		s.Errorf("lease renew of a Ready node: %v\n%s%s", err, out, errOut)
	}
	s.untilReady(n, v1.ConditionUnknown)
	s.Logf("given up %s after its last beat, of 20 s grace", time.Since(began).Round(time.Second))
	out, errOut, err = s.env.runWherry("lease", "renew", n.Name)
	if err == nil || !strings.Contains(errOut, "is Unknown since") || !strings.Contains(errOut, "add --ready to write its conditions too") {
		s.Errorf("lease renew of an Unknown node: %v\n%s%s", err, out, errOut)
	}
	tool, err := start(filepath.Join(s.env.dir, "lease.log"), s.env.wherry, "lease", "renew", n.Name, "--ready", "--interval", "2s", "--kubeconfig", s.env.kubeconfig())
	if err != nil {
		s.Fatal(err)
	}
	defer tool.stop()
	s.contains("Ready condition", s.untilReady(n, v1.ConditionTrue).Message, "wherry lease renew --ready")
	w, until := s.witnessNode(n), time.Now().Add(28*time.Second) // longer than the control plane waits for a node (node-monitor-grace-period)
	_ = wait(time.Until(until), func() error { return errorf("not yet") })
	w.nothing(s, "while the lease is renewed by hand")
	if err := n.restart(); err != nil {
		s.Fatal(err)
	}
	s.eventually("the tool to see the agent", func() error {
		if text := readFile(s, tool.log); !strings.Contains(text, "Somebody else renews the lease of "+n.Name) {
			return errorf("it says %s", text)
		}
		return nil
	})
	s.eventually("the agent's own word", func() error {
		c, err := n.ready()
		if err == nil && c.Reason == "KubeletReady" && !strings.Contains(c.Message, "by hand") && !strings.Contains(c.Message, "wherry lease") {
			return nil
		}
		return errorf("Ready is %+v, %v", c, err)
	})
	s.proof(n, "after-lease")
}

// witnessNode returns a witness that does not watch the test's pods, because these have become unready together with the node.
func (s *space) witnessNode(n *node) *witness {
	other := *s
	other.name = "default"
	return other.witness(n)
}

// outage makes the API server hang, and later refuse connections. Containers keep running. Afterwards the agent reports the containers that
// ended and restarted during the outage, and ends the pod that was deleted during it.
func outage(s *space, n *node, r *relay) {
	for state, name := range map[relayState]string{hangs: "hangs", refuses: "refuses"} {
		s.pod("ends-"+name, `
restartPolicy: Never
volumes: [{name: v, hostPath: {path: `+s.env.dir+`, type: Directory}}]
containers: [{name: main, image: $busybox, volumeMounts: [{name: v, mountPath: /v}], command: [sh, -c, 'until test -e /v/end-`+name+`; do sleep 0.2; done; exit 7']}]`, onNode(n))
		s.pod("deleted-"+name, stayingPlain, onNode(n))
		s.pod("crashes-"+name, `containers: [{name: main, image: $busybox, command: [sleep, "100000"]}]`, onNode(n))
		s.ready("ends-" + name)
		s.ready("deleted-" + name)
		crashes := s.ready("crashes-" + name)
		r.become(state)
		if err := os.WriteFile(filepath.Join(s.env.dir, "end-"+name), nil, 0o644); err != nil {
			s.Fatal(err)
		}
		s.kubectl("delete", "pod", "deleted-"+name, "--wait=false")
		kill(s, n, crashes)
		s.eventually("the container to be started again without an API server", func() error {
			out, err := n.crictl("ps", "-q", "--label", "io.kubernetes.pod.uid="+string(crashes.UID))
			if err == nil && (out == "" || strings.Contains(crashes.Status.ContainerStatuses[0].ContainerID, strings.TrimSpace(out))) {
				err = errorf("containers %q", out)
			}
			return err
		})
		s.untilReady(n, v1.ConditionUnknown)
		r.become(passes)
		back := time.Now()
		s.untilReady(n, v1.ConditionTrue)
		s.gone("deleted-" + name)
		p := s.ended("ends-"+name, v1.PodFailed)
		if end := p.Status.ContainerStatuses[0].State.Terminated; end == nil || end.ExitCode != 7 {
			s.Errorf("what ended meanwhile: %s", summary(p))
		}
		s.until("crashes-"+name, "restarted", func(p *v1.Pod) bool { return p.Status.ContainerStatuses[0].RestartCount == 1 && isTrue(p, v1.PodReady) })
		s.ready("stays-probed")
		s.Logf("the API server %s for a while: all is as it should be %s later", name, time.Since(back).Round(100*time.Millisecond))
		s.kubectl("delete", "pod", "ends-"+name, "crashes-"+name, "--wait=false")
	}
}

// kill kills the first process of a pod's first container with SIGKILL, as the kernel would.
func kill(s *space, n *node, p *v1.Pod) {
	s.Helper()
	_, id, _ := strings.Cut(p.Status.ContainerStatuses[0].ContainerID, "://")
	out, err := n.crictl("inspect", "-o", "go-template", "--template", "{{.info.pid}}", id)
	if err != nil {
		s.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(out))
	if err != nil || pid < 2 {
		s.Fatalf("pid of container %s: %q %v", id, out, err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		s.Fatal(err)
	}
}

// When the process of a container is killed, the pod's status in the API soon shows that the container has ended. The test prints after
// which time.
func TestDeathIsSeen(t *testing.T) {
	s := newSpace(t)
	var took []time.Duration
	for i := range 3 {
		name := fmt.Sprintf("dies-%d", i)
		s.pod(name, "restartPolicy: Never\n"+stayingPlain)
		p := s.ready(name)
		w, err := s.client().CoreV1().Pods(s.name).Watch(context.Background(), metav1.ListOptions{FieldSelector: "metadata.name=" + name, ResourceVersion: p.ResourceVersion})
		if err != nil {
			t.Fatal(err)
		}
		kill(s, s.env.node, p)
		began, late := time.Now(), time.After(patience)
		for seen := false; !seen; {
			select {
			case ev, open := <-w.ResultChan():
				if !open {
					t.Fatal("the watch has ended")
				}
				p, ok := ev.Object.(*v1.Pod)
				seen = ok && p.Status.ContainerStatuses[0].State.Terminated != nil
			case <-late:
				t.Fatal("nobody reported the death")
			}
		}
		took = append(took, time.Since(began).Round(time.Millisecond))
		w.Stop()
		if end := s.get(name).Status.ContainerStatuses[0].State.Terminated; end.ExitCode != 137 || end.Reason != "Error" {
			t.Errorf("terminated %+v", end)
		}
	}
	t.Logf("from kill -9 to a watcher of the API: %v", took)
}
