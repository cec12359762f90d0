package integration

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// alone is a node without a control plane: a runtime, and an agent that `wherry run` has started.
type alone struct {
	*testing.T
	env               *env
	dir, rt           string
	root, sock, group string
	agent             *process
	starts            *int
}

func newAlone(t *testing.T) *alone {
	e := use(t)
	a := &alone{T: t, env: e, starts: new(int), dir: filepath.Join(e.dir, "alone.logs"), rt: filepath.Join(e.dir, "rt-alone"), group: fmt.Sprintf("%s%d-alone", prefix, e.id)}
	a.root, a.sock = filepath.Join(e.dir, "alone"), filepath.Join(e.dir, "alone.sock")
	if err := os.MkdirAll(a.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	e.addRuntime(a.rt)
	if err := e.runtimeUp(a.rt, e.subnet(a.rt)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			log, _ := os.ReadFile(filepath.Join(a.root, "agent.log"))
			t.Logf("the agent's log:\n%s", log[max(0, len(log)-6000):])
		}
	})
	return a
}

// run starts the command `wherry run` with these arguments, which starts an agent.
func (a *alone) run(args ...string) {
	a.Helper()
	*a.starts++
	var err error
	a.agent, err = start(filepath.Join(a.dir, fmt.Sprintf("run-%d.log", *a.starts)), a.env.wherry, append([]string{"run", "--socket", a.sock, "--root-dir", a.root,
		"--container-runtime-endpoint", "unix://" + a.rt + "/containerd.sock", "--cgroup-root", "/" + a.group}, args...)...)
	if err != nil {
		a.Fatal(err)
	}
	a.Cleanup(a.agent.stop)
}

func (a *alone) said() string {
	text, _ := os.ReadFile(a.agent.log)
	return string(text)
}

// says waits until the output of `wherry run` contains a text. The lines have no fixed order, because the command follows the pod and each
// container concurrently.
func (a *alone) says(what string) {
	a.Helper()
	a.eventually("wherry run to say "+what, func() error {
		if !strings.Contains(a.said(), what) {
			return errorf("it says:\n%s", a.said())
		}
		return nil
	})
}

// up waits until `wherry run` prints that a pod is up.
func (a *alone) up(name string) {
	a.Helper()
	a.says("pod/" + name + " is up at ")
}

// wherry runs a wherry command that talks to the agent through its control socket, and returns the output.
func (a *alone) wherry(args ...string) (string, error) {
	cmd := command(a.env.wherry, args...)
	cmd.Env = append(os.Environ(), "WHERRY_SOCKET="+a.sock)
	out, errOut, err := output(cmd)
	if err != nil {
		err = fmt.Errorf("wherry %s: %w: %s", strings.Join(args, " "), err, errOut)
	}
	return out, err
}

func (a *alone) must(args ...string) string {
	a.Helper()
	out, err := a.wherry(args...)
	if err != nil {
		a.Fatalf("%v\n%s", err, a.said())
	}
	return strings.TrimSpace(out)
}

func (a *alone) crictl(args ...string) string {
	a.Helper()
	out, err := a.env.crictl(a.rt, args...)
	if err != nil {
		a.Fatal(err)
	}
	return out
}

func (a *alone) eventually(what string, ask func() error) {
	a.Helper()
	if err := wait(patience, func() error {
		if err := a.agent.alive(); err != nil {
			return fatal{err}
		}
		return ask()
	}); err != nil {
		a.Fatalf("%s: %v\n%s", what, err, a.said())
	}
}

// nothingLeft fails the test if pods have left something in the runtime, in mounts, in cgroups or in directories.
func (a *alone) nothingLeft() {
	a.Helper()
	for what, args := range map[string][]string{"containers": {"ps", "-a", "-q"}, "sandboxes": {"pods", "-q"}} {
		if out := a.crictl(args...); out != "" {
			a.Errorf("left in the runtime, %s: %s", what, out)
		}
	}
	own := func(point string) bool { return point == a.root && a.agent.alive() == nil } // while the agent runs, its root directory is a mount point
	mounts, err := mountsBelow(a.root)
	if m := slices.DeleteFunc(mounts, own); err != nil || len(m) > 0 {
		a.Errorf("left mounts: %v %v", m, err)
	}
	_ = filepath.WalkDir(a.root, func(path string, d os.DirEntry, err error) error {
		if path == filepath.Join(a.root, "recorded-turns") {
			return fs.SkipDir // the flight recorder keeps the last turns of pods that went wrong even after the pods are gone
		}
		if err == nil && !d.IsDir() && filepath.Base(path) != "agent.log" {
			a.Errorf("left file: %s", path)
		}
		return nil
	})
	for _, dir := range []string{"pods", "logs", "pushed"} {
		if left := list(filepath.Join(a.root, dir)); len(left) > 0 {
			a.Errorf("left in %s: %v", dir, left)
		}
	}
	for _, group := range cgroupDirs(a.group) {
		if subs, _ := filepath.Glob(group + "/*/cgroup.procs"); len(subs) > 0 {
			a.Errorf("left control groups: %v", subs)
		}
	}
}

// One command starts a pod with an init container, a sidecar, probes, a ConfigMap and a port on a node without a control plane. The pod
// keeps running when the agent is killed and restarted, and leaves nothing behind when it is removed.
func TestStandalone(t *testing.T) {
	a := newAlone(t)
	t.Run("survives", func(t *testing.T) { a.on(t).survives() })
	t.Run("attaches", func(t *testing.T) { a.on(t).attaches() })
	t.Run("ends", func(t *testing.T) { a.on(t).ends() })
}

func (a *alone) on(t *testing.T) *alone {
	b := *a
	b.T = t
	return &b
}

func (a *alone) survives() {
	t := a.T
	port, err := freePort()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join("..", "..", "examples", "standalone", "web.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	manifest := filepath.Join(a.dir, "web.yaml")
	write := func(greeting string) {
		t.Helper()
		s := strings.NewReplacer("hostPort: 18080", fmt.Sprintf("hostPort: %d", port), "hello from a pod without a cluster", greeting,
			"periodSeconds: 1\n", "periodSeconds: 1\n        timeoutSeconds: 20\n        failureThreshold: 60\n",
			"periodSeconds: 5\n", "periodSeconds: 5\n        timeoutSeconds: 20\n").Replace(string(text))
		if err := os.WriteFile(manifest, []byte(s), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	page := func(want string) func() error {
		return func() error {
			fields := strings.Fields(a.must("ps", "web", "-o", "wide"))
			ip := fields[len(fields)-4]
			resp, err := httpClient.Get("http://" + ip + ":8080/index.html")
			if err != nil {
				return err
			}
			defer resp.Body.Close()
			if body, _ := io.ReadAll(resp.Body); strings.TrimSpace(string(body)) != want {
				return errorf("the page says %q, want %q", body, want)
			}
			return nil
		}
	}

	write("one")
	a.run(manifest)
	a.up("web")
	for _, line := range []string{"configmap/page created", "pod/web created", "[prepare] prepared", "[refresh] refreshing", "[httpd] serving", "Running 2/2"} {
		a.says(line)
	}
	a.eventually("the page", page("one"))
	a.eventually("the host's port", func() error {
		resp, err := httpClient.Get(fmt.Sprintf("http://127.0.0.1:%d/", port))
		if err == nil {
			resp.Body.Close()
		}
		return err
	})
	if fields := strings.Fields(a.must("ps")); len(fields) != 14 || fields[9] != "2/2" || fields[10] != "Running" {
		t.Errorf("wherry ps: %q", fields)
	}
	if out := a.must("logs", "web", "-c", "prepare"); out != "prepared" {
		t.Errorf("wherry logs: %q", out)
	}
	if out := a.must("exec", "web", "-c", "httpd", "--", "sh", "-c", "hostname"); out != "web" {
		t.Errorf("wherry exec: %q", out)
	}
	var status *exec.ExitError
	if _, err := a.wherry("exec", "web", "-c", "httpd", "--", "sh", "-c", "exit 42"); !errors.As(err, &status) || status.ExitCode() != 42 {
		t.Errorf("the exit code of a command: %v, want 42", err)
	}
	if out := a.must("events", "web"); !containsAll(out, []string{"Started", "pod/web [httpd]"}) {
		t.Errorf("wherry events: %s", out)
	}
	if out := a.must("explain", "web", "--all"); !strings.Contains(out, "start-container httpd") || !strings.Contains(out, "everything is as the spec says") {
		t.Errorf("wherry explain: %s", out)
	}
	if i, err := os.Stat(a.sock); err != nil || i.Mode().Perm() != 0o600 {
		t.Errorf("the socket has mode %v, want 0600: %v", i.Mode(), err)
	}

	// The pod survives a restart of the agent: its containers are the same. The next agent applies a change of the ConfigMap.
	before := a.crictl("ps", "-q", "--no-trunc")
	_ = a.agent.cmd.Process.Kill()
	a.agent.end(a.T)
	if _, err := a.wherry("ps"); err == nil || !strings.Contains(err.Error(), "no agent listens on "+a.sock) {
		t.Errorf("wherry ps without an agent: %v", err)
	}
	write("two")
	a.run("--keep", manifest)
	a.eventually("the second agent", func() error {
		if !containsAll(a.said(), []string{"configmap/page configured", "pod/web unchanged", "pod/web is up at "}) {
			return errorf("it has not looked")
		}
		return nil
	})
	a.eventually("the changed page", page("two"))
	if err := a.agent.cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	a.agent.end(a.T)
	if a.agent.err != nil || !strings.Contains(a.said(), "pod/web runs on") {
		t.Errorf("wherry run --keep ended with %v:\n%s", a.agent.err, a.said())
	}
	if after := a.crictl("ps", "-q", "--no-trunc"); after != before {
		t.Errorf("containers before: %q, after: %q", before, after)
	}

	// When the pod is removed, it leaves nothing behind.
	a.run()
	a.eventually("the third agent", func() error {
		out, err := a.wherry("ps")
		if err == nil && !strings.Contains(out, "2/2") {
			err = errorf("%s", out)
		}
		return err
	})
	if _, err := a.wherry("rm", "web"); err == nil || !strings.Contains(err.Error(), "--force") {
		t.Errorf("wherry rm of a pod that runs: %v", err)
	}
	if out := a.must("stop", "web"); out != "web" {
		t.Errorf("wherry stop: %q", out)
	}
	if out := a.must("ps"); !strings.Contains(out, "Stopped") {
		t.Errorf("after stop: %s", out)
	}
	if out := a.must("logs", "web", "-c", "httpd"); out != "serving" {
		t.Errorf("the log of a stopped pod: %q", out)
	}
	a.must("rm", "web")
	a.nothingLeft()
	if err := a.agent.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	a.agent.end(a.T)
	a.nothingLeft()
	if left := list(a.root); len(left) > 1 { // agent.log may stay
		t.Errorf("left in %s: %v", a.root, left)
	}
	for _, group := range cgroupDirs(a.group) {
		if _, err := os.Stat(group); err == nil {
			t.Errorf("left control group %s", group)
		}
	}
	if _, err := os.Stat(a.sock); err == nil {
		t.Error("the socket is left")
	}
}

// attaches checks that `wherry attach` connects to the standard input and output of a container, and that the container keeps running when
// the client leaves.
func (a *alone) attaches() {
	t := a.T
	manifest := filepath.Join(a.dir, "echo.yaml")
	const pods = `apiVersion: v1
kind: Pod
metadata: {name: echo}
spec:
  terminationGracePeriodSeconds: 1
  containers:
    - {name: main, image: "docker.io/library/busybox:1.36", imagePullPolicy: IfNotPresent, stdin: true, command: [sh, -c, "while read line; do echo heard $line; done"]}
    - {name: deaf, image: "docker.io/library/busybox:1.36", imagePullPolicy: IfNotPresent, command: [sleep, "1000"]}
`
	if err := os.WriteFile(manifest, []byte(pods), 0o644); err != nil {
		t.Fatal(err)
	}
	a.run(manifest)
	a.up("echo")
	for _, word := range []string{"ahoy", "again"} { // after the first client has left, the container's standard input is still open
		cmd := command(a.env.wherry, "attach", "-i", "echo", "-c", "main")
		cmd.Env = append(os.Environ(), "WHERRY_SOCKET="+a.sock)
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		stuck := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
		stop := typing(in, word+"\n")
		line := ""
		for lines := bufio.NewScanner(out); line != "heard "+word && lines.Scan(); {
			line = lines.Text()
		}
		if line != "heard "+word {
			t.Errorf("wherry attach shows at last %q", line)
		}
		stop()
		stuck.Stop()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	if _, err := a.wherry("attach", "-i", "echo", "-c", "deaf"); err == nil || !strings.Contains(err.Error(), "its spec has no stdin: true") {
		t.Errorf("wherry attach -i to a container without stdin: %v", err)
	}
	if fields := strings.Fields(a.must("ps", "echo")); !slices.Contains(fields, "2/2") || !slices.Contains(fields, "Running") {
		t.Errorf("wherry ps: %q", fields)
	}
	if err := a.agent.cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	a.agent.end(a.T)
	a.nothingLeft()
}

// ends checks how `wherry run` ends. When its pod has completed, the command exits with the pod's exit code. After Ctrl-C it stops the pods
// within their grace period and removes them.
func (a *alone) ends() {
	t := a.T
	job := filepath.Join(a.dir, "job.yaml")
	const pods = `apiVersion: v1
kind: Pod
metadata: {name: job}
spec:
  restartPolicy: Never
  containers: [{name: main, image: "docker.io/library/busybox:1.36", imagePullPolicy: IfNotPresent, command: [sh, -c, "echo from the job; exit 7"]}]
`
	if err := os.WriteFile(job, []byte(pods), 0o644); err != nil {
		t.Fatal(err)
	}
	a.run(job)
	a.agent.end(a.T)
	if code := a.agent.cmd.ProcessState.ExitCode(); code != 7 || !strings.Contains(a.said(), "from the job\n") {
		t.Errorf("wherry run of a job that fails: %d, want 7:\n%s", code, a.said())
	}
	a.nothingLeft()

	slow := filepath.Join(a.dir, "slow.yaml")
	if err := os.WriteFile(slow, []byte(strings.NewReplacer("Never", "Always\n  terminationGracePeriodSeconds: 600", "echo from the job; exit 7", "trap 'echo ending; exit 0' TERM; echo ready; while :; do sleep 0.1; done").Replace(pods)), 0o644); err != nil {
		t.Fatal(err)
	}
	a.run(slow)
	a.up("job")
	a.says("\nready\n")
	if err := a.agent.cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	a.agent.end(a.T) // end waits for less than the grace period of the pod
	if a.agent.err != nil || !strings.Contains(a.said(), "pod/job removed") {
		t.Errorf("Ctrl-C: %v:\n%s", a.agent.err, a.said())
	}
	a.nothingLeft()
}
