package integration

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

// transports are the protocols in which kubectl streams. A value says whether kubectl uses WebSockets (see the method over).
var transports = map[string]string{"WebSocket": "true", "SPDY": "false"}

func (s *space) over(transport string, args ...string) *exec.Cmd {
	cmd := s.command(args...)
	cmd.Env = append(cmd.Env, "KUBECTL_REMOTE_COMMAND_WEBSOCKETS="+transport, "KUBECTL_PORT_FORWARD_WEBSOCKETS="+transport)
	return cmd
}

// exec, attach, port-forward and cp work over WebSocket and over SPDY.
func TestStreams(t *testing.T) {
	s := newSpace(t)
	s.pod("target", `
containers:
- name: main
  image: $busybox
  stdin: true
  tty: true
  command: [sh, -c, 'while read line; do echo "heard $line"; done']
- name: web
  image: $web
- name: plain
  image: $busybox
  stdin: true
  command: [sh, -c, 'while read line; do echo "heard $line"; echo "and $line" >&2; done; sleep 1000']`)
	s.ready("target")
	for name, websockets := range transports {
		t.Run(name, func(t *testing.T) {
			s := &space{T: t, env: s.env, name: s.name}
			t.Run("exec", func(t *testing.T) { s.with(t).execs(websockets) })
			t.Run("attach", func(t *testing.T) { s.with(t).attaches(websockets) })
			t.Run("port-forward", func(t *testing.T) { s.with(t).forwards(websockets) })
			t.Run("cp", func(t *testing.T) { s.with(t).copies(websockets) })
		})
	}
}

// with returns a space of the same namespace that reports failures to the subtest t.
func (s *space) with(t *testing.T) *space { return &space{T: t, env: s.env, name: s.name} }

func (s *space) execs(websockets string) {
	out, errOut, err := output(s.over(websockets, "exec", "target", "-c", "plain", "--", "sh", "-c", "echo out; echo err >&2; exit 7"))
	if exit, ok := err.(*exec.ExitError); !ok || exit.ExitCode() != 7 {
		s.Errorf("exit code: %v", err)
	}
	s.same("stdout", out, "out\n")
	s.contains("stderr", errOut, "err\n", "exit code 7")

	cmd := s.over(websockets, "exec", "-i", "target", "-c", "plain", "--", "md5sum")
	cmd.Stdin = bytes.NewReader(bytes.Repeat([]byte("0123456789abcdef"), 1<<16)) // 1 MiB of standard input, and then EOF
	out, errOut, err = output(cmd)
	if err != nil {
		s.Errorf("exec -i: %v %s", err, errOut)
	}
	s.same("md5 of stdin", out, "14d785daab3823736c981ca82a750c98  -\n")

	cmd = s.over(websockets, "exec", "target", "-c", "plain", "--", "head", "-c", "3000000", "/dev/zero")
	if out, errOut, err = output(cmd); err != nil || len(out) != 3000000 {
		s.Errorf("3000000 bytes of stdout: %d, %v %s", len(out), err, errOut)
	}

	// kubectl sends the size of the terminal after the start of the command, so on a busy machine the shell may get the size late.
	screen := s.terminal(s.over(websockets, "exec", "-it", "target", "-c", "plain", "--", "sh"),
		"for i in $(seq 60); do stty size | grep 33.77 && break; sleep 1; done; tty; exit 5\n")
	if !regexp.MustCompile(`(?s)33 77.*/dev/pts/\d`).MatchString(screen) {
		s.Errorf("exec -it in a terminal of 33 by 77 shows %q", screen)
	}

	_, errOut, err = output(s.over(websockets, "exec", "target", "-c", "plain", "--", "/no/such/thing"))
	if err == nil || !strings.Contains(errOut, "no such file") {
		s.Errorf("exec of nothing: %v %q", err, errOut)
	}
}

// terminal runs a command in a pseudo terminal of 33 lines and 77 columns, types into the terminal, and returns the output.
func (s *space) terminal(cmd *exec.Cmd, typed string) string {
	s.Helper()
	quoted := make([]string, len(cmd.Args))
	for i, a := range cmd.Args {
		quoted[i] = "'" + a + "'"
	}
	script := command("script", "-qec", "stty rows 33 cols 77; exec "+strings.Join(quoted, " "), "/dev/null")
	script.Env = cmd.Env
	in, err := script.StdinPipe()
	if err != nil {
		s.Fatal(err)
	}
	out, err := script.StdoutPipe()
	if err != nil {
		s.Fatal(err)
	}
	script.Stderr = os.Stderr
	if err := script.Start(); err != nil {
		s.Fatal(err)
	}
	defer in.Close()
	var seen bytes.Buffer
	buf := make([]byte, 4096)
	wrote := false
	for {
		n, err := out.Read(buf)
		seen.Write(buf[:n])
		if !wrote && strings.Contains(seen.String(), "#") { // the prompt of the shell
			wrote = true
			if _, err := io.WriteString(in, typed); err != nil {
				s.Error(err)
			}
		}
		if err != nil {
			break
		}
	}
	if err := script.Wait(); err == nil {
		s.Errorf("the command in the terminal ended with 0, want its exit code")
	}
	return seen.String()
}

func (s *space) attaches(websockets string) {
	for container, want := range map[string][]string{"plain": {"heard ahoy", "and ahoy"}, "main": {"heard ahoy"}} {
		args := []string{"attach", "-i", "target", "-c", container}
		cmd := s.over(websockets, args...)
		in, err := cmd.StdinPipe()
		if err != nil {
			s.Fatal(err)
		}
		r, w, err := os.Pipe()
		if err != nil {
			s.Fatal(err)
		}
		cmd.Stdout, cmd.Stderr = w, w
		if err := cmd.Start(); err != nil {
			s.Fatal(err)
		}
		w.Close()
		stop := typing(in, "ahoy\n")
		var seen string
		for lines := bufio.NewScanner(r); !containsAll(seen, want) && lines.Scan(); {
			seen += lines.Text() + "\n"
		}
		stop()
		_ = cmd.Process.Kill() // the container's standard input stays open, because a killed kubectl sends no EOF
		_ = cmd.Wait()
		r.Close()
		s.contains("attach to "+container, seen, want...)
	}
}

// typing types a text again and again until stop is called. That is necessary because containerd connects the input of a container a little
// before its output, so that the first answer may appear only in the log.
func typing(in io.Writer, text string) (stop func()) {
	done := make(chan struct{})
	var typed sync.WaitGroup
	typed.Go(func() {
		_ = wait(patience, func() error {
			_, _ = io.WriteString(in, text)
			select {
			case <-done:
				return nil
			case <-time.After(2 * time.Second):
				return errorf("again")
			}
		})
	})
	return sync.OnceFunc(func() { close(done); typed.Wait() })
}

func containsAll(text string, parts []string) bool {
	for _, p := range parts {
		if !strings.Contains(text, p) {
			return false
		}
	}
	return true
}

func (s *space) forwards(websockets string) {
	cmd := s.over(websockets, "port-forward", "pod/target", ":8080")
	out, err := cmd.StdoutPipe()
	if err != nil {
		s.Fatal(err)
	}
	var errOut bytes.Buffer
	cmd.Stderr = &errOut
	if err := cmd.Start(); err != nil {
		s.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	first, err := bufio.NewReader(out).ReadString('\n')
	m := regexp.MustCompile(`127\.0\.0\.1:(\d+) -> 8080`).FindStringSubmatch(first)
	if m == nil {
		s.Fatalf("port-forward says %q, %v, %s", first, err, errOut.String())
	}
	for range 3 { // each connection is a stream of its own
		s.contains("answer through port-forward", s.fetch("http://127.0.0.1:"+m[1]+"/"), "target")
	}
}

func (s *space) copies(websockets string) {
	dir := s.TempDir()
	content := strings.Repeat("all hands on deck\n", 20000)
	if err := os.WriteFile(filepath.Join(dir, "there"), []byte(content), 0o640); err != nil {
		s.Fatal(err)
	}
	for _, args := range [][]string{{"cp", filepath.Join(dir, "there"), "target:/tmp/file", "-c", "plain"}, {"cp", "target:/tmp/file", filepath.Join(dir, "back"), "-c", "plain"}} {
		if out, errOut, err := output(s.over(websockets, args...)); err != nil {
			s.Fatalf("%v: %v\n%s%s", args, err, out, errOut)
		}
	}
	back, err := os.ReadFile(filepath.Join(dir, "back"))
	if err != nil || string(back) != content {
		s.Errorf("copied there and back: %d bytes, want %d, %v", len(back), len(content), err)
	}
}
