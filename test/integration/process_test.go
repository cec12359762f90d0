package integration

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

// process is a child process whose output goes to a file.
type process struct {
	cmd   *exec.Cmd
	log   string
	ended chan struct{} // closed when the process has ended
	err   error         // valid when ended is closed
}

func start(log, path string, args ...string) (*process, error) {
	out, err := os.Create(log)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	p := &process{cmd: exec.Command(path, args...), log: log, ended: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = out, out
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // so that an interrupt at the terminal reaches only the test
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.ended)
	}()
	return p, nil
}

// command returns a command with a timeout, so that a test that waits for a hanging command fails with the name of the command.
func command(path string, args ...string) *exec.Cmd {
	ctx, cancel := context.WithTimeout(context.Background(), commandTime)
	context.AfterFunc(ctx, cancel)
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.WaitDelay = 5 * time.Second // ends the wait if child processes keep the command's output open
	return cmd
}

// commandTime is the timeout. It is longer than any command takes on a busy machine, and much shorter than the time limit of all
// tests.
const commandTime = 4 * time.Minute

// alive returns an error when the process has ended.
func (p *process) alive() error {
	select {
	case <-p.ended:
		tail, _ := os.ReadFile(p.log)
		return fmt.Errorf("%s has ended: %v\n%s", p.cmd.Path, p.err, tail[max(0, len(tail)-2000):])
	default:
		return nil
	}
}

// stop ends the process, by force after a while, and returns when it has ended.
func (p *process) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.ended:
	case <-time.After(20 * time.Second):
		_ = p.cmd.Process.Kill()
		<-p.ended
	}
}

// end waits for the process to end by itself.
func (p *process) end(t testing.TB) {
	t.Helper()
	select {
	case <-p.ended:
	case <-time.After(patience):
		tail, _ := os.ReadFile(p.log)
		t.Fatalf("%s still runs after %s:\n%s", p.cmd, patience, tail[max(0, len(tail)-2000):])
	}
}

// fatal is an error after which waiting is useless.
type fatal struct{ error }

// wait calls ask until it succeeds, the time is over, or its error is fatal.
func wait(timeout time.Duration, ask func() error) error {
	deadline := time.NewTimer(timeout)
	defer deadline.Stop()
	again := time.NewTicker(100 * time.Millisecond)
	defer again.Stop()
	for {
		err := ask()
		var f fatal
		if err == nil || errors.As(err, &f) {
			return err
		}
		select {
		case <-deadline.C:
			return fmt.Errorf("still after %s: %w", timeout, err)
		case <-again.C:
		}
	}
}

// errorf is fmt.Errorf, for conditions that are not true yet.
func errorf(format string, args ...any) error { return fmt.Errorf(format, args...) }

// nothing returns an error if there is any output.
func nothing(out string, err error) error {
	if err == nil && out != "" {
		err = errorf("there is %q", out)
	}
	return err
}
