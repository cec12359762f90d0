package hostfs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	// maxToolOutput is how many bytes of the output of a program RunTool keeps.
	maxToolOutput = 16 << 10
	// killPatience is how long RunTool waits for a killed program to end.
	killPatience = 2 * time.Second
)

// Ran is the result of RunTool.
type Ran struct {
	// Output has the first 16 KiB that the program printed, standard output and standard error together.
	Output string
	// Code is the exit code, or -1 if a signal ended the program or it still runs.
	Code int
	// Ended is nil if the program has ended. Otherwise the program still runs although RunTool killed it, because it waits in the kernel, for
	// example for a server that does not answer. Ended is closed when the program ends.
	Ended <-chan struct{}
}

// RunTool runs a program of the machine, for example mount(8), in a process group of its own. When ctx ends, RunTool kills the group, and
// returns soon afterwards even if the program does not end. The error is nil if the program ended with exit code 0.
func (Host) RunTool(ctx context.Context, argv []string) (Ran, error) {
	out := &boundedOutput{}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.Env = append(os.Environ(), "LC_ALL=C") // messages of tools are read by programs
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = killPatience // a background process of the tool (rpc.statd) may keep the pipe open
	if err := cmd.Start(); err != nil {
		if errors.Is(err, exec.ErrNotFound) {
			return Ran{Code: -1}, fmt.Errorf("this node has no program %q: install its package", argv[0])
		}
		return Ran{Code: -1}, fmt.Errorf("run %s: %w", argv[0], err)
	}
	ended := make(chan struct{})
	var err error
	go func() { // ends with the process, which nothing can end while it waits in the kernel
		defer close(ended)
		err = cmd.Wait()
	}()
	select {
	case <-ended:
		if errors.Is(err, exec.ErrWaitDelay) {
			err = nil
		}
		return out.ran(cmd.ProcessState.ExitCode(), nil), out.explain(argv[0], err)
	case <-ctx.Done():
	}
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // it may have ended meanwhile
	patience := time.NewTimer(killPatience)
	defer patience.Stop()
	select {
	case <-ended:
		return out.ran(-1, nil), out.explain(argv[0], fmt.Errorf("did not end in time and was killed: %w", ctx.Err()))
	case <-patience.C:
		return out.ran(-1, ended), out.explain(argv[0], fmt.Errorf("did not end in time, and cannot be killed, because it waits in the kernel: %w", ctx.Err()))
	}
}

// boundedOutput keeps the first bytes that a program prints.
type boundedOutput struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write stores p until there are maxToolOutput bytes, and drops the rest.
func (b *boundedOutput) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if room := maxToolOutput - b.buf.Len(); room > 0 {
		b.buf.Write(p[:min(room, len(p))])
	}
	return len(p), nil
}

func (b *boundedOutput) text() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

func (b *boundedOutput) ran(code int, ended <-chan struct{}) Ran {
	return Ran{Output: b.text(), Code: code, Ended: ended}
}

// explain adds what the program printed to the error err, in one line.
func (b *boundedOutput) explain(program string, err error) error {
	if err == nil {
		return nil
	}
	if said := strings.Join(strings.Fields(b.text()), " "); said != "" {
		return fmt.Errorf("%s: %.1024s (%w)", program, said, err)
	}
	return fmt.Errorf("%s: %w", program, err)
}
