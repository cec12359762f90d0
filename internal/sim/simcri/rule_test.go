package simcri_test

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/wherry-node/wherry/internal/sim/simcri"
	"github.com/wherry-node/wherry/internal/sim/simrules"
)

func rulesOf(t *testing.T, text string) *simrules.Rules {
	t.Helper()
	rules, err := simrules.Parse("r.yaml", []byte("apiVersion: wherry.dev/v1alpha1\nkind: SimulationRules\n"+text), nil)
	if err != nil {
		t.Fatal(err)
	}
	return rules
}

// Containers end as the rules say for their attempt. Annotations of the pod take precedence.
func TestRulesEndContainers(t *testing.T) {
	rules := rulesOf(t, `containers:
- match: {container: job}
  do: {exits: [{after: 10s, code: 7, reason: Broken, message: sorry}, {oom: true, after: 1s}, {runs: true}]}
- match: {container: bad}
  do: {startError: no such binary}
- match: {image: "*busybox*"}
  do: {stopAfter: 4s, stopCode: 9}
`)
	inBubble(t, simcri.Config{Rules: rules}, func(t *testing.T, r *simcri.Runtime) {
		sandbox := runSandbox(t, r, "p", nil)
		for attempt, want := range []string{"exited 7 Broken sorry", "exited 137 OOMKilled", "running", "running"} {
			id := startContainer(t, r, createRequest(sandbox, "p", "job", uint32(attempt), "sh", "-c", "exit 1"))
			time.Sleep(11 * time.Second)
			if got := strings.TrimSpace(how(t, r, id)); got != want {
				t.Errorf("attempt %d: %q, want %q", attempt, got, want)
			}
			began := time.Now()
			if _, err := r.StopContainer(t.Context(), &runtimeapi.StopContainerRequest{ContainerId: id, Timeout: 30}); err != nil {
				t.Error(err)
			}
			if took := time.Since(began); want == "running" && (took != 4*time.Second || !strings.HasPrefix(how(t, r, id), "exited 9")) {
				t.Errorf("attempt %d: the stop took %s: %s", attempt, took, how(t, r, id))
			}
		}
		noted := runSandbox(t, r, "q", map[string]string{simcri.AnnotationExitCode + ".job": "5", simcri.AnnotationDo + ".other": "exits: [{code: 6}]"})
		if got := how(t, r, startContainer(t, r, createRequest(noted, "q", "job", 0))); !strings.HasPrefix(got, "exited 5") {
			t.Errorf("with an annotation: %q", got)
		}
		if got := how(t, r, startContainer(t, r, createRequest(noted, "q", "other", 0))); !strings.HasPrefix(got, "exited 6") {
			t.Errorf("with a rule in an annotation: %q", got)
		}
		bad, err := r.CreateContainer(t.Context(), createRequest(sandbox, "p", "bad", 0))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.StartContainer(t.Context(), &runtimeapi.StartContainerRequest{ContainerId: bad.ContainerId}); err == nil || !strings.Contains(err.Error(), "no such binary") {
			t.Errorf("start error: %v", err)
		}
		wrong := runSandbox(t, r, "w", map[string]string{simcri.AnnotationDo: "exits: [{cod: 6}]"})
		if _, err := r.CreateContainer(t.Context(), createRequest(wrong, "w", "main", 0)); err == nil || !strings.Contains(err.Error(), "annotation wherry.dev/sim-do:1: exits[0].cod") {
			t.Errorf("a wrong annotation: %v", err)
		}
		for name, value := range map[string]string{
			simcri.AnnotationRunFor: "long", simcri.AnnotationExitCode: "many", simcri.AnnotationFailAttempts: "-1", simcri.AnnotationStopAfter: "later", simcri.AnnotationReadyAfter: "-1s",
			simcri.AnnotationFailAfter: "1", simcri.AnnotationCPU: "NaN", simcri.AnnotationMemory: "-1Mi", simcri.AnnotationMemoryGrows: "much", simcri.AnnotationDisk: "", simcri.AnnotationDiskGrows: "1e",
		} {
			s := runSandbox(t, r, name, map[string]string{name + ".main": value, name + ".other": "is not read"})
			if _, err := r.CreateContainer(t.Context(), createRequest(s, name, "main", 0)); err == nil || !strings.Contains(err.Error(), "annotation "+name+": ") || !strings.Contains(err.Error(), "use a") {
				t.Errorf("the annotation %s=%q: %v", name, value, err)
			}
		}
		// resource.ParseQuantity would work on this for hours, while no other call of the runtime is answered.
		for _, name := range []string{simcri.AnnotationMemory, simcri.AnnotationDiskGrows} {
			s := runSandbox(t, r, name+"-huge", map[string]string{name: "1e-2147483648"})
			if _, err := r.CreateContainer(t.Context(), createRequest(s, name+"-huge", "main", 0)); err == nil || !strings.Contains(err.Error(), "use a number of bytes") {
				t.Errorf("the annotation %s with a huge exponent: %v", name, err)
			}
		}
		s := runSandbox(t, r, "huge", map[string]string{simcri.AnnotationDo: `memory: {value: "1e-2147483648"}`})
		if _, err := r.CreateContainer(t.Context(), createRequest(s, "huge", "main", 0)); err == nil || !strings.Contains(err.Error(), "exponent") {
			t.Errorf("a rule with a huge exponent: %v", err)
		}
	})
}

// A container whose memory exceeds its limit ends as out of memory, at the time that follows from its usage. A higher limit moves the time.
func TestRulesRunOutOfMemory(t *testing.T) {
	rules := rulesOf(t, "containers:\n- match: {container: leak}\n  do: {memory: {value: 10Mi, perSecond: 1Mi}}\n")
	inBubble(t, simcri.Config{Rules: rules}, func(t *testing.T, r *simcri.Runtime) {
		limited := func(name string, attempt uint32, annotations map[string]string) string {
			pod := name + string(rune('a'+attempt))
			req := createRequest(runSandbox(t, r, pod, annotations), pod, name, attempt)
			req.Config.Linux = &runtimeapi.LinuxContainerConfig{Resources: &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 20 << 20}}
			return startContainer(t, r, req)
		}
		leak, moved := limited("leak", 0, nil), limited("leak", 1, nil)
		noted := limited("other", 0, map[string]string{simcri.AnnotationMemory: "41943040"})
		small := limited("small", 0, nil) // nothing says its memory, so it has no end
		time.Sleep(9 * time.Second)
		if _, err := r.UpdateContainerResources(t.Context(), &runtimeapi.UpdateContainerResourcesRequest{
			ContainerId: moved, Linux: &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 40 << 20},
		}); err != nil {
			t.Fatal(err)
		}
		if got := how(t, r, leak); !strings.HasPrefix(got, "running") {
			t.Errorf("after 9s: %s", got)
		}
		st, err := r.ContainerStats(t.Context(), &runtimeapi.ContainerStatsRequest{ContainerId: leak})
		if err != nil || st.Stats.Memory.WorkingSetBytes.Value != 19<<20 {
			t.Errorf("%v, %v", st, err)
		}
		time.Sleep(2 * time.Second)
		for id, want := range map[string]string{leak: "exited 137 OOMKilled", noted: "exited 137 OOMKilled", moved: "running", small: "running"} {
			if got := how(t, r, id); !strings.HasPrefix(got, want) {
				t.Errorf("after 11s: %s, want %s", got, want)
			}
		}
		time.Sleep(20 * time.Second)
		if got := how(t, r, moved); !strings.HasPrefix(got, "exited 137 OOMKilled") {
			t.Errorf("after 31s: %s", got)
		}
	})
}

// The CPU time of a container is the sum of its usage.
func TestRulesUseCPU(t *testing.T) {
	rules := rulesOf(t, "containers:\n- do: {cpu: {value: 1, to: 3, over: 10s}, disk: {value: 1Mi}}\n")
	inBubble(t, simcri.Config{Rules: rules}, func(t *testing.T, r *simcri.Runtime) {
		id := startContainer(t, r, createRequest(runSandbox(t, r, "p", nil), "p", "main", 0))
		time.Sleep(10 * time.Second)
		st, err := r.ContainerStats(t.Context(), &runtimeapi.ContainerStatsRequest{ContainerId: id})
		if err != nil {
			t.Fatal(err)
		}
		if c := st.Stats.Cpu; c.UsageNanoCores.Value != 3e9 || c.UsageCoreNanoSeconds.Value != 20e9 || st.Stats.WritableLayer.UsedBytes.Value != 1<<20 {
			t.Errorf("%v", st.Stats)
		}
	})
}

// Commands and requests get the answers of the rules, and logs have their lines.
func TestRulesAnswerAndLog(t *testing.T) {
	rules := rulesOf(t, `containers:
- do:
    readyAfter: 5s
    exec: [{command: "cat /etc/*", stdout: "hello\n", code: 3}]
    http: [{path: "/old*", status: 410, body: gone}]
    log:
      lines: [{text: starting}, {after: 2s, text: "two\nlines", stderr: true}]
      repeat: [{after: 10s, text: tick}]
`)
	inBubble(t, simcri.Config{Rules: rules, WriteLogs: true}, func(t *testing.T, r *simcri.Runtime) {
		cfg := sandboxConfig("p", nil)
		cfg.LogDirectory = t.TempDir()
		sandbox, err := r.RunPodSandbox(t.Context(), &runtimeapi.RunPodSandboxRequest{Config: cfg})
		if err != nil {
			t.Fatal(err)
		}
		req := createRequest(sandbox.PodSandboxId, "p", "main", 0, "sleep", "60")
		req.Config.LogPath = "main.log"
		id := startContainer(t, r, req)
		exec := func(cmd ...string) *runtimeapi.ExecSyncResponse {
			resp, err := r.ExecSync(t.Context(), &runtimeapi.ExecSyncRequest{ContainerId: id, Cmd: cmd})
			if err != nil {
				t.Fatal(err)
			}
			return resp
		}
		if got := exec("probe"); got.ExitCode != 1 {
			t.Errorf("a probe before the container is ready: %v", got)
		}
		time.Sleep(25 * time.Second)
		if got := exec("probe"); got.ExitCode != 0 {
			t.Errorf("a probe afterwards: %v", got)
		}
		if got := exec("cat", "/etc/passwd"); string(got.Stdout) != "hello\n" || got.ExitCode != 3 {
			t.Errorf("%v", got)
		}
		sb, err := r.PodSandboxStatus(t.Context(), &runtimeapi.PodSandboxStatusRequest{PodSandboxId: sandbox.PodSandboxId})
		if err != nil {
			t.Fatal(err)
		}
		conn, err := r.DialContext(t.Context(), "tcp", sb.Status.Network.Ip+":80")
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		answers := bufio.NewReader(conn)
		for path, want := range map[string]int{"/old/x": 410, "/": 200} {
			if _, err := io.WriteString(conn, "GET "+path+" HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
				t.Fatal(err)
			}
			resp, err := http.ReadResponse(answers, nil)
			if err != nil || resp.StatusCode != want {
				t.Fatalf("%s: %v, %v", path, resp, err)
			}
			body, _ := io.ReadAll(resp.Body)
			if want == 410 && string(body) != "gone" {
				t.Errorf("%s: %q", path, body)
			}
		}
		text, err := os.ReadFile(cfg.LogDirectory + "/main.log")
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for line := range strings.Lines(string(text)) {
			_, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
			got = append(got, rest)
		}
		if diff := cmp.Diff([]string{"stdout F starting", "stderr F two", "stderr F lines", "stdout F tick", "stdout F tick"}, got); diff != "" {
			t.Error(diff)
		}
	})
}

// The containers of a pod do not run before the time of startAfter since the start of their sandbox; a restart does not wait. A start ends with its
// caller, and the next one waits for the rest.
func TestRulesDelayTheStart(t *testing.T) {
	rules := rulesOf(t, "containers:\n- do: {startAfter: 1m}\n")
	inBubble(t, simcri.Config{Rules: rules}, func(t *testing.T, r *simcri.Runtime) {
		sandbox, began := runSandbox(t, r, "p", nil), time.Now()
		after := func(name string, want time.Duration) {
			t.Helper()
			if got := time.Since(began); got != want {
				t.Errorf("%s after %s, want %s", name, got, want)
			}
		}
		time.Sleep(10 * time.Second)
		made, err := r.CreateContainer(t.Context(), createRequest(sandbox, "p", "main", 0, "sh", "-c", "sleep 5; exit 1"))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		if _, err := r.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: made.ContainerId}); status.Code(err) != codes.DeadlineExceeded || how(t, r, made.ContainerId) != "created" {
			t.Errorf("a start that is given up: %v: %s", err, how(t, r, made.ContainerId))
		}
		after("the start is given up", 30*time.Second)
		if _, err := r.StartContainer(t.Context(), &runtimeapi.StartContainerRequest{ContainerId: made.ContainerId}); err != nil {
			t.Fatal(err)
		}
		after("the container runs", time.Minute)
		if got := how(t, r, made.ContainerId); got != "running" {
			t.Errorf("after its start it is %q", got)
		}
		startContainer(t, r, createRequest(sandbox, "p", "sidecar", 0))
		after("the second container runs", time.Minute)
		time.Sleep(5 * time.Second)
		synctest.Wait() // it ends now
		if got := how(t, r, made.ContainerId); got != "exited 1 Error" {
			t.Errorf("5s after its start it is %q", got)
		}
		startContainer(t, r, createRequest(sandbox, "p", "main", 1))
		after("the restart", 65*time.Second)
	})
}

// A rule that only says what a container writes replaces the output of its command, and nothing else: the command decides when and how the container
// ends, and what a stop signal does, also after its memory limit was raised.
func TestRuleOfOnlyALog(t *testing.T) {
	rules := rulesOf(t, `containers:
- match: {container: leak}
  do: {memory: {value: 10Mi, perSecond: 1Mi}, log: {lines: [{text: ruled}]}}
- do: {log: {lines: [{text: ruled}, {after: 2s, text: again}, {after: 1h, text: too late}]}}
`)
	inBubble(t, simcri.Config{Rules: rules, WriteLogs: true}, func(t *testing.T, r *simcri.Runtime) {
		cfg := sandboxConfig("p", nil)
		cfg.LogDirectory = t.TempDir()
		sandbox, err := r.RunPodSandbox(t.Context(), &runtimeapi.RunPodSandboxRequest{Config: cfg})
		if err != nil {
			t.Fatal(err)
		}
		start := func(name string, cmd ...string) string {
			req := createRequest(sandbox.PodSandboxId, "p", name, 0, cmd...)
			req.Config.LogPath = name + ".log"
			req.Config.Linux = &runtimeapi.LinuxContainerConfig{Resources: &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 20 << 20}}
			return startContainer(t, r, req)
		}
		job := start("job", "sh", "-c", "echo own; sleep 5; echo sorry > /dev/termination-log; exit 3")
		leak := start("leak", "sh", "-c", "sleep 25; exit 4")
		deaf, server := start("deaf", "sleep", "infinity"), start("server")
		time.Sleep(4 * time.Second)
		if got := how(t, r, job); got != "running" {
			t.Errorf("after 4s the job is %q", got)
		}
		if _, err := r.UpdateContainerResources(t.Context(), &runtimeapi.UpdateContainerResourcesRequest{
			ContainerId: leak, Linux: &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 400 << 20},
		}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		if got := how(t, r, job); got != "exited 3 Error sorry" {
			t.Errorf("after 6s the job is %q", got)
		}
		for id, want := range map[string]time.Duration{deaf: 10 * time.Second, server: 0} {
			began := time.Now()
			if _, err := r.StopContainer(t.Context(), &runtimeapi.StopContainerRequest{ContainerId: id, Timeout: 10}); err != nil || time.Since(began) != want {
				t.Errorf("%s: the stop took %s, want %s: %v", how(t, r, id), time.Since(began), want, err)
			}
		}
		time.Sleep(15 * time.Second)
		if got := how(t, r, leak); got != "exited 4 Error" {
			t.Errorf("after more than 25s the container with a higher limit is %q", got)
		}
		text, err := os.ReadFile(cfg.LogDirectory + "/job.log")
		if err != nil || !strings.Contains(string(text), "ruled") || !strings.Contains(string(text), "again") || strings.Contains(string(text), "own") {
			t.Errorf("the log of the job: %q, %v", text, err)
		}
	})
}

// The size and the pull of an image follow from the rules.
func TestRulesPullImages(t *testing.T) {
	rules := rulesOf(t, "images:\n- {image: \"registry.example/big*\", size: 200Mi, speed: 10Mi}\n- {image: \"*broken*\", error: no space left}\n")
	inBubble(t, simcri.Config{Rules: rules}, func(t *testing.T, r *simcri.Runtime) {
		pull := func(name string) (time.Duration, error) {
			began := time.Now()
			_, err := r.PullImage(t.Context(), &runtimeapi.PullImageRequest{Image: &runtimeapi.ImageSpec{Image: name}})
			return time.Since(began), err
		}
		if took, err := pull("registry.example/big:1"); err != nil || took != 20*time.Second {
			t.Errorf("%s, %v", took, err)
		}
		resp, err := r.ImageStatus(t.Context(), &runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: "registry.example/big:1"}})
		if err != nil || resp.Image.GetSize() != 200<<20 {
			t.Errorf("%v, %v", resp, err)
		}
		if _, err := pull("registry.example/broken"); err == nil || !strings.Contains(err.Error(), "no space left") {
			t.Errorf("%v", err)
		}
		if took, err := pull("other"); err != nil || took != 0 {
			t.Errorf("%s, %v", took, err)
		}
	})
}
