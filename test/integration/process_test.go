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

// process is a child process of the test. Its output goes into the file log.
type process struct {
	cmd   *exec.Cmd
	log   string
	ended chan struct{} // closed when the process has ended
	err   error         // valid once ended is closed; nil: exit code 0
}

func start(log, path string, args ...string) (*process, error) {
	out, err := os.Create(log)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	p := &process{cmd: exec.Command(path, args...), log: log, ended: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = out, out
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // an interrupt from the terminal reaches only the test
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.ended)
	}()
	return p, nil
}

// command returns a command that is killed after commandTime, so that the error of a hanging command names the command.
func command(path string, args ...string) *exec.Cmd {
	ctx, cancel := context.WithTimeout(context.Background(), commandTime)
	context.AfterFunc(ctx, cancel)
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.WaitDelay = 5 * time.Second // ends the wait if child processes keep the output open
	return cmd
}

// commandTime is longer than any command takes on a busy machine, and much shorter than the time limit of all tests together.
const commandTime = 4 * time.Minute

// alive returns an error, with the end of the log, if the process has ended.
func (p *process) alive() error {
	select {
	case <-p.ended:
		tail, _ := os.ReadFile(p.log)
		return fmt.Errorf("%s has ended: %v\n%s", p.cmd.Path, p.err, tail[max(0, len(tail)-2000):])
	default:
		return nil
	}
}

// stop sends SIGTERM to the process and, after a while, SIGKILL. It returns when the process has ended.
func (p *process) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.ended:
	case <-time.After(20 * time.Second):
		_ = p.cmd.Process.Kill()
		<-p.ended
	}
}

// end waits until the process ends by itself, and fails the test if it does not.
func (p *process) end(t testing.TB) {
	t.Helper()
	select {
	case <-p.ended:
	case <-time.After(patience):
		tail, _ := os.ReadFile(p.log)
		t.Fatalf("%s still runs after %s:\n%s", p.cmd, patience, tail[max(0, len(tail)-2000):])
	}
}

// fatal is an error that ends a wait at once, because further waiting is useless.
type fatal struct{ error }

// wait calls ask repeatedly. It returns nil when ask does, and the error of ask if the error is fatal or the time is over.
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

// errorf calls fmt.Errorf. The functions that tests pass to wait return its errors while a condition is not true yet.
func errorf(format string, args ...any) error { return fmt.Errorf(format, args...) }

// The function nothing takes the results of a command, and returns an error if the command has failed or has printed anything.
func nothing(out string, err error) error {
	if err == nil && out != "" {
		err = errorf("there is %q", out)
	}
	return err
}
