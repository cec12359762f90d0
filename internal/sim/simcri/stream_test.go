package simcri_test

import (
	"bytes"
	"errors"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	utilexec "k8s.io/client-go/util/exec"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/wherry-node/wherry/internal/sim/simcri"
)

// TestStreams runs commands over the streaming protocols, as kubectl exec does.
func TestStreams(t *testing.T) {
	t.Parallel()
	r := simcri.New(simcri.Config{Images: []string{busybox}})
	defer r.Close()
	s := runSandbox(t, r, "p", nil)
	id := startContainer(t, r, createRequest(s, "p", "main", 0))
	exec := &runtimeapi.ExecRequest{ContainerId: id, Cmd: []string{"true"}, Stdout: true}
	if _, err := r.Exec(t.Context(), exec); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("Exec before streams are served: %v", err)
	}
	serve(t, r)
	waitFor(t, func() bool { _, err := r.Exec(t.Context(), exec); return err == nil })
	run := func(in string, cmd ...string) (string, string, error) {
		resp, err := r.Exec(t.Context(), &runtimeapi.ExecRequest{ContainerId: id, Cmd: cmd, Stdin: in != "", Stdout: true, Stderr: true})
		if err != nil {
			t.Fatal(err)
		}
		return stream(t, resp.Url, in)
	}
	out, errOut, err := run("", "sh", "-c", "echo out; echo err >&2; exit 3")
	var code utilexec.CodeExitError
	if out != "out\n" || errOut != "err\n" || !errors.As(err, &code) || code.Code != 3 {
		t.Errorf("exec: %q %q %v", out, errOut, err)
	}
	if out, _, err := run("some input", "cat"); out != "some input" || err != nil {
		t.Errorf("cat: %q %v", out, err)
	}
	if out, _, err := run("echo hello\nexit\n", "sh"); out != "hello\n" || err != nil {
		t.Errorf("sh: %q %v", out, err)
	}
	attach, err := r.Attach(t.Context(), &runtimeapi.AttachRequest{ContainerId: id, Stdin: true, Stdout: true, Stderr: true})
	if err != nil {
		t.Fatal(err)
	}
	if out, _, err := stream(t, attach.Url, "typed"); out != "typed" || err != nil {
		t.Errorf("attach: %q %v", out, err)
	}
	if _, err := r.PortForward(t.Context(), &runtimeapi.PortForwardRequest{PodSandboxId: s, Port: []int32{80}}); err != nil {
		t.Errorf("port-forward: %v", err)
	}
}

func stream(t *testing.T, target, in string) (string, string, error) {
	t.Helper()
	u, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	executor, err := remotecommand.NewSPDYExecutor(&rest.Config{Host: u.Host}, "POST", u)
	if err != nil {
		t.Fatal(err)
	}
	var out, errOut bytes.Buffer
	opts := remotecommand.StreamOptions{Stdout: &out, Stderr: &errOut}
	if in != "" {
		opts.Stdin = strings.NewReader(in)
	}
	err = executor.StreamWithContext(t.Context(), opts)
	return out.String(), errOut.String(), err
}

func waitFor(t *testing.T, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	late := time.After(2 * time.Minute)
	for !ok() {
		select {
		case <-tick.C:
		case <-late:
			t.Fatal("not within 2 minutes")
		}
	}
}

// TestCrictl runs crictl against simcri, if crictl is built.
func TestCrictl(t *testing.T) {
	t.Parallel()
	crictl, err := filepath.Abs("../../../bin/crictl")
	if _, statErr := os.Stat(crictl); err != nil || statErr != nil {
		t.Skip("bin/crictl is not built")
	}
	r := simcri.New(simcri.Config{Images: []string{busybox}})
	socket := "unix://" + serve(t, r)
	s := runSandbox(t, r, "p", nil)
	id := startContainer(t, r, createRequest(s, "p", "main", 0))
	for _, c := range []struct {
		args string
		want string
	}{
		{"version", "RuntimeName:  simcri"},
		{"pods", s[:13]},
		{"ps", id[:13]},
		{"images", "docker.io/library/busybox"},
		{"inspect " + id[:10], "CONTAINER_RUNNING"},
		{"inspectp " + s[:10], "SANDBOX_READY"},
		{"exec -s " + id + " echo hello", "hello"},
		{"exec " + id + " echo streamed", "streamed"},
		{"stats", id[:13]},
		{"info", "NetworkReady"},
		{"pull docker.io/library/alpine:3", "Image is up to date"},
		{"stop " + id, id},
		{"rm " + id, id},
		{"stopp " + s, s},
		{"rmp " + s, s},
	} {
		args := append([]string{"--timeout", "60s", "--runtime-endpoint", socket, "--image-endpoint", socket}, strings.Fields(c.args)...)
		out, err := exec.CommandContext(t.Context(), crictl, args...).CombinedOutput()
		if err != nil || !strings.Contains(string(out), c.want) {
			t.Errorf("crictl %s: %v\n%s", c.args, err, out)
		}
	}
}
