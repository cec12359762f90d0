package simcri_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/wherry-node/wherry/internal/sim/simcri"
)

// inBubble runs f with a new runtime in a synctest bubble.
func inBubble(t *testing.T, cfg simcri.Config, f func(t *testing.T, r *simcri.Runtime)) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cfg.Images = append(cfg.Images, busybox)
		r := simcri.New(cfg)
		defer r.Close()
		f(t, r)
	})
}

func sandboxConfig(name string, annotations map[string]string) *runtimeapi.PodSandboxConfig {
	return &runtimeapi.PodSandboxConfig{
		Metadata:    &runtimeapi.PodSandboxMetadata{Name: name, Namespace: "ns", Uid: "uid-" + name},
		Annotations: annotations,
	}
}

func runSandbox(t *testing.T, r *simcri.Runtime, name string, annotations map[string]string) string {
	t.Helper()
	resp, err := r.RunPodSandbox(t.Context(), &runtimeapi.RunPodSandboxRequest{Config: sandboxConfig(name, annotations)})
	if err != nil {
		t.Fatal(err)
	}
	return resp.PodSandboxId
}

func createRequest(sandbox, pod, name string, attempt uint32, cmd ...string) *runtimeapi.CreateContainerRequest {
	return &runtimeapi.CreateContainerRequest{
		PodSandboxId: sandbox, SandboxConfig: sandboxConfig(pod, nil),
		Config: &runtimeapi.ContainerConfig{
			Metadata: &runtimeapi.ContainerMetadata{Name: name, Attempt: attempt},
			Image:    &runtimeapi.ImageSpec{Image: busybox}, Command: cmd,
		},
	}
}

func startContainer(t *testing.T, r *simcri.Runtime, req *runtimeapi.CreateContainerRequest) string {
	t.Helper()
	resp, err := r.CreateContainer(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.StartContainer(t.Context(), &runtimeapi.StartContainerRequest{ContainerId: resp.ContainerId}); err != nil {
		t.Fatal(err)
	}
	return resp.ContainerId
}

// how returns the state of a container on one line: "exited 7 Error msg".
func how(t *testing.T, r *simcri.Runtime, id string) string {
	t.Helper()
	resp, err := r.ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: id})
	if err != nil {
		return status.Code(err).String()
	}
	s := resp.Status
	if s.State == runtimeapi.ContainerState_CONTAINER_EXITED {
		return strings.TrimSpace(fmt.Sprintf("exited %d %s %s", s.ExitCode, s.Reason, s.Message))
	}
	return strings.ToLower(strings.TrimPrefix(s.State.String(), "CONTAINER_"))
}

func TestBehavior(t *testing.T) {
	cases := []struct {
		name        string
		annotations map[string]string
		cmd         []string
		attempt     uint32
		after       time.Duration
		want        string
		stop        string // the state after a stop with a grace period of 10 s; "": no stop
		took        time.Duration
	}{
		{name: "server", after: time.Hour, want: "running", stop: "exited 0 Completed"},
		{name: "server command", cmd: []string{"nginx", "-g", "daemon off;"}, after: time.Hour, want: "running", stop: "exited 0 Completed"},
		{name: "sleep", cmd: []string{"sleep", "90"}, after: 89 * time.Second, want: "running", stop: "exited 0 Completed", took: time.Second},
		{name: "sleep ends", cmd: []string{"sleep", "1m", "30"}, after: 90 * time.Second, want: "exited 0 Completed"},
		{name: "sleeps for ever", cmd: []string{"sleep", "infinity"}, after: time.Hour, want: "running", stop: "exited 137 Error", took: 10 * time.Second},
		{name: "loop", cmd: []string{"sh", "-c", "while true; do echo hi; sleep 1; done"}, after: time.Hour, want: "running", stop: "exited 137 Error", took: 10 * time.Second},
		{name: "script", cmd: []string{"/bin/sh", "-c", "echo a && sleep 5; false || exit 4"}, after: 5 * time.Second, want: "exited 4 Error"},
		{name: "message", cmd: []string{"sh", "-c", "echo -n why > /dev/termination-log; exit 1"}, want: "exited 1 Error why"},
		{name: "exec server", cmd: []string{"sh", "-c", "echo start; exec myserver --flag"}, after: time.Hour, want: "running", stop: "exited 0 Completed"},
		{name: "run for", annotations: map[string]string{simcri.AnnotationRunFor: "10s", simcri.AnnotationExitCode: "3"}, after: 10 * time.Second, want: "exited 3 Error"},
		{name: "oom", annotations: map[string]string{simcri.AnnotationExitCode: "137", simcri.AnnotationExitReason: "OOMKilled"}, want: "exited 137 OOMKilled"},
		{name: "of this container", annotations: map[string]string{simcri.AnnotationExitCode + ".main": "5", simcri.AnnotationExitCode: "6"}, want: "exited 5 Error"},
		{name: "of another", annotations: map[string]string{simcri.AnnotationExitCode + ".other": "5"}, want: "running"},
		{name: "fails at first", annotations: map[string]string{simcri.AnnotationExitCode: "1", simcri.AnnotationFailAttempts: "2"}, attempt: 1, want: "exited 1 Error"},
		{name: "then serves", annotations: map[string]string{simcri.AnnotationExitCode: "1", simcri.AnnotationFailAttempts: "2"}, attempt: 2, want: "running"},
		{name: "slow to stop", annotations: map[string]string{simcri.AnnotationStopAfter: "4s"}, want: "running", stop: "exited 0 Completed", took: 4 * time.Second},
		{name: "never stops", annotations: map[string]string{simcri.AnnotationStopAfter: "never"}, want: "running", stop: "exited 137 Error", took: 10 * time.Second},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, simcri.Config{}, func(t *testing.T, r *simcri.Runtime) {
				s := runSandbox(t, r, "p", c.annotations)
				id := startContainer(t, r, createRequest(s, "p", "main", c.attempt, c.cmd...))
				time.Sleep(c.after)
				synctest.Wait()
				if got := how(t, r, id); got != c.want {
					t.Errorf("after %s it is %q, want %q", c.after, got, c.want)
				}
				if c.stop == "" {
					return
				}
				began := time.Now()
				if _, err := r.StopContainer(t.Context(), &runtimeapi.StopContainerRequest{ContainerId: id, Timeout: 10}); err != nil {
					t.Fatal(err)
				}
				if got, took := how(t, r, id), time.Since(began); got != c.stop || took != c.took {
					t.Errorf("stopped in %s it is %q, want %q in %s", took, got, c.stop, c.took)
				}
			})
		})
	}
}

func TestStartError(t *testing.T) {
	inBubble(t, simcri.Config{}, func(t *testing.T, r *simcri.Runtime) {
		s := runSandbox(t, r, "p", map[string]string{simcri.AnnotationStartError: "exec: nope: not found"})
		resp, err := r.CreateContainer(t.Context(), createRequest(s, "p", "main", 0))
		if err != nil {
			t.Fatal(err)
		}
		_, err = r.StartContainer(t.Context(), &runtimeapi.StartContainerRequest{ContainerId: resp.ContainerId})
		if err == nil || !strings.Contains(err.Error(), "nope: not found") {
			t.Errorf("StartContainer: %v", err)
		}
		if got := how(t, r, resp.ContainerId); !strings.HasPrefix(got, "exited 128 StartError") {
			t.Errorf("it is %q", got)
		}
	})
}

func TestFaults(t *testing.T) {
	inBubble(t, simcri.Config{}, func(t *testing.T, r *simcri.Runtime) {
		run := func(name string) error {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			_, err := r.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: sandboxConfig(name, nil)})
			return err
		}
		sandboxes := func() int {
			resp, err := r.ListPodSandbox(t.Context(), &runtimeapi.ListPodSandboxRequest{})
			if err != nil {
				t.Fatal(err)
			}
			return len(resp.Items)
		}
		cases := []struct {
			name  string
			fault simcri.Fault
			code  codes.Code
			took  time.Duration
			made  int
			again codes.Code // the code of the same call when it is repeated at once
		}{
			{"refuse", simcri.Fault{Method: "RunPodSandbox", Err: status.Error(codes.Internal, "no")}, codes.Internal, 0, 0, codes.OK},
			{"hang", simcri.Fault{Method: "RunPodSandbox", Effect: simcri.Hang}, codes.DeadlineExceeded, time.Minute, 0, codes.OK},
			{"slow", simcri.Fault{Method: "", Pod: "slow", Effect: simcri.Slow, Delay: 20 * time.Second}, codes.OK, 20 * time.Second, 1, codes.Unknown},
			{"lost", simcri.Fault{Method: "RunPodSandbox", Effect: simcri.Lost, Err: status.Error(codes.Unavailable, "cut")}, codes.Unavailable, 0, 1, codes.Unknown},
			{"unknown", simcri.Fault{Method: "RunPodSandbox", Effect: simcri.Lost, Delay: -1}, codes.DeadlineExceeded, time.Minute, 1, codes.Unknown},
			{"keeps", simcri.Fault{Method: "RunPodSandbox", Effect: simcri.KeepName, Delay: time.Minute}, codes.Unknown, 0, 0, codes.Unknown},
			{"other pod", simcri.Fault{Pod: "nobody"}, codes.OK, 0, 1, codes.Unknown},
		}
		for _, c := range cases {
			c.fault.Times = 1
			remove := r.Inject(c.fault)
			before, began := sandboxes(), time.Now()
			err := run(c.name)
			if took := time.Since(began); status.Code(err) != c.code || took != c.took {
				t.Errorf("%s: %v after %s, want %s after %s", c.name, err, took, c.code, c.took)
			}
			if made := sandboxes() - before; made != c.made {
				t.Errorf("%s: made %d sandboxes, want %d", c.name, made, c.made)
			}
			if err := run(c.name); status.Code(err) != c.again {
				t.Errorf("%s: again: %v, want %s", c.name, err, c.again)
			}
			remove()
		}
		time.Sleep(time.Minute + time.Second)
		if err := run("keeps"); err != nil {
			t.Errorf("the reserved name is not free after a minute: %v", err)
		}
	})
}

func TestEventsGetLostAndStreamsEnd(t *testing.T) {
	inBubble(t, simcri.Config{}, func(t *testing.T, r *simcri.Runtime) {
		rt, _ := r.Clients()
		stream, err := rt.GetContainerEvents(t.Context(), &runtimeapi.GetEventsRequest{})
		if err != nil {
			t.Fatal(err)
		}
		r.Inject(simcri.Fault{Method: simcri.MethodEvent, Pod: "lost"})
		runSandbox(t, r, "lost", nil)
		runSandbox(t, r, "seen", nil)
		e, err := stream.Recv()
		if err != nil || e.PodSandboxStatus.Metadata.Name != "seen" {
			t.Errorf("event %v %v", e, err)
		}
		r.Disconnect()
		if e, err = stream.Recv(); err != nil || e.ContainerEventType != runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT {
			t.Errorf("the event before the end: %v %v", e, err)
		}
		if _, err = stream.Recv(); status.Code(err) != codes.Unavailable {
			t.Errorf("after a restart of the runtime: %v", err)
		}
		if _, err := rt.GetContainerEvents(t.Context(), &runtimeapi.GetEventsRequest{}); err != nil {
			t.Errorf("subscribe again: %v", err)
		}
	})
}

func TestStreamedListsAndTheirEnd(t *testing.T) {
	inBubble(t, simcri.Config{}, func(t *testing.T, r *simcri.Runtime) {
		rt, _ := r.Clients()
		s := runSandbox(t, r, "p", nil)
		for want := range 2 {
			stream, err := rt.StreamContainers(t.Context(), &runtimeapi.StreamContainersRequest{Filter: &runtimeapi.ContainerFilter{PodSandboxId: s}})
			if err != nil {
				t.Fatal(err)
			}
			got := 0
			for {
				resp, err := stream.Recv()
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil || len(resp.Containers) == 0 {
					t.Fatalf("%v %v", resp, err)
				}
				got += len(resp.Containers)
			}
			if got != want {
				t.Errorf("%d containers, want %d", got, want)
			}
			startContainer(t, r, createRequest(s, "p", fmt.Sprint("c", want), 0))
		}
	})
}

func TestScriptedOutput(t *testing.T) {
	for name, c := range map[string]struct {
		script string
		after  time.Duration
		want   string
	}{
		"variables":   {`A=one; B="$A two"; echo $A "${B}" '$A' "a\"b" c\ d`, 0, "one one two $A a\"b c d\n"},
		"loop":        {`echo start; while true; do echo lap; sleep 10; done`, 25 * time.Second, "start\nlap\nlap\nlap\n"},
		"busy loop":   {`while :; do echo x; done`, 1500 * time.Millisecond, "x\nx\n"},
		"for":         {`for i in a b c; do echo $i; sleep 1; done; echo end`, 2 * time.Second, "a\nb\nc\n"},
		"date":        {`sleep 2; echo "now $(date)"`, 3 * time.Second, "now Sat Jan  1 00:00:02 UTC 2000\n"},
		"conditions":  {`false && echo no || echo yes; true || echo no`, 0, "yes\n"},
		"arithmetic":  {`i=0; echo "$((i+1)):" x`, 0, ": x\n"},
		"lines":       {"# comment\necho one\n\necho two", 0, "one\ntwo\n"},
		"unclosed":    {`echo "open`, 0, "open\n"},
		"nested loop": {`while true; do for i in 1 2; do echo $i; done; sleep 5; done; echo never`, 6 * time.Second, "1\n2\n1\n2\n"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, simcri.Config{WriteLogs: true}, func(t *testing.T, r *simcri.Runtime) {
				cfg := sandboxConfig("p", nil)
				cfg.LogDirectory = t.TempDir()
				resp, err := r.RunPodSandbox(t.Context(), &runtimeapi.RunPodSandboxRequest{Config: cfg})
				if err != nil {
					t.Fatal(err)
				}
				req := createRequest(resp.PodSandboxId, "p", "main", 0, "sh", "-c", c.script)
				req.Config.LogPath = "log"
				startContainer(t, r, req)
				time.Sleep(c.after)
				synctest.Wait()
				raw, err := os.ReadFile(filepath.Join(cfg.LogDirectory, "log"))
				if err != nil {
					t.Fatal(err)
				}
				got := ""
				for line := range strings.Lines(string(raw)) {
					got += strings.SplitN(line, " ", 4)[3]
				}
				if diff := cmp.Diff(c.want, got); diff != "" {
					t.Errorf("output (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// TestSameSeedSameWorld makes the same calls on three runtimes. With the same seed, IDs and durations are equal; with another seed they
// differ.
func TestSameSeedSameWorld(t *testing.T) {
	t.Parallel()
	world := func(seed uint64) (out []string) {
		synctest.Test(t, func(t *testing.T) {
			r := simcri.New(simcri.Config{Seed: seed, Images: []string{busybox}, Latency: map[string]simcri.Latency{"": {Mean: time.Second, Jitter: 500 * time.Millisecond}}})
			defer r.Close()
			began := time.Now()
			s := runSandbox(t, r, "p", nil)
			c := startContainer(t, r, createRequest(s, "p", "main", 0, "sleep", "3"))
			out = append(out, s, c, time.Since(began).String())
		})
		return out
	}
	a, b, other := world(1), world(1), world(2)
	if diff := cmp.Diff(a, b); diff != "" {
		t.Errorf("two worlds of one seed differ:\n%s", diff)
	}
	for i := range a {
		if a[i] == other[i] {
			t.Errorf("another seed gave the same %s", a[i])
		}
	}
}

// TestIdleCostsNothing checks that idle pods need no goroutines and at most 4 KiB of memory each.
func TestIdleCostsNothing(t *testing.T) {
	const pods = 2000
	r := simcri.New(simcri.Config{Images: []string{busybox}})
	defer r.Close()
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	goroutines, before := runtime.NumGoroutine(), heap()
	for i := range pods {
		name := fmt.Sprint("p", i)
		startContainer(t, r, createRequest(runSandbox(t, r, name, nil), name, "main", 0))
	}
	perPod := (heap() - before) / pods
	t.Logf("%d bytes per idle pod of one container, its messages included", perPod)
	if perPod > 4096 {
		t.Errorf("%d bytes per idle pod, want at most 4096", perPod)
	}
	if n := runtime.NumGoroutine(); n > goroutines+2 {
		t.Errorf("%d goroutines more for %d pods", n-goroutines, pods)
	}
	runtime.KeepAlive(r)
}
