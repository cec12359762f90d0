package vm

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// sampleJob is a job whose files are in /w.
func sampleJob() Job {
	return Job{Name: "tests", Dir: "/w", Args: []string{"/bin/x", "a", "it's $HOME"}, Every: time.Millisecond}
}

// The output of a job is copied as it grows, and completely, and the exit code is that of the program.
func TestAJobIsFollowedToItsEnd(t *testing.T) {
	t.Parallel()
	g := newFakeGuest(t)
	g.code = 0
	looks := 0
	g.deaf = func(execute string) bool { // each look at the log finds one line more; the fourth is the last one
		if execute == "guest-file-open" {
			g.mu.Lock()
			defer g.mu.Unlock()
			if looks++; looks > 2 && looks%2 == 0 && len(g.files["/w/tests.log"]) < 4*7 {
				g.files["/w/tests.log"] = append(g.files["/w/tests.log"], "a line\n"...)
				if len(g.files["/w/tests.log"]) == 4*7 {
					g.files["/w/tests.code"] = []byte("5\n")
				}
			}
		}
		return false
	}
	var out bytes.Buffer
	code, err := NewAgent(g.socket).RunJob(t.Context(), sampleJob(), &out)
	if err != nil || code != 5 {
		t.Errorf("it ended with code %d, %v", code, err)
	}
	if got := out.String(); got != strings.Repeat("a line\n", 4) {
		t.Errorf("the output is %q", got)
	}
	if got := strings.Join(g.ran[1], " "); got != "/bin/sh -ec rm -f '/w/tests.log' '/w/tests.code'; systemd-run --quiet --collect --unit=tests -p TasksMax=infinity /bin/sh '/w/tests.sh'" {
		t.Errorf("it was started with %s", got)
	}
}

// When the caller gives up, the job gets an interrupt, and its last output and its code still arrive.
func TestAnInterruptedJobEndsByItself(t *testing.T) {
	t.Parallel()
	g := newFakeGuest(t)
	g.code = 0
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	g.program = func(args []string) {
		switch line := args[len(args)-1]; {
		case strings.Contains(line, "systemd-run"):
			g.files["/w/tests.log"] = []byte("begun\n")
			cancel()
		case line == "systemctl kill -s INT tests":
			g.files["/w/tests.log"] = append(g.files["/w/tests.log"], "report written\n"...)
			g.files["/w/tests.code"] = []byte("1\n")
		}
	}
	var out bytes.Buffer
	code, err := NewAgent(g.socket).RunJob(ctx, sampleJob(), &out)
	if code != 1 || err != nil || out.String() != "begun\nreport written\n" {
		t.Errorf("code %d, %v, output %q", code, err, out.String())
	}
}

// A job whose shell was killed, for example by the kernel in a guest without memory, leaves no exit code. It is not waited for for ever.
func TestAJobThatWasKilledIsAnError(t *testing.T) {
	t.Parallel()
	g := newFakeGuest(t)
	g.code, g.out = 0, "inactive\n"
	g.program = func([]string) { g.files["/w/tests.log"] = []byte("begun\n") }
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	j := sampleJob()
	ended := make(chan error, 1)
	var out bytes.Buffer
	go func() {
		_, err := NewAgent(g.socket).RunJob(ctx, j, &out)
		ended <- err
	}()
	select {
	case err := <-ended:
		if err == nil || !strings.Contains(err.Error(), "without an exit code") || out.String() != "begun\n" {
			t.Errorf("it ended with %v, output %q", err, out.String())
		}
	case <-ctx.Done():
		t.Error("the job is still followed")
	}
}

// The script runs the program with exactly its arguments, writes the code, and survives an interrupt.
func TestTheScriptOfAJob(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "it's a directory")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	j := Job{Name: "tests", Dir: dir, Args: []string{"/bin/sh", "-c", `pwd; printf '%s\n' "$1" "$PATH"; kill -INT $PPID; exit 4`, "sh", `a 'b' $c`}}
	script := filepath.Join(dir, "tests.sh")
	if err := os.WriteFile(script, []byte(j.script()), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("/bin/sh", script).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("the script printed %q, %v", out, err)
	}
	for file, want := range map[string]string{"log": dir + "\na 'b' $c\n" + searchPath + "\n", "code": "4\n"} {
		if got, err := os.ReadFile(j.file(file)); err != nil || string(got) != want {
			t.Errorf("%s is %q, want %q (%v)", file, got, want, err)
		}
	}
}

// Output that is longer than what is copied at once is copied completely after the end; beyond the bound, the error says that its end is missing.
func TestLongOutputOfAJob(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		most int64
		cut  bool
	}{{0, false}, {4 * chunk, true}} {
		g := newFakeGuest(t)
		g.code = 0
		text := bytes.Repeat([]byte("0123456789abcde\n"), 8*chunk/16)
		g.program = func([]string) { g.files["/w/tests.log"], g.files["/w/tests.code"] = text, []byte("1\n") }
		j := sampleJob()
		j.Every, j.Most, j.atOnce = time.Minute, c.most, chunk // a second pause would be too long for the test
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		var out bytes.Buffer
		code, err := NewAgent(g.socket).RunJob(ctx, j, &out)
		if code != 1 || errors.Is(err, ErrCut) != c.cut || !c.cut && err != nil {
			t.Errorf("at most %d bytes: code %d, %v", c.most, code, err)
		}
		if got := out.Bytes(); !bytes.HasPrefix(text, got) || !c.cut && len(got) != len(text) || c.cut && (int64(len(got)) < c.most || len(got) == len(text)) {
			t.Errorf("at most %d bytes: %d of %d bytes were copied", c.most, len(got), len(text))
		}
	}
}

// A job is not waited for if the emulator of its guest has ended. While the emulator runs, a guest that does not answer is waited for.
func TestAJobOfAGuestThatIsGone(t *testing.T) {
	t.Parallel()
	g := newFakeGuest(t)
	g.code = 0
	g.program = func(args []string) {
		if strings.Contains(args[len(args)-1], "systemd-run") {
			g.files["/w/tests.log"] = []byte("begun\n")
		}
	}
	var asked atomic.Int64
	a := NewAgent(g.socket)
	a.runs = func() bool { return asked.Add(1) < 4 } // the emulator ends a while after its sockets
	ended := make(chan error, 1)
	out := &lastWords{end: g.end}
	go func() {
		_, err := a.RunJob(context.Background(), sampleJob(), out)
		ended <- err
	}()
	select {
	case err := <-ended:
		if !errors.Is(err, ErrGone) || out.String() != "begun\n" || asked.Load() != 4 {
			t.Errorf("it ended with %v after %d looks, output %q", err, asked.Load(), out.String())
		}
	case <-time.After(20 * time.Second):
		t.Error("the job is still followed")
	}
}

// lastWords is a writer that calls end when something is written.
type lastWords struct {
	bytes.Buffer
	end func()
}

func (l *lastWords) Write(data []byte) (int, error) {
	l.end()
	return l.Buffer.Write(data)
}
