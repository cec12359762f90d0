package main

import (
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"io/fs"
	"net"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/wherry-node/wherry/internal/sim/simkube"
)

// asProgram is an environment variable. If it is set, the test binary acts as the program wherry, so that a test can run it as another
// user.
const asProgram = "WHERRY_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		os.Exit(run(os.Args))
	}
	os.Exit(m.Run())
}

// nobody is the ID of a user who can write only to the directories that the test makes writable.
const nobody = 65534

// fakeNode is a process that runs a simulated node of a cluster. It can write only below the directory dir.
type fakeNode struct {
	dir, root, manifests, log string
	user                      *syscall.SysProcAttr
	end                       func() error // sends SIGTERM to the process and waits until it has ended
}

// command returns a command that runs wherry with these arguments, as the user of the node.
func (n *fakeNode) command(args ...string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Env = []string{asProgram + "=1", "HOME=" + filepath.Join(n.dir, "home"), "TMPDIR=" + filepath.Join(n.dir, "tmp")}
	cmd.Dir, cmd.SysProcAttr = filepath.Join(n.dir, "cwd"), n.user
	return cmd
}

// ask runs a wherry command that connects to the node's control socket, and returns its output.
func (n *fakeNode) ask(t *testing.T, args ...string) string {
	t.Helper()
	cmd := n.command(append(args, "--socket", n.socket())...)
	var failure strings.Builder
	cmd.Stderr = &failure
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("wherry %s: %v: %s", strings.Join(args, " "), err, &failure)
	}
	return string(out)
}

// startFakeNode starts a simulated node. Of all flags for directories it sets only --root-dir. If the test runs as root, the node runs as
// the user nobody, who can write only below the test's directory.
func startFakeNode(t *testing.T) fakeNode {
	t.Helper()
	dir := t.TempDir()
	n := fakeNode{
		dir: dir, root: filepath.Join(dir, "root"), manifests: filepath.Join(dir, "manifests"), log: filepath.Join(t.TempDir(), "log"), user: &syscall.SysProcAttr{},
	}
	if os.Geteuid() == 0 {
		n.user.Credential = &syscall.Credential{Uid: nobody, Gid: nobody}
		if err := os.Chmod(filepath.Dir(dir), 0o711); err != nil {
			t.Fatal(err)
		}
	}
	for _, sub := range []string{"root", "manifests", "home", "tmp", "cwd"} {
		path := filepath.Join(dir, sub)
		if err := os.Mkdir(path, 0o755); err != nil {
			t.Fatal(err)
		}
		if n.user.Credential != nil {
			if err := os.Chown(path, nobody, nobody); err != nil {
				t.Fatal(err)
			}
		}
	}
	log, err := os.Create(n.log)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	server := httptest.NewTLSServer(simkube.New(simkube.Config{}))
	t.Cleanup(server.Close)
	cmd := n.command("kubelet", "--container-runtime-endpoint=simulated://", "--kubeconfig="+writeKubeconfig(t, dir, server),
		"--root-dir="+n.root, "--pod-manifest-path="+n.manifests, "--hostname-override=fake", "--address=127.0.0.1", fmt.Sprint("--port=", aFreePort(t)),
		"--healthz-port=0", "--file-check-frequency=1h", "--cgroups-per-qos=false", "--enforce-node-allocatable=", "--v=2")
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	n.end = func() error {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		err := <-ended
		ended <- err // end is called again at the clean-up and then gets the same error
		return err
	}
	t.Cleanup(func() { _ = n.end() })
	t.Cleanup(func() {
		if text, err := os.ReadFile(n.log); t.Failed() && err == nil {
			t.Logf("the node's log:\n%s", text)
		}
	})
	n.until(t, "the control socket answers", func() bool {
		c, err := net.Dial("unix", n.socket())
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	})
	return n
}

func (n *fakeNode) socket() string { return filepath.Join(n.root, "wherry.sock") }

// write writes the manifest of a static pod into the node's manifest directory, and returns its path.
func (n *fakeNode) write(t *testing.T, name string) string {
	t.Helper()
	path := filepath.Join(n.manifests, name+".yaml")
	text := "{apiVersion: v1, kind: Pod, metadata: {name: " + name + "}, spec: {containers: [{name: main, image: registry.example/web:1}]}}"
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// says runs a wherry command against the node's control socket again and again, until the output contains all texts in want.
func (n *fakeNode) says(t *testing.T, want []string, args ...string) {
	t.Helper()
	var out string
	n.until(t, strings.Join(args, " ")+" prints "+strings.Join(want, ", "), func() bool {
		out = n.ask(t, args...)
		return !slices.ContainsFunc(want, func(w string) bool { return !strings.Contains(out, w) })
	})
}

func (n *fakeNode) until(t *testing.T, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); !done(); {
		if time.Now().After(end) {
			t.Fatalf("not in two minutes: %s", what)
		}
		<-time.After(50 * time.Millisecond)
	}
}

func aFreePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

func writeKubeconfig(t *testing.T, dir string, s *httptest.Server) string {
	t.Helper()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	text := fmt.Sprintf("apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: %q, certificate-authority-data: %s}}]\n"+
		"users: [{name: u, user: {token: t}}]\ncontexts: [{name: x, context: {cluster: c, user: u}}]\ncurrent-context: x\n", s.URL, base64.StdEncoding.EncodeToString(ca))
	file := filepath.Join(dir, "kubeconfig")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

// By default a simulated node of a cluster has a control socket in its root directory, and the wherry commands find it.
func TestSimulatedNodeHasAControlSocket(t *testing.T) {
	t.Parallel()
	n := startFakeNode(t)
	n.write(t, "web")
	n.says(t, []string{"web-fake", "1/1", "Running"}, "ps")
	n.says(t, []string{"start-container", "the container has not been started"}, "explain", "web-fake", "--all")
	n.says(t, nil, "logs", "web-fake")
}

// A simulated node notices at once when a manifest is created or removed. In the test it reads the directory only once an hour by itself.
func TestSimulatedNodeFollowsItsManifests(t *testing.T) {
	t.Parallel()
	n := startFakeNode(t)
	path := n.write(t, "one")
	n.says(t, []string{"one-fake"}, "ps")
	n.write(t, "two")
	n.says(t, []string{"one-fake", "two-fake"}, "ps")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	n.until(t, "the pod of the file that is gone is gone", func() bool {
		return !strings.Contains(n.ask(t, "ps"), "one-fake")
	})
}

// A simulated node writes only below its root directory. In the test it runs as a user who can write nowhere else, so that any other write
// causes an error in the log.
func TestSimulatedNodeWritesBelowItsRootOnly(t *testing.T) {
	t.Parallel()
	n := startFakeNode(t)
	n.write(t, "web")
	n.says(t, []string{"web-fake", "Running"}, "ps")
	if err := n.end(); err != nil {
		t.Errorf("it ended with %v", err)
	}
	text, err := os.ReadFile(n.log)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if strings.Contains(line, "denied") || strings.Contains(line, "not permitted") || strings.Contains(line, "read-only") {
			t.Errorf("it was kept from something: %s", line)
		}
	}
	var outside, inside []string
	err = filepath.WalkDir(n.dir, func(path string, d fs.DirEntry, err error) error {
		if rel, _ := filepath.Rel(n.dir, path); err == nil && !d.IsDir() {
			if top, rest, _ := strings.Cut(rel, "/"); top == "root" {
				inside = append(inside, rest)
			} else {
				outside = append(outside, rel)
			}
		}
		return err
	})
	if want := []string{"kubeconfig", "manifests/web.yaml"}; err != nil || !slices.Equal(outside, want) {
		t.Errorf("outside of its root directory are %q, want %q: %v", outside, want, err)
	}
	all := strings.Join(inside, " ")
	for _, want := range []string{"pki/", "logs/"} { // if the node had not written these, the test would show nothing
		if !strings.Contains(all, want) {
			t.Errorf("below its root directory are %q, none with %s", inside, want)
		}
	}
}
