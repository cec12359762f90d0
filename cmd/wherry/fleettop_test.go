package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wherry-node/wherry/internal/sim/simkube"
)

// What the live view writes when it takes the terminal over and when it gives it back.
const (
	tookOver = "\x1b[?1049h"
	gaveBack = "\x1b[?1049l"
)

// tty is a terminal in which a program runs.
type tty struct {
	t      *testing.T
	master *os.File
	slave  *os.File
	cmd    *exec.Cmd
	ended  chan error

	mu      sync.Mutex
	written bytes.Buffer
}

// onTTY runs a wherry command on a terminal of 100 columns and 30 lines, with more variables in its environment.
func onTTY(t *testing.T, env []string, args ...string) *tty {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no terminal: %v", err)
	}
	fd := int(master.Fd())
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	slave, err := os.OpenFile(fmt.Sprint("/dev/pts/", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	p := &tty{t: t, master: master, slave: slave, ended: make(chan error, 1)}
	p.resize(100, 30)
	p.cmd = self(t.Context(), args...)
	p.cmd.Env = append(append(p.cmd.Env, "TERM=xterm", "LC_ALL=C.UTF-8", "NO_COLOR="), env...)
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = slave, slave, slave
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { p.ended <- p.cmd.Wait() }()
	var reading sync.WaitGroup
	reading.Go(func() {
		b := make([]byte, 1<<16)
		for {
			n, err := master.Read(b)
			p.mu.Lock()
			p.written.Write(b[:n])
			p.mu.Unlock()
			if err != nil {
				return
			}
		}
	})
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		_ = slave.Close() // then the read of the other end fails
		reading.Wait()
		_ = master.Close()
	})
	return p
}

func (p *tty) resize(columns, rows uint16) {
	p.t.Helper()
	if err := unix.IoctlSetWinsize(int(p.slave.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Col: columns, Row: rows}); err != nil {
		p.t.Fatal(err)
	}
}

func (p *tty) text() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.written.String()
}

// sequences matches the control sequences of a terminal.
var sequences = regexp.MustCompile(`\x1b\[[?0-9;]*[a-zA-Z]`)

// screen returns the lines of the newest whole screen.
func (p *tty) screen() []string {
	all := p.text()
	at := strings.LastIndex(all, "\x1b[H")
	if at < 0 {
		return nil
	}
	return strings.Split(sequences.ReplaceAllString(all[at:], ""), "\r\n")
}

func (p *tty) press(keys string) {
	p.t.Helper()
	if _, err := p.master.WriteString(keys); err != nil {
		p.t.Fatal(err)
	}
}

// until waits until done returns true.
func (p *tty) until(what string, done func() bool) {
	p.t.Helper()
	for end := time.Now().Add(time.Minute); !done(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			p.t.Fatalf("not after a minute: %s:\n%s", what, strings.Join(p.screen(), "\n"))
		}
	}
}

// shows waits until the screen has a text.
func (p *tty) shows(text string) {
	p.t.Helper()
	p.until("the screen shows "+text, func() bool { return strings.Contains(strings.Join(p.screen(), "\n"), text) })
}

// raw reports whether the terminal passes on each key at once, without an echo.
func (p *tty) raw() bool {
	p.t.Helper()
	mode, err := unix.IoctlGetTermios(int(p.slave.Fd()), unix.TCGETS)
	if err != nil {
		p.t.Fatal(err)
	}
	return mode.Lflag&(unix.ECHO|unix.ICANON) == 0
}

// end waits for the end of the program, and checks that it has given the terminal back.
func (p *tty) end() {
	p.t.Helper()
	select {
	case err := <-p.ended:
		if err != nil {
			p.t.Errorf("it ended: %v\n%s", err, p.text())
		}
	case <-time.After(time.Minute):
		p.t.Fatal("it does not end")
	}
	p.until("the terminal is given back", func() bool { return strings.Count(p.text(), gaveBack) == strings.Count(p.text(), tookOver) })
	if all := p.text(); p.raw() || !strings.HasSuffix(all, gaveBack) {
		p.t.Errorf("raw: %t, the end of what was written: %q", p.raw(), all[max(0, len(all)-100):])
	}
}

// The live view of a fleet follows its fleet, the keys and the size of the terminal. It says that the fleet is gone, finds it again, and gives the
// terminal back however it ends.
func TestFleetTop(t *testing.T) {
	t.Parallel()
	kube := simkube.New(simkube.Config{})
	api := httptest.NewTLSServer(kube)
	t.Cleanup(api.Close)
	kubeconfig := writeKubeconfig(t, t.TempDir(), api)
	socket := filepath.Join(t.TempDir(), "s")
	run := func() (stop func()) {
		cmd := self(context.Background(), "fleet", "--name=f", "--nodes=5", "--kubeconfig="+kubeconfig, "--yes", "--no-serve", "--socket="+socket)
		var said bytes.Buffer
		cmd.Stdout, cmd.Stderr = &said, &said
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		return sync.OnceFunc(func() {
			_ = cmd.Process.Signal(syscall.SIGTERM)
			if err := cmd.Wait(); err != nil {
				t.Errorf("the fleet ended: %v\n%s", err, &said)
			}
		})
	}
	stop := run()
	t.Cleanup(func() { stop() })
	ask := func(args ...string) string {
		out, _ := self(t.Context(), append(append([]string{"fleet"}, args...), "--socket="+socket)...).CombinedOutput()
		return string(out)
	}
	for end := time.Now().Add(time.Minute); !strings.Contains(ask("get"), "5 of 5 Ready"); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the nodes are not Ready")
		}
	}
	command := []string{"fleet", "top", "--socket=" + socket, "--interval=100ms"}

	p := onTTY(t, nil, command...)
	p.shows("5 of 5 Ready")
	if !p.raw() || !strings.Contains(p.text(), "\x1b[32m█") {
		t.Errorf("raw: %t", p.raw())
	}
	if said := ask("fault", "partition", "f-node-3"); !strings.Contains(said, "f-node-3") {
		t.Fatal(said)
	}
	p.shows("1 partitioned")
	p.shows("f-node-3")
	p.press("\t")
	p.shows("STATES") // the groups
	p.press("\x1b[C")
	p.shows("by heal")
	p.press("\x1b[D\x1b[D")
	p.shows("f-node-3")
	p.press("\x1ap") // Ctrl-Z does nothing: this process leads the session, so no shell could continue it
	p.shows("PAUSED")
	p.press("p")
	p.until("it goes on", func() bool { return !strings.Contains(strings.Join(p.screen(), "\n"), "PAUSED") })
	p.resize(50, 12)
	p.until("the screen has the new size", func() bool {
		lines := p.screen()
		for _, l := range lines {
			if len([]rune(l)) > 50 {
				return false
			}
		}
		return len(lines) == 12
	})

	if err := p.cmd.Process.Signal(syscall.SIGTSTP); err != nil {
		t.Fatal(err)
	}
	p.until("it is suspended", func() bool {
		stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
		_, state, _ := strings.Cut(string(stat), ") ")
		return strings.HasPrefix(state, "T")
	})
	p.until("the terminal is given back", func() bool { return strings.Count(p.text(), gaveBack) == 1 && !p.raw() })
	if err := p.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	p.until("it has the terminal again", func() bool { return strings.Count(p.text(), tookOver) == 2 && p.raw() })
	p.resize(100, 30)
	p.shows("1 partitioned")

	stop()
	p.shows("no answer for")
	p.shows("LOST")
	stop = run()
	p.until("it finds the fleet again", func() bool {
		all := strings.Join(p.screen(), "\n")
		return !strings.Contains(all, "no answer") && strings.Contains(all, "5 of 5 Ready")
	})
	p.press("q")
	p.end()

	for name, end := range map[string]func(*tty){
		"Ctrl-C": func(p *tty) { p.press("\x03") },
		"TERM":   func(p *tty) { _ = p.cmd.Process.Signal(syscall.SIGTERM) },
		"HUP":    func(p *tty) { _ = p.cmd.Process.Signal(syscall.SIGHUP) },
		"QUIT":   func(p *tty) { _ = p.cmd.Process.Signal(syscall.SIGQUIT) },
	} {
		p := onTTY(t, []string{"NO_COLOR=1"}, command...)
		p.shows("5 of 5 Ready")
		if strings.Contains(p.text(), "\x1b[3") {
			t.Errorf("%s: colours with NO_COLOR: %q", name, p.text())
		}
		end(p)
		p.end()
	}

	// On a terminal that takes no more text, the second signal ends the program, also if the size of the terminal has changed meanwhile.
	p = onTTY(t, nil, command...)
	p.shows("5 of 5 Ready")
	if err := unix.IoctlSetInt(int(p.slave.Fd()), unix.TCXONC, unix.TCOOFF); err != nil {
		t.Fatal(err)
	}
	var looks uint16
	p.until("signals end it", func() bool {
		if looks++; looks < 25 { // for half a second, in which the program begins to write a picture
			p.resize(90+looks%2, 30)
			return false
		}
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
		return len(p.ended) > 0
	})

	p = onTTY(t, []string{"TERM=dumb"}, command...)
	p.until("the state as text", func() bool { return strings.Count(p.text(), "nodes     5 of 5 Ready") > 1 })
	if strings.Contains(p.text(), "\x1b") || p.raw() {
		t.Errorf("sequences on a terminal that knows none: %q", p.text())
	}
}
