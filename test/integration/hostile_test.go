package integration

import (
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
)

// mostMemory is how much resident memory, in bytes, the agent may use while all attacks run at the same time.
const mostMemory = 100 << 20

// hostile is a node of its own, with a pod that the attacks on the agent must not affect.
type hostile struct {
	*space
	on *node
}

// TestHostile runs containers on a real runtime that attack the node's agent, all at the same time. The agent needs less than 100 MiB, the
// node stays Ready, another pod is not affected, and each attack has the result that the comment of its function describes.
func TestHostile(t *testing.T) {
	h := newHostile(t)
	watched := h.witness(h.on)
	agent := h.on.process.cmd.Process.Pid
	t.Run("attacks", func(t *testing.T) {
		for name, attack := range map[string]func(*hostile){
			"sparse hosts file":       (*hostile).sparseHostsFile,
			"hosts file is a pipe":    (*hostile).hostsFileIsNoFile,
			"deep tree":               (*hostile).deepTree,
			"link farm":               (*hostile).linkFarm,
			"logs that are no files":  (*hostile).logsThatAreNoFiles,
			"system log is a pipe":    (*hostile).systemLogIsAPipe,
			"16 MiB of hook output":   (*hostile).loudHook,
			"16 MiB of probe output":  (*hostile).loudProbe,
			"termination log is full": (*hostile).fullTerminationLog,
			"forged annotations":      (*hostile).forgedAnnotations,
			"flood of tokens":         (*hostile).tokenFlood,
			"control socket":          (*hostile).controlSocket,
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				attack(&hostile{space: h.with(t), on: h.on})
				t.Logf("the agent's memory has risen to %.1f MiB at the end of this attack, beside the others", float64(h.peakMemory())/(1<<20))
			})
		}
	})
	watched.nothing(h.space, "the attacks")
	if now := h.on.process.cmd.Process.Pid; now != agent || h.on.starts != 0 {
		t.Errorf("the agent is process %d, it was %d: it did not survive", now, agent)
	}
	peak := h.peakMemory()
	t.Logf("the agent's memory rose to %.1f MiB", float64(peak)/(1<<20))
	if peak > mostMemory {
		t.Errorf("the agent's memory rose to %d MiB, at most %d are allowed", peak>>20, mostMemory>>20)
	}
}

func newHostile(t *testing.T) *hostile {
	t.Helper()
	s := newSpace(t)
	rt := filepath.Join(s.env.dir, "rt-hostile")
	s.env.addRuntime(rt)
	if err := s.env.runtimeUp(rt, s.env.subnet(rt)); err != nil {
		t.Fatal(err)
	}
	h := &hostile{space: s, on: started(t, s.env, nodeConfig{Name: "hostile", Runtime: rt, Config: apart})}
	h.on.mustBeReady(t)
	s.stayers(h.on)
	return h
}

// pod creates a pod on the node that is attacked.
func (h *hostile) pod(name, spec string, change ...func(*v1.Pod)) {
	h.Helper()
	h.space.pod(name, spec, append(change, onNode(h.on))...)
}

// peakMemory returns the largest resident memory of the agent so far, in bytes.
func (h *hostile) peakMemory() int {
	h.Helper()
	status := readFile(h.space, fmt.Sprintf("/proc/%d/status", h.on.process.cmd.Process.Pid))
	found := regexp.MustCompile(`VmHWM:\s+(\d+) kB`).FindStringSubmatch(status)
	if found == nil {
		h.Fatalf("there is no VmHWM in %s", status)
	}
	kib, err := strconv.Atoi(found[1])
	if err != nil {
		h.Fatal(err)
	}
	return kib << 10
}

// podDir returns the agent's directory of a pod.
func (h *hostile) podDir(name string) string {
	return filepath.Join(h.on.dir, "root", "pods", string(h.get(name).UID))
}

// logDir returns the directory of a container's log files.
func (h *hostile) logDir(name, container string) string {
	return filepath.Join(h.on.dir, "logs", h.name+"_"+name+"_"+string(h.get(name).UID), container)
}

// restarted waits until the first container of a pod has restarted and runs.
func (h *hostile) restarted(name string) {
	h.Helper()
	h.until(name, "restarted", func(p *v1.Pod) bool {
		return len(p.Status.ContainerStatuses) > 0 && p.Status.ContainerStatuses[0].RestartCount > 0 && p.Status.ContainerStatuses[0].State.Running != nil
	})
}

// remove deletes a pod and waits until the pod and its directory are gone.
func (h *hostile) remove(name string) {
	h.Helper()
	dir := h.podDir(name)
	h.kubectl("delete", "pod", name, "--wait=false")
	h.gone(name)
	h.eventually("the pod's directory to be gone", func() error {
		if _, err := os.Lstat(dir); !os.IsNotExist(err) {
			return errorf("%s is there: %v", dir, err)
		}
		return nil
	})
}

// sparseHostsFile runs a container that makes its hosts file 4 TiB long, as a sparse file, and exits. At the container's next start the
// agent writes a new file.
func (h *hostile) sparseHostsFile() {
	h.pod("sparse-hosts", `
volumes: [{name: once, emptyDir: {}}]
containers:
- name: main
  image: $busybox
  command: [sh, -c, "if [ -e /once/done ]; then sleep 100000; fi; touch /once/done; truncate -s 4398046511104 /etc/hosts; exit 1"]
  volumeMounts: [{name: once, mountPath: /once}]`)
	h.restarted("sparse-hosts")
	out := h.sh("sparse-hosts", "wc -c < /etc/hosts; cat /etc/hosts")
	size, err := strconv.Atoi(strings.TrimSpace(strings.SplitN(out, "\n", 2)[0]))
	if err != nil || size > 64<<10 {
		h.Errorf("the hosts file has %q bytes after the restart", strings.SplitN(out, "\n", 2)[0])
	}
	h.contains("hosts file", out, "127.0.0.1\tlocalhost", "sparse-hosts")
	h.remove("sparse-hosts")
}

// hostsFileIsNoFile runs a pod that can write into its own directory on the node, and replaces its hosts file by a pipe. The pipe does not
// block the agent: the container restarts, or its status says why it does not start, and the pod can be deleted.
func (h *hostile) hostsFileIsNoFile() {
	h.pod("pipe-hosts", fmt.Sprintf(`
volumes: [{name: node, hostPath: {path: %s}}]
containers:
- name: main
  image: $busybox
  command: [sh, -c, "if [ -e /node/$UID/done ]; then sleep 100000; fi; touch /node/$UID/done; rm /node/$UID/etc-hosts; mkfifo /node/$UID/etc-hosts; exit 1"]
  env: [{name: UID, valueFrom: {fieldRef: {fieldPath: metadata.uid}}}]
  volumeMounts: [{name: node, mountPath: /node}]`, filepath.Join(h.on.dir, "root", "pods")))
	h.until("pipe-hosts", "told why it does not start, or restarted", func(p *v1.Pod) bool {
		if len(p.Status.ContainerStatuses) == 0 {
			return false
		}
		c := p.Status.ContainerStatuses[0]
		waits := c.State.Waiting != nil && c.LastTerminationState.Terminated != nil && c.State.Waiting.Reason != "CrashLoopBackOff"
		return waits || c.RestartCount > 0 && c.State.Running != nil
	})
	h.remove("pipe-hosts")
}

// deepTree runs a container that creates a tree of 20,000 nested directories in its volume. The agent measures the tree, and removes it
// with the pod. (The tests of package hostfs have 100,000 levels, for which a shell would need minutes.)
func (h *hostile) deepTree() {
	h.pod("deep", `
volumes: [{name: tree, emptyDir: {sizeLimit: 4Gi}}]
containers:
- name: main
  image: $busybox
  command: [sh, -c, "cd /tree; p=$(yes d | head -n 2000 | tr '\\n' /); i=0; while [ $i -lt 10 ]; do mkdir -p $p; cd -P $p 2>/dev/null; i=$((i+1)); done; echo deep > bottom; echo done; sleep 100000"]
  volumeMounts: [{name: tree, mountPath: /tree}]`)
	// On a busy machine the container needs minutes for the tree. How long it takes says nothing about the agent.
	h.loggedWithin(3*patience, "deep", "done\n")
	h.eventually("the volume to be measured", func() error {
		summary := h.kubectl("get", "--raw", "/api/v1/nodes/hostile/proxy/stats/summary")
		used := regexp.MustCompile(`(?s)"podRef":\s*\{\s*"name":\s*"deep".*?"volume":.*?"usedBytes":\s*(\d+)[^}]*"name":\s*"tree"`).FindStringSubmatch(summary)
		if used == nil {
			return errorf("no figure in %s", summary)
		}
		if bytes, err := strconv.Atoi(used[1]); err != nil || bytes < 20_000*4096 {
			return errorf("the tree of 20,000 directories has %s bytes", used[1])
		}
		return nil
	})
	h.remove("deep")
}

// linkFarm fills a volume with 2,000 symbolic links that lead out of the volume. When the agent removes the volume, it deletes the links and none
// of their targets.
func (h *hostile) linkFarm() {
	treasure := filepath.Join(h.on.dir, "treasure")
	if err := os.MkdirAll(filepath.Join(treasure, "inner"), 0o755); err != nil {
		h.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(treasure, "inner", "gold"), []byte("gold"), 0o644); err != nil {
		h.Fatal(err)
	}
	h.pod("links", fmt.Sprintf(`
volumes: [{name: farm, emptyDir: {}}, {name: logs, hostPath: {path: %[2]s}}]
containers:
- name: main
  image: $busybox
  command: [sh, -c, "mkdir /farm/0; cd /farm/0; i=0; while [ $i -lt 40 ]; do ln -s %[1]s $i; i=$((i+1)); done; i=1; while [ $i -lt 50 ]; do cp -a /farm/0 /farm/$i; i=$((i+1)); done; ln -s %[1]s/inner /logs/${NS}_links_$UID/other; echo done; sleep 100000"]
  env: [{name: UID, valueFrom: {fieldRef: {fieldPath: metadata.uid}}}, {name: NS, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}}]
  volumeMounts: [{name: farm, mountPath: /farm}, {name: logs, mountPath: /logs}]`, treasure, filepath.Join(h.on.dir, "logs")))
	h.logged("links", "done\n")
	h.remove("links")
	h.same("what the links led to", readFile(h.space, filepath.Join(treasure, "inner", "gold")), "gold")
}

// logsThatAreNoFiles runs a pod that can write into the log directory of the node. It replaces its own log file by a pipe, a device, a
// directory and a link to the log of another pod. A client that reads the log gets an error at once, and nothing of the other pod's log.
func (h *hostile) logsThatAreNoFiles() {
	h.pod("log-victim", `containers: [{name: main, image: $busybox, command: [sh, -c, "echo a secret of the victim; sleep 100000"]}]`)
	h.logged("log-victim", "a secret of the victim\n")
	h.pod("log-faker", fmt.Sprintf(`
volumes: [{name: logs, hostPath: {path: %s}}]
containers:
- {name: main, image: $busybox, command: [sleep, "100000"], volumeMounts: [{name: logs, mountPath: /logs}]}
- {name: fake, image: $busybox, command: [sleep, "100000"]}`, filepath.Join(h.on.dir, "logs")))
	h.ready("log-faker")
	inside := strings.Replace(filepath.Join(h.logDir("log-faker", "fake"), "0.log"), filepath.Join(h.on.dir, "logs"), "/logs", 1)
	victim := filepath.Join(h.logDir("log-victim", "main"), "0.log")
	for what, script := range map[string]string{
		"pipe":      "mkfifo LOG",
		"device":    "mknod LOG c 1 5",
		"directory": "mkdir LOG",
		"link":      "ln -s " + victim + " LOG",
		"loop":      "ln -s LOG LOG",
	} {
		h.kubectl("exec", "log-faker", "-c", "main", "--", "sh", "-c", strings.ReplaceAll("rm -rf LOG; "+script, "LOG", inside))
		for _, args := range [][]string{{}, {"-f"}, {"--tail=3"}} {
			out, errOut, err := output(h.command(append([]string{"logs", "log-faker", "-c", "fake"}, args...)...))
			// With -f the answer has already begun when the agent opens the log, so the error is its last line.
			said := err != nil || strings.Contains(out, "failed to read container log")
			if !said || strings.Contains(out+errOut, "secret") {
				h.Errorf("logs %v of a log that is a %s: %q %q %v, want an error", args, what, out, errOut, err)
			}
		}
	}
	h.remove("log-faker")
	h.same("the victim's log", h.logs("log-victim"), "a secret of the victim\n")
}

// systemLogIsAPipe checks that a pipe below /var/log blocks neither the request that reads it nor the end of the agent. The test creates
// the pipe itself, because the endpoint /logs/ serves the machine's own /var/log.
func (h *hostile) systemLogIsAPipe() {
	name := fmt.Sprintf("wherry-it-pipe-%d", os.Getpid())
	if out, err := command("mkfifo", filepath.Join("/var/log", name)).CombinedOutput(); err != nil {
		h.Fatalf("mkfifo: %v %s", err, out)
	}
	h.Cleanup(func() { _ = os.Remove(filepath.Join("/var/log", name)) })
	out, errOut, err := output(h.command("get", "--raw", "/api/v1/nodes/hostile/proxy/logs/"+name))
	if err == nil {
		h.Errorf("GET /logs/%s of a pipe: %q %q, want an error", name, out, errOut)
	}
}

// loudHook runs a pod whose postStart hook writes 16 MB of output and fails. No event is longer than 4 KiB, and no status than 8 KiB.
func (h *hostile) loudHook() {
	h.pod("loud-hook", `
restartPolicy: Never
containers:
- name: main
  image: $busybox
  command: [sleep, "100000"]
  lifecycle: {postStart: {exec: {command: [sh, -c, "head -c 16000000 /dev/urandom >&2; exit 3"]}}}`)
	h.bounded("loud-hook", "FailedPostStartHook")
	h.remove("loud-hook")
}

// loudProbe runs a pod whose readiness probe writes 16 MB of output and fails. No event is longer than 4 KiB, and no status than 8 KiB.
func (h *hostile) loudProbe() {
	h.pod("loud-probe", `
containers:
- name: main
  image: $busybox
  command: [sleep, "100000"]
  readinessProbe: {exec: {command: [sh, -c, "head -c 16000000 /dev/urandom; exit 3"]}, timeoutSeconds: 60}`)
	h.bounded("loud-probe", "Unhealthy")
	h.remove("loud-probe")
}

// bounded waits for an event about a pod. Then it checks that no event about the pod is longer than 4 KiB, no container status than 8 KiB,
// and no line of the agent's log than 16 KiB.
func (h *hostile) bounded(name, reason string) {
	h.Helper()
	const most = 4 << 10
	h.event(name, reason)
	all, err := h.events(name)
	if err != nil {
		h.Fatal(err)
	}
	for _, ev := range all {
		if len(ev.Message) > most {
			h.Errorf("event %s has %d bytes", ev.Reason, len(ev.Message))
		}
	}
	p := h.get(name)
	for _, c := range p.Status.ContainerStatuses {
		if size := len(c.String()); size > 2*most {
			h.Errorf("the status of container %s has %d bytes", c.Name, size)
		}
	}
	for _, line := range strings.Split(h.on.log(), "\n") {
		if len(line) > 16<<10 {
			h.Errorf("the agent logged a line of %d bytes: %.200q", len(line), line)
		}
	}
}

// fullTerminationLog runs a container that writes 300 MB into its termination message file and keeps running. Its pod has a limit of
// ephemeral storage, so it is evicted, and the disk space is free again.
func (h *hostile) fullTerminationLog() {
	h.pod("term-log", `
restartPolicy: Never
containers:
- name: main
  image: $busybox
  command: [sh, -c, "dd if=/dev/zero of=/dev/termination-log bs=1M count=300; sleep 100000"]
  resources: {limits: {ephemeral-storage: 20Mi}}`)
	p := h.ended("term-log", v1.PodFailed)
	// Two limits apply: that of ephemeral storage and that of termination messages. The agent evicts the pod for the one that it notices
	// first.
	if p.Status.Reason != "Evicted" || !strings.Contains(p.Status.Message, "ermination message") && !strings.Contains(p.Status.Message, "ephemeral local storage usage") {
		h.Errorf("the pod ended with %s: %s", p.Status.Reason, p.Status.Message)
	}
	h.remove("term-log")
}

// forgedAnnotations creates pods in the API with annotations that mark static pods and that only the node may set. The node treats them as
// ordinary pods.
func (h *hostile) forgedAnnotations() {
	forged := func(p *v1.Pod) {
		p.Annotations = map[string]string{
			"kubernetes.io/config.source": "file", "kubernetes.io/config.hash": "abc", "kubernetes.io/config.seen": "2020-01-01T00:00:00Z",
			"wherry.dev/source": "file", "wherry.dev/critical": "true",
		}
	}
	// The node does not evict a static pod because of an emptyDir, but this pod is not static.
	h.pod("forged", `
restartPolicy: Never
volumes: [{name: data, emptyDir: {sizeLimit: 1Mi}}]
containers:
- name: main
  image: $busybox
  command: [sh, -c, "dd if=/dev/zero of=/data/big bs=1M count=8; sleep 100000"]
  volumeMounts: [{name: data, mountPath: /data}]`, forged)
	p := h.ended("forged", v1.PodFailed)
	if p.Status.Reason != "Evicted" {
		h.Errorf("the pod ended with %s: %s", p.Status.Reason, p.Status.Message)
	}
	// A static pod is critical and preempts other pods, but this pod is not static.
	h.pod("forged-big", `containers: [{name: main, image: $busybox, command: [sleep, "100000"], resources: {requests: {cpu: "1000"}}}]`, forged)
	if p := h.ended("forged-big", v1.PodFailed); p.Status.Reason != "OutOfcpu" {
		h.Errorf("the pod that does not fit ended with %s: %s", p.Status.Reason, p.Status.Message)
	}
}

// controlSocket runs a pod that mounts the node's /run, which has the agent's control socket. The agent answers root on the node, but
// refuses root in the container, which is in another mount namespace.
func (h *hostile) controlSocket() {
	dir := fmt.Sprintf("/run/wherry-it-%d", os.Getpid())
	h.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.MkdirAll(dir, 0o700); err != nil {
		h.Fatal(err)
	}
	socket := filepath.Join(dir, "wherry.sock")
	n := started(h.T, h.env, nodeConfig{Name: "hostile-socket", Config: apart, Flags: append([]string{"--push-socket=" + socket}, simulated...)})
	n.mustBeReady(h.T)
	h.eventually("the control socket to answer root on the node", func() error {
		out, err := command(h.env.wherry, "ps", "--socket", socket).CombinedOutput()
		if err != nil {
			return errorf("wherry ps: %v %s", err, out)
		}
		return nil
	})
	h.pod("sees-run", `
volumes: [{name: run, hostPath: {path: /run}}]
containers:
- name: main
  image: $busybox
  command: [sleep, "100000"]
  volumeMounts: [{name: run, mountPath: /hostrun}]`)
	h.ready("sees-run")
	out, err := h.inContainer("sees-run", "ps", "--socket", strings.Replace(socket, "/run", "/hostrun", 1))
	if err == nil || !strings.Contains(out, "not from a container") {
		h.Errorf("wherry ps in the container: %v %q, want a refusal that says why", err, out)
	}
	h.remove("sees-run")
}

// inContainer runs the wherry command in the mount and PID namespaces of the first container of a pod.
func (h *hostile) inContainer(pod string, args ...string) (string, error) {
	h.Helper()
	id := strings.TrimPrefix(h.get(pod).Status.ContainerStatuses[0].ContainerID, "containerd://")
	pid, err := h.on.crictl("inspect", "--output", "go-template", "--template", "{{.info.pid}}", id)
	if err != nil {
		h.Fatal(err)
	}
	program, err := os.Open(h.env.wherry)
	if err != nil {
		h.Fatal(err)
	}
	defer program.Close()
	cmd := command("nsenter", append([]string{"--target", strings.TrimSpace(pid), "--mount", "--pid", "/proc/self/fd/3"}, args...)...)
	cmd.ExtraFiles = []*os.File{program}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// tokenFlood sends requests with unknown tokens, up to a thousand per second, for ten seconds. They do not delay the status of a pod that
// is created meanwhile.
func (h *hostile) tokenFlood() {
	const senders, lasts = 50, 10 * time.Second
	url := fmt.Sprintf("https://127.0.0.1:%d/pods", h.on.port)
	var flood sync.WaitGroup
	answers := make([]map[int]int, senders)
	until := time.Now().Add(lasts)
	for i := range senders {
		answers[i] = map[int]int{}
		flood.Go(func() {
			client := strangersClient()
			defer client.CloseIdleConnections()
			pause := time.NewTicker(senders * time.Millisecond)
			defer pause.Stop()
			for n := 0; time.Now().Before(until); n++ {
				answers[i][stranger(client, url, fmt.Sprintf("abc.%d.%d", i, n))]++
				<-pause.C
			}
		})
	}
	began := time.Now()
	h.pod("beside-flood", `containers: [{name: main, image: $busybox, command: [sleep, "100000"]}]`)
	h.ready("beside-flood")
	took := time.Since(began)
	flood.Wait()
	sum := map[int]int{}
	for _, a := range answers {
		for status, n := range a {
			sum[status] += n
		}
	}
	h.Logf("a pod was Ready %.1f s after its creation beside the flood; answers by status (0: none): %v", took.Seconds(), sum)
	for status, n := range sum {
		if status != http.StatusUnauthorized && status != http.StatusTooManyRequests && status != 0 {
			h.Errorf("%d strangers got status %d", n, status)
		}
	}
	if sum[http.StatusUnauthorized] == 0 {
		h.Errorf("no stranger was answered 401: %v", sum)
	}
	h.remove("beside-flood")
}

// strangersClient returns an HTTP client for a client without valid credentials. Unlike the tests' usual client, it reuses its connection.
func strangersClient() *http.Client {
	transport := httpClient.Transport.(*http.Transport).Clone()
	transport.DisableKeepAlives, transport.TLSClientConfig = false, &tls.Config{InsecureSkipVerify: true}
	return &http.Client{Timeout: time.Minute, Transport: transport}
}

// stranger sends a request with a bearer token and returns the HTTP status of the answer; 0: there was no answer.
func stranger(client *http.Client, url, token string) int {
	req, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return 0
	}
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := client.Do(req)
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 1<<20))
	return resp.StatusCode
}
