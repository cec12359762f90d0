package simcri_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/wherry-node/wherry/internal/sim/simcri"
)

// When a container is stopped, a command that ExecSync runs in it is killed too.
func TestCommandsEndWithTheirContainer(t *testing.T) {
	inBubble(t, simcri.Config{}, func(t *testing.T, r *simcri.Runtime) {
		id := startContainer(t, r, createRequest(runSandbox(t, r, "p", nil), "p", "main", 0))
		began := time.Now()
		go func() {
			time.Sleep(3 * time.Second)
			_, _ = r.StopContainer(context.Background(), &runtimeapi.StopContainerRequest{ContainerId: id})
		}()
		resp, err := r.ExecSync(t.Context(), &runtimeapi.ExecSyncRequest{ContainerId: id, Cmd: []string{"sh", "-c", "echo a; sleep 1000; echo b"}})
		if took := time.Since(began); err != nil || resp.ExitCode != 137 || string(resp.Stdout) != "a\n" || took != 3*time.Second {
			t.Errorf("after %s: %v %v", took, resp, err)
		}
	})
}

// A container whose script handles SIGTERM ends at once when it is stopped, and one that does not handle it ends after the timeout. The
// annotation sim-stop-after sets the time for any command.
func TestStopsOfScripts(t *testing.T) {
	for _, c := range []struct {
		name        string
		annotations map[string]string
		cmd         []string
		want        time.Duration
	}{
		{"trap", nil, []string{"sh", "-c", "trap 'exit 0' TERM; while :; do sleep 1; done"}, 0},
		{"sleep", nil, []string{"sleep", "1000"}, 30 * time.Second},
		{"annotation", map[string]string{simcri.AnnotationStopAfter: "5s"}, []string{"sleep", "1000"}, 5 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, simcri.Config{}, func(t *testing.T, r *simcri.Runtime) {
				id := startContainer(t, r, createRequest(runSandbox(t, r, "p", c.annotations), "p", "main", 0, c.cmd...))
				time.Sleep(time.Minute)
				began := time.Now()
				if _, err := r.StopContainer(t.Context(), &runtimeapi.StopContainerRequest{ContainerId: id, Timeout: 30}); err != nil || time.Since(began) != c.want {
					t.Errorf("the stop took %s: %v", time.Since(began), err)
				}
			})
		})
	}
}

// With the longest timeout that a CRI request can have, StopContainer waits and does not kill at once, and ExecSync does not time out.
func TestLongestTimeouts(t *testing.T) {
	inBubble(t, simcri.Config{}, func(t *testing.T, r *simcri.Runtime) {
		id := startContainer(t, r, createRequest(runSandbox(t, r, "p", nil), "p", "main", 0, "sleep", "1000"))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := r.StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: id, Timeout: math.MaxInt64}); status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("stop: %v", err)
		}
		if _, err := r.ExecSync(t.Context(), &runtimeapi.ExecSyncRequest{ContainerId: id, Cmd: []string{"sleep", "5"}, Timeout: math.MaxInt64}); err != nil {
			t.Errorf("exec: %v", err)
		}
	})
}

// The latency with the name "" and a fault without a method apply to every CRI method, but they do not delay a connection to a pod. A latency
// whose jitter is longer than its mean makes no call hang.
func TestLatencyOfEveryMethod(t *testing.T) {
	cfg := simcri.Config{Latency: map[string]simcri.Latency{"": {Mean: 10 * time.Millisecond, Jitter: 40 * time.Millisecond}}}
	inBubble(t, cfg, func(t *testing.T, r *simcri.Runtime) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for range 100 {
			if _, err := r.Version(ctx, &runtimeapi.VersionRequest{}); err != nil {
				t.Fatal(err)
			}
		}
		s := runSandbox(t, r, "p", nil)
		startContainer(t, r, createRequest(s, "p", "main", 0))
		resp, err := r.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: s})
		if err != nil {
			t.Fatal(err)
		}
		r.Inject(simcri.Fault{Effect: simcri.Slow, Delay: 30 * time.Second})
		began := time.Now()
		conn, err := r.DialContext(ctx, "tcp", net.JoinHostPort(resp.Status.Network.Ip, "80"))
		if err != nil || time.Since(began) != 0 {
			t.Fatalf("after %s: %v", time.Since(began), err)
		}
		_ = conn.Close()
		synctest.Wait()
	})
}

// The HTTP server of a pod sends no body in answer to HEAD, and closes the connection of a client whose request header has no end.
func TestServerOfPods(t *testing.T) {
	inBubble(t, simcri.Config{}, func(t *testing.T, r *simcri.Runtime) {
		s := runSandbox(t, r, "p", nil)
		startContainer(t, r, createRequest(s, "p", "main", 0))
		resp, err := r.PodSandboxStatus(t.Context(), &runtimeapi.PodSandboxStatusRequest{PodSandboxId: s})
		if err != nil {
			t.Fatal(err)
		}
		connect := func() net.Conn {
			conn, err := r.DialContext(t.Context(), "tcp", net.JoinHostPort(resp.Status.Network.Ip, "80"))
			if err != nil {
				t.Fatal(err)
			}
			return conn
		}
		conn := connect()
		in := bufio.NewReader(conn)
		for _, method := range []string{http.MethodHead, http.MethodGet, http.MethodHead} {
			req, _ := http.NewRequest(method, "http://p/", nil)
			_, _ = fmt.Fprintf(conn, "%s / HTTP/1.1\r\nHost: p\r\n\r\n", method)
			answer, err := http.ReadResponse(in, req)
			if err != nil || answer.StatusCode != http.StatusOK {
				t.Fatalf("%s: %v %v", method, answer, err)
			}
			body, err := io.ReadAll(answer.Body)
			if err != nil || (method == http.MethodGet) != (len(body) > 0) {
				t.Errorf("%s: body %q, %v", method, body, err)
			}
		}
		_ = conn.Close()

		conn = connect()
		_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\n")
		line, sent := "X: "+strings.Repeat("x", 1000)+"\r\n", 0
		for err = nil; err == nil && sent < 8<<20; sent += len(line) {
			_, err = io.WriteString(conn, line)
		}
		if err == nil {
			t.Errorf("the server has read %d bytes of a head without an end", sent)
		}
		_ = conn.Close()
	})
}

// An ID is never used again, not even within the same instant.
func TestIDsAreNotUsedAgain(t *testing.T) {
	inBubble(t, simcri.Config{}, func(t *testing.T, r *simcri.Runtime) {
		seen := map[string]bool{}
		for range 5 {
			id := runSandbox(t, r, "p", nil)
			if seen[id] {
				t.Fatalf("the ID %s comes again", id)
			}
			seen[id] = true
			if _, err := r.RemovePodSandbox(t.Context(), &runtimeapi.RemovePodSandboxRequest{PodSandboxId: id}); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// Annotations with very large numbers do not make the machine's total memory and disk usage overflow.
func TestHugeAnnotations(t *testing.T) {
	inBubble(t, simcri.Config{}, func(t *testing.T, r *simcri.Runtime) {
		for _, name := range []string{"a", "b", "c"} {
			s := runSandbox(t, r, name, map[string]string{
				simcri.AnnotationMemory: "18446744073709551615", simcri.AnnotationDiskGrows: "18446744073709551615", simcri.AnnotationCPU: "1e300",
			})
			startContainer(t, r, createRequest(s, name, "main", 0))
		}
		time.Sleep(time.Hour)
		if memory, disk, _ := r.Used(); memory <= 0 || disk <= 0 {
			t.Errorf("memory %d, disk %d", memory, disk)
		}
	})
}
