package plane

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// starter starts processes from one operating-system thread that lives as long as the control plane. That is necessary because the kernel
// sends the parent-death signal when the thread that forked ends, not when the process ends.
type starter struct {
	work chan func()
	done chan struct{}
}

func newStarter() *starter {
	s := &starter{work: make(chan func()), done: make(chan struct{})}
	go func() {
		runtime.LockOSThread() // not unlocked again: the thread ends together with this goroutine
		defer close(s.done)
		for f := range s.work {
			f()
		}
	}()
	return s
}

func (s *starter) start(cmd *exec.Cmd) error {
	result := make(chan error)
	s.work <- func() { result <- cmd.Start() }
	return <-result
}

func (s *starter) close() {
	close(s.work)
	<-s.done
}

// child is the process of one component. If the process ends before stop is called, child starts it again.
type child struct {
	name    string
	args    []string
	cfg     *Config
	starter *starter
	log     string
	pidfile string

	cancel context.CancelFunc
	ended  chan struct{} // closed when the process has ended and will not be started again
	failed chan<- error  // gets the error if the process ends unexpectedly while fragile returns true
	// fragile reports whether an unexpected end of the process makes the start of the control plane fail. It is true until the control plane
	// is ready.
	fragile func() bool
}

func (c *child) launch(ctx context.Context) {
	ctx, c.cancel = context.WithCancel(ctx)
	c.ended = make(chan struct{})
	go func() {
		defer close(c.ended)
		c.supervise(ctx)
	}()
}

// stop sends SIGTERM to the process and, after Config.StopGrace, SIGKILL. It returns when the process has ended.
func (c *child) stop() {
	if c.cancel == nil {
		return
	}
	c.cancel()
	<-c.ended
}

func (c *child) supervise(ctx context.Context) {
	backoff := time.Second
	for {
		began := c.cfg.Now()
		err := c.run(ctx)
		if ctx.Err() != nil {
			return
		}
		if c.fragile() {
			select {
			case c.failed <- fmt.Errorf("run %s: %w\n%s", c.name, err, c.tail()):
			default: // another component has failed before
			}
			return
		}
		if c.cfg.Now().Sub(began) > time.Minute {
			backoff = time.Second
		}
		fmt.Fprintf(c.cfg.Progress, "%s ended by itself (%v); it is started again in %s; log: %s\n", c.name, err, backoff, c.log)
		select {
		case <-ctx.Done():
			return
		case <-time.After(backoff):
		}
		backoff = min(2*backoff, 30*time.Second)
	}
}

// run starts the process and waits until it ends.
func (c *child) run(ctx context.Context) error {
	log, err := os.OpenFile(c.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return fmt.Errorf("open log: %w", err)
	}
	defer func() { _ = log.Close() }()
	cmd := exec.Command(c.cfg.Executable, append([]string{"component", c.name}, c.args...)...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Dir = c.cfg.DataDir
	cmd.Env = append(os.Environ(), ParentVariable+"="+strconv.Itoa(os.Getpid()))
	// The process is in a process group of its own, so that an interrupt from the terminal reaches only the parent, which then ends the
	// components in their order.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := c.starter.start(cmd); err != nil {
		return fmt.Errorf("start: %w", err)
	}
	_ = os.WriteFile(c.pidfile, []byte(strconv.Itoa(cmd.Process.Pid)+"\n"), 0o644)
	defer func() { _ = os.Remove(c.pidfile) }()
	exited := make(chan error, 1)
	go func() { exited <- cmd.Wait() }()
	select {
	case err := <-exited:
		if err == nil {
			err = errors.New("ended with exit code 0")
		}
		return err
	case <-ctx.Done():
	}
	_ = cmd.Process.Signal(syscall.SIGTERM) // fails only if the process has just ended
	select {
	case err := <-exited:
		return err
	case <-time.After(c.cfg.StopGrace):
		fmt.Fprintf(c.cfg.Progress, "%s did not end in %s: killed\n", c.name, c.cfg.StopGrace)
		_ = cmd.Process.Kill()
		return <-exited
	}
}

// tail returns the last lines of the component's log, which tell the user why the component did not start.
func (c *child) tail() string {
	file, err := os.Open(c.log)
	if err != nil {
		return ""
	}
	defer func() { _ = file.Close() }()
	const window = 4 << 10
	if info, err := file.Stat(); err == nil && info.Size() > window {
		_, _ = file.Seek(-window, io.SeekEnd)
	}
	data, _ := io.ReadAll(file)
	lines := strings.Split(string(bytes.TrimSpace(data)), "\n")
	if len(lines) > 12 {
		lines = lines[len(lines)-12:]
	}
	return "last lines of " + c.log + ":\n  " + strings.Join(lines, "\n  ")
}

// ParentVariable is the environment variable that tells a component the process ID of its parent. If the component has another parent when
// it starts, the parent ended before the kernel could send the parent-death signal.
const ParentVariable = "WHERRY_CONTROLPLANE_PID"

// Orphaned reports whether the process that started the calling component has ended.
func Orphaned() bool {
	value := os.Getenv(ParentVariable)
	return value != "" && value != strconv.Itoa(os.Getppid())
}

func (c *Config) path(elem ...string) string {
	return filepath.Join(append([]string{c.DataDir}, elem...)...)
}
