package simcri_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
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

// kubectl run -it attaches to a shell: it runs each line, and exit ends it and the container with its code.
func TestAttachToAShell(t *testing.T) {
	t.Parallel()
	r := simcri.New(simcri.Config{Images: []string{busybox}})
	defer r.Close()
	s := runSandbox(t, r, "p", nil)
	serve(t, r)
	for name, cmd := range map[string][]string{"default": nil, "shell": {"sh"}} {
		req := createRequest(s, "p", name, 0)
		req.Config.Stdin, req.Config.Command, req.Config.Args = true, cmd, nil
		id := startContainer(t, r, req)
		var resp *runtimeapi.AttachResponse
		waitFor(t, func() (ok bool) {
			var err error
			resp, err = r.Attach(t.Context(), &runtimeapi.AttachRequest{ContainerId: id, Stdin: true, Stdout: true, Stderr: true})
			return err == nil
		})
		if out, _, err := stream(t, resp.Url, "echo hello\nexit 3\necho never\n"); out != "hello\n" || err != nil {
			t.Errorf("%s: %q %v", name, out, err)
		}
		st, err := r.ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: id})
		if err != nil || st.Status.State != runtimeapi.ContainerState_CONTAINER_EXITED || st.Status.ExitCode != 3 || st.Status.Reason != "Error" {
			t.Errorf("%s: %+v %v", name, st.GetStatus(), err)
		}
	}
}

// kubectl attach shows what the first process of a container writes from then on, each stream on its own, until the container ends: also what a
// rule or an annotation says, and also with an input, which the process does not read.
func TestAttachShowsTheOutput(t *testing.T) {
	t.Parallel()
	r := simcri.New(simcri.Config{Images: []string{busybox}})
	t.Cleanup(r.Close)
	serve(t, r)
	command := func(req *runtimeapi.CreateContainerRequest) {
		req.Config.Command = []string{"sh", "-c", "echo early; sleep 1; echo out; echo err >&2; sleep 0.2; echo last; exit 4"}
	}
	for name, c := range map[string]struct {
		set  func(*runtimeapi.CreateContainerRequest)
		note map[string]string
		in   string
	}{
		"command":            {set: command},
		"command with input": {set: command, in: "typed"},
		"annotation": {note: map[string]string{"wherry.dev/sim-do": `{exits: [{after: 1500ms, code: 4}],
			log: {lines: [{text: early}, {after: 1s, text: out}, {text: err, stderr: true}, {after: 200ms, text: last}]}}`}},
		"loop": {note: map[string]string{"wherry.dev/sim-do": `{exits: [{after: 1500ms, code: 4}],
			log: {lines: [{text: early}], repeat: [{after: 1s, text: out}, {text: err, stderr: true}, {after: 200ms, text: last}, {after: 10m, text: late}]}}`}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pod := strings.ReplaceAll(name, " ", "-")
			s := runSandbox(t, r, pod, c.note)
			req := createRequest(s, pod, "main", 0)
			req.Config.Annotations = c.note
			if c.set != nil {
				c.set(req)
			}
			id := startContainer(t, r, req)
			var resp *runtimeapi.AttachResponse
			waitFor(t, func() (ok bool) {
				var err error
				resp, err = r.Attach(t.Context(), &runtimeapi.AttachRequest{ContainerId: id, Stdin: c.in != "", Stdout: true, Stderr: true})
				return err == nil
			})
			if out, errOut, err := stream(t, resp.Url, c.in); strings.TrimPrefix(out, "early\n") != "out\nlast\n" || errOut != "err\n" || err != nil {
				t.Errorf("attach: %q %q %v", out, errOut, err)
			}
		})
	}
}

// Files can be copied into a container and out of it with the commands that kubectl cp runs. cat and ls show them. They end with the container,
// and their number and size are bounded.
func TestCopiedFiles(t *testing.T) {
	t.Parallel()
	r := simcri.New(simcri.Config{Images: []string{busybox}})
	defer r.Close()
	s := runSandbox(t, r, "p", nil)
	req := createRequest(s, "p", "main", 0)
	req.Config.Mounts = []*runtimeapi.Mount{{ContainerPath: "/srv/data", HostPath: "/x"}}
	id := startContainer(t, r, req)
	serve(t, r)
	waitFor(t, func() bool {
		_, err := r.Exec(t.Context(), &runtimeapi.ExecRequest{ContainerId: id, Cmd: []string{"true"}, Stdout: true})
		return err == nil
	})
	run := func(in string, cmd ...string) (string, string, error) {
		t.Helper()
		resp, err := r.Exec(t.Context(), &runtimeapi.ExecRequest{ContainerId: id, Cmd: cmd, Stdin: in != "", Stdout: true, Stderr: true})
		if err != nil {
			t.Fatal(err)
		}
		return stream(t, resp.Url, in)
	}
	archive := func(files ...string) string { // name, content, name, content; a directory's name ends with a slash
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		for i := 0; i < len(files); i += 2 {
			h := &tar.Header{Name: files[i], Mode: 0o644, Size: int64(len(files[i+1]))}
			if err := w.WriteHeader(h); err != nil {
				t.Fatal(err)
			}
			if _, err := w.Write([]byte(files[i+1])); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	for dir, is := range map[string]bool{"/tmp": true, "/srv/data": true, "/srv": true, "/tmp/a": false, "/nowhere": false} {
		if _, _, err := run("", "test", "-d", dir); (err == nil) != is {
			t.Errorf("test -d %s: %v", dir, err)
		}
	}
	if _, errOut, err := run(archive("a", "first\n", "d/", "", "d/b", "second\n", "../../../e", "up\n"), "tar", "-xmf", "-", "-C", "/tmp"); err != nil {
		t.Fatal(errOut, err)
	}
	for cmd, want := range map[string]string{
		"cat /tmp/a": "first\n", "cat /tmp/d/b": "second\n", "cat /tmp/e": "up\n", "cat /tmp/none": "", "ls /tmp": "a\nd\ne\n", "ls -l /tmp/d": "b\n",
	} {
		if out, _, err := run("", strings.SplitN(cmd, " ", 3)...); out != want || err != nil {
			t.Errorf("%s: %q %v", cmd, out, err)
		}
	}
	if out, _, err := run("", "sh", "-c", "cat /tmp/a /tmp/d/b; ls /tmp/d"); out != "first\nsecond\nb\n" || err != nil {
		t.Errorf("in a script: %q %v", out, err)
	}
	if _, _, err := run("", "test", "-d", "/tmp/d"); err != nil {
		t.Errorf("test -d of a copied directory: %v", err)
	}
	out, _, err := run("", "tar", "cf", "-", "/tmp/d")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for from := tar.NewReader(strings.NewReader(out)); ; {
		h, err := from.Next()
		if err != nil {
			break
		}
		names = append(names, h.Name)
	}
	if got := strings.Join(names, " "); got != "tmp/d/ tmp/d/b" {
		t.Errorf("tar cf: %s", got)
	}
	if _, errOut, err := run("", "tar", "cf", "-", "/none"); err == nil || !strings.Contains(errOut, "/none: Cannot stat: No such file or directory") {
		t.Errorf("tar cf of nothing: %q %v", errOut, err)
	}
	if _, errOut, err := run("no archive"+strings.Repeat("x", 2000), "tar", "-xmf", "-", "-C", "/tmp"); err == nil || errOut == "" {
		t.Errorf("no archive: %q %v", errOut, err)
	}
	if _, errOut, err := run(archive("big", strings.Repeat("x", 4<<20)), "tar", "-xmf", "-", "-C", "/tmp"); err == nil || !strings.Contains(errOut, "at most 4 MiB of copied files") {
		t.Errorf("a big file: %q %v", errOut, err)
	}
	var many []string
	for i := range 1001 {
		many = append(many, fmt.Sprintf("f%d", i), "")
	}
	if _, errOut, err := run(archive(many...), "tar", "-xmf", "-", "-C", "/tmp"); err == nil || !strings.Contains(errOut, "at most 1000 copied files") {
		t.Errorf("many files: %q %v", errOut, err)
	}
	r.Exit(id, 0, "", "")
	id = startContainer(t, r, createRequest(s, "p", "main", 1))
	if out, _, err := run("", "ls", "/tmp"); out != "" || err != nil {
		t.Errorf("in the next container: %q %v", out, err)
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
