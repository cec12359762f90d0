package integration

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"
)

// Every runtime of `wherry-dev runtime` has these images.
const (
	busybox = "docker.io/library/busybox:1.36"
	web     = "registry.k8s.io/wherry/web:1"
)

// patience is how long a test waits for something that should happen soon. It is long because the machine may be busy; a test that passes
// hardly ever waits so long.
const patience = 3 * time.Minute

// space is the namespace of one test, with the helpers of the tests. The helpers act in this namespace.
type space struct {
	*testing.T
	env  *env
	name string
	node *node // node whose cgroups the test reads; nil: the node that all tests share
}

// newSpace creates a namespace and removes it when the test ends. If the test has failed, newSpace first prints what is in the namespace.
func newSpace(t *testing.T) *space {
	t.Helper()
	return newSpaceOn(t, use(t))
}

// newSpaceOn is like newSpace, for a test with a control plane of its own.
func newSpaceOn(t *testing.T, e *env) *space {
	t.Helper()
	ctx := context.Background()
	ns, err := e.client.CoreV1().Namespaces().Create(ctx, &v1.Namespace{ObjectMeta: metav1.ObjectMeta{
		GenerateName: strings.ToLower(strings.NewReplacer("/", "-", "_", "-").Replace(t.Name()))[4:min(40, len(t.Name()))] + "-",
	}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s := &space{T: t, env: e, name: ns.Name}
	t.Cleanup(func() {
		if t.Failed() {
			s.dump()
		}
		if err := e.client.CoreV1().Namespaces().Delete(ctx, ns.Name, metav1.DeleteOptions{}); err != nil {
			t.Errorf("delete namespace %s: %v", ns.Name, err)
		}
	})
	s.eventually("service account", func() error {
		_, err := e.client.CoreV1().ServiceAccounts(s.name).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
	return s
}

// dump logs what a user would look at first: the pods and the last events. The rest goes into files beside the logs of the components,
// because on the terminal it would hide the reason of the failure.
func (s *space) dump() {
	for _, args := range [][]string{{"get", "pods", "-o", "wide"}, {"describe", "pods"}, {"get", "events", "--sort-by=.lastTimestamp"}} {
		out, errOut, _ := s.try(args...)
		out += errOut
		_ = os.WriteFile(filepath.Join(s.env.dir, s.name+"-"+strings.Join(args[:2], "-")+".txt"), []byte(out), 0o644)
		if args[0] == "describe" {
			continue
		}
		lines := strings.Split(strings.TrimSpace(out), "\n")
		s.Logf("kubectl %s:\n%s", strings.Join(args, " "), strings.Join(lines[max(0, len(lines)-20):], "\n"))
	}
	dirs, _ := filepath.Glob(filepath.Join(s.env.dir, "*", "logs", s.name+"_*"))
	for _, dir := range dirs {
		_ = os.CopyFS(filepath.Join(s.env.dir, "pods.logs", filepath.Base(dir)), os.DirFS(dir))
	}
}

// eventually calls ask until it returns nil. After the time patience it fails the test with the last error.
func (s *space) eventually(what string, ask func() error) {
	s.Helper()
	s.within(patience, what, ask)
}

func (s *space) within(timeout time.Duration, what string, ask func() error) {
	s.Helper()
	err := wait(timeout, func() error {
		if err := s.env.node.process.alive(); err != nil {
			return fatal{err}
		}
		return ask()
	})
	if err != nil {
		s.Fatalf("wait for %s: %v", what, err)
	}
}

// command returns a kubectl command that acts in this namespace.
func (s *space) command(args ...string) *exec.Cmd {
	cmd := command(s.env.kubectl, append([]string{"--kubeconfig", s.env.kubeconfig(), "-n", s.name}, args...)...)
	cmd.Env = append(os.Environ(), "HOME="+s.env.dir, "KUBECONFIG=")
	return cmd
}

// notAsked is containerd's error if a container's shim did not answer within 2 s. In that case no command ran in the container, so the
// test can repeat kubectl.
const notAsked = "failed to load task: context deadline exceeded"

// try runs kubectl. It repeats the command after the error notAsked.
func (s *space) try(args ...string) (stdout, stderr string, err error) {
	for range 5 {
		stdout, stderr, err = output(s.command(args...))
		if err == nil || !strings.Contains(stderr, notAsked) {
			break
		}
	}
	return stdout, stderr, err
}

func output(cmd *exec.Cmd) (stdout, stderr string, err error) {
	var o, e bytes.Buffer
	cmd.Stdout, cmd.Stderr = &o, &e
	err = cmd.Run()
	return o.String(), e.String(), err
}

// kubectl runs kubectl and returns its standard output. It fails the test if kubectl fails.
func (s *space) kubectl(args ...string) string {
	s.Helper()
	out, errOut, err := s.try(args...)
	if err != nil {
		s.Fatalf("kubectl %s: %v\n%s%s", strings.Join(args, " "), err, out, errOut)
	}
	return out
}

// apply runs kubectl apply with a manifest.
func (s *space) apply(manifest string) {
	s.Helper()
	cmd := s.command("apply", "-f", "-")
	cmd.Stdin = strings.NewReader(manifest)
	if out, errOut, err := output(cmd); err != nil {
		s.Fatalf("kubectl apply: %v\n%s%s\n%s", err, out, errOut, manifest)
	}
}

// client returns a client of the API server.
func (s *space) client() kubernetes.Interface { return s.env.client }

// pod creates a pod from its spec in YAML. $busybox and $web stand for the names of images. Without a terminationGracePeriodSeconds in the
// spec, the pod gets one of a second, because most containers in the tests are shells that ignore SIGTERM.
func (s *space) pod(name, spec string, change ...func(*v1.Pod)) {
	s.Helper()
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": name}}}
	spec = strings.NewReplacer("$busybox", busybox, "$web", web, "\t", "  ").Replace(spec)
	if err := yaml.UnmarshalStrict([]byte(spec), &p.Spec); err != nil {
		s.Fatalf("spec of pod %s: %v\n%s", name, err, spec)
	}
	if p.Spec.TerminationGracePeriodSeconds == nil {
		p.Spec.TerminationGracePeriodSeconds = new(int64(1))
	}
	for _, f := range change {
		f(p)
	}
	if p.Spec.NodeName == "" && p.Spec.NodeSelector == nil {
		p.Spec.NodeSelector = map[string]string{v1.LabelHostname: s.env.node.Name} // keeps the pod away from nodes that other tests start
	}
	if _, err := s.client().CoreV1().Pods(s.name).Create(context.Background(), p, metav1.CreateOptions{}); err != nil {
		s.Fatal(err)
	}
}

// get returns a pod as the API has it now.
func (s *space) get(name string) *v1.Pod {
	s.Helper()
	p, err := s.client().CoreV1().Pods(s.name).Get(context.Background(), name, metav1.GetOptions{})
	if err != nil {
		s.Fatal(err)
	}
	return p
}

// The method until waits until wanted returns true for the pod, and returns the pod. The error message contains what, which describes the
// wanted state.
func (s *space) until(name, what string, wanted func(*v1.Pod) bool) (p *v1.Pod) {
	s.Helper()
	s.eventually("pod "+name+" to be "+what, func() (err error) {
		p, err = s.client().CoreV1().Pods(s.name).Get(context.Background(), name, metav1.GetOptions{})
		if err == nil && !wanted(p) {
			err = fmt.Errorf("it is %s", summary(p))
		}
		return err
	})
	return p
}

func (s *space) ready(name string) *v1.Pod {
	s.Helper()
	return s.until(name, "Ready", func(p *v1.Pod) bool { return isTrue(p, v1.PodReady) })
}

// ended waits until the pod has ended, fails the test unless it ended in this phase, and returns the pod.
func (s *space) ended(name string, phase v1.PodPhase) *v1.Pod {
	s.Helper()
	p := s.until(name, "ended", func(p *v1.Pod) bool { return p.Status.Phase == v1.PodSucceeded || p.Status.Phase == v1.PodFailed })
	if p.Status.Phase != phase {
		s.Fatalf("pod %s is %s, want %s", name, summary(p), phase)
	}
	return p
}

// gone waits until the API no longer has the pod.
func (s *space) gone(name string) {
	s.Helper()
	s.eventually("pod "+name+" to be gone", func() error {
		list, err := s.client().CoreV1().Pods(s.name).List(context.Background(), metav1.ListOptions{FieldSelector: "metadata.name=" + name})
		if err == nil && len(list.Items) > 0 {
			err = fmt.Errorf("it is %s", summary(&list.Items[0]))
		}
		return err
	})
}

func isTrue(p *v1.Pod, t v1.PodConditionType) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == t {
			return c.Status == v1.ConditionTrue
		}
	}
	return false
}

func summary(p *v1.Pod) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s %s", p.Status.Phase, p.Status.Reason, p.Status.Message)
	for _, c := range p.Status.Conditions {
		fmt.Fprintf(&b, "\n  %s=%s %s", c.Type, c.Status, c.Message)
	}
	for _, c := range append(p.Status.InitContainerStatuses, p.Status.ContainerStatuses...) {
		state, _ := yaml.Marshal(map[string]any{"state": c.State, "last": c.LastTerminationState})
		fmt.Fprintf(&b, "\n  %s ready=%v restarts=%d %s", c.Name, c.Ready, c.RestartCount, strings.ReplaceAll(string(state), "\n", " "))
	}
	return b.String()
}

// sh runs a shell script in the first container of a pod and returns its output.
func (s *space) sh(pod, script string) string {
	s.Helper()
	return s.kubectl("exec", pod, "--", "sh", "-c", script)
}

// logs returns the log of the first container of a pod.
func (s *space) logs(pod string, args ...string) string {
	s.Helper()
	return s.kubectl(append([]string{"logs", pod}, args...)...)
}

// logged waits until the log of a running container is exactly want.
func (s *space) logged(pod, want string, args ...string) {
	s.Helper()
	s.loggedWithin(patience, pod, want, args...)
}

// loggedWithin does what logged does, with a timeout for containers whose own work takes long.
func (s *space) loggedWithin(timeout time.Duration, pod, want string, args ...string) {
	s.Helper()
	s.within(timeout, "log of "+pod, func() error {
		out, errOut, err := s.try(append([]string{"logs", pod}, args...)...)
		if err != nil || out != want {
			return errorf("it is %q, want %q; %v %s", out, want, err, errOut)
		}
		return nil
	})
}

// events returns the events about the object with this name.
func (s *space) events(object string) ([]v1.Event, error) {
	list, err := s.client().CoreV1().Events(s.name).List(context.Background(), metav1.ListOptions{FieldSelector: "involvedObject.name=" + object})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// event waits for an event about an object that has this reason and a message with all the parts, and returns the event. Other events with
// the reason may exist.
func (s *space) event(object, reason string, parts ...string) (found v1.Event) {
	s.Helper()
	s.eventually(reason+" event of "+object, func() error {
		all, err := s.events(object)
		if err != nil {
			return err
		}
		var said []string
		for _, ev := range all {
			if ev.Reason == reason && containsAll(ev.Message, parts) {
				found = ev
				return nil
			}
			said = append(said, ev.Reason+": "+ev.Message)
		}
		return errorf("none with %q among %q", parts, said)
	})
	return found
}

// started waits until each container of a pod has an event with the reason Started, because events come later than the status.
func (s *space) started(name string) {
	s.Helper()
	want := len(s.get(name).Spec.Containers)
	s.eventually("the start of "+name+" to be reported", func() error {
		all, err := s.events(name)
		if err != nil {
			return err
		}
		reported := 0
		for _, ev := range all {
			if ev.Reason == "Started" {
				reported++
			}
		}
		if reported < want {
			return errorf("%d of %d are", reported, want)
		}
		return nil
	})
}

// lacks returns an error if the text lacks one of the parts.
func lacks(text string, parts ...string) error {
	for _, p := range parts {
		if !strings.Contains(text, p) {
			return errorf("there is no %q in:\n%s", p, text)
		}
	}
	return nil
}

// same fails the test if the two texts differ.
func (s *space) same(what, got, want string) {
	s.Helper()
	if got != want {
		s.Errorf("%s:\n got %q\nwant %q", what, got, want)
	}
}

// contains fails the test if the text lacks one of the parts.
func (s *space) contains(what, text string, parts ...string) {
	s.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			s.Errorf("%s does not contain %q:\n%s", what, part, text)
		}
	}
}

func readFile(s *space, path string) string {
	s.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		s.Error(err)
	}
	return string(data)
}

// containerdPid returns the process ID of the containerd whose directory is rt.
func (s *space) containerdPid(rt string) int {
	s.Helper()
	text := readFile(s, filepath.Join(rt, "containerd.pid"))
	pid, err := strconv.Atoi(strings.Fields(text + " 0")[0])
	if err != nil || pid < 2 {
		s.Fatalf("pid of containerd %q: %v", text, err)
	}
	return pid
}
