package fleetctl

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// planeProgram is the program of the control plane.
const planeProgram = "wherry-controlplane"

// planeStarts bounds how long a control plane may take to start.
const planeStarts = 4 * time.Minute

// plane is a control plane that this process has started.
type plane struct {
	kubeconfig string
	dir        string
	temporary  bool // dir is removed at the end
	cmd        *exec.Cmd
	log        *os.File
	ended      chan struct{} // closed when the program has ended
	err        error         // why it ended; valid after ended is closed
}

// findPlane returns the path of the control plane's program: the given one, or the one beside this program, or the one in PATH.
func findPlane(asked string) (string, error) {
	if asked != "" {
		if _, err := os.Stat(asked); err != nil {
			return "", fmt.Errorf("--controlplane: %w", err)
		}
		return asked, nil
	}
	if self, err := os.Executable(); err == nil {
		if beside := filepath.Join(filepath.Dir(self), planeProgram); isFile(beside) {
			return beside, nil
		}
	}
	if found, err := exec.LookPath(planeProgram); err == nil {
		return found, nil
	}
	return "", fmt.Errorf("no %s beside this program and none in PATH: build it (make build), name it with --controlplane, or name a cluster with --kubeconfig", planeProgram)
}

func isFile(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.Mode().IsRegular()
}

// startPlane starts a control plane with its data in dir ("": a temporary directory), and waits until it is ready.
func startPlane(ctx context.Context, program, dir string, maxNodes int) (_ *plane, err error) {
	p := &plane{dir: dir, ended: make(chan struct{})}
	if dir == "" {
		p.temporary = true
		if p.dir, err = os.MkdirTemp("", "wherry-fleet-"); err != nil {
			return nil, fmt.Errorf("make the directory of the control plane: %w", err)
		}
	}
	defer func() {
		if err != nil && p.temporary {
			_ = os.RemoveAll(p.dir)
		}
	}()
	if err := os.MkdirAll(p.dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the directory of the control plane: %w", err)
	}
	p.kubeconfig = filepath.Join(p.dir, "admin.kubeconfig")
	ready := filepath.Join(p.dir, "ready")
	_ = os.Remove(ready) // a control plane that was killed may have left the file
	if p.log, err = os.Create(filepath.Join(p.dir, "controlplane.log")); err != nil {
		return nil, fmt.Errorf("make the log of the control plane: %w", err)
	}
	p.cmd = exec.Command(program, planeArgs(p.dir, ready, maxNodes)...)
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	// The control plane has its own process group, so that an interrupt from the terminal reaches only this process, which ends first the
	// nodes and then the control plane. If this process is killed, the kernel ends the control plane.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	if err := p.cmd.Start(); err != nil {
		_ = p.log.Close()
		return nil, fmt.Errorf("start the control plane: %w", err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.ended)
	}()
	if err := p.await(ctx, ready); err != nil {
		text := p.logEnd()
		_ = p.stop()
		return nil, fmt.Errorf("start the control plane: %w\n%s", err, text)
	}
	return p, nil
}

// planeArgs returns the arguments of the control plane. Each node gets its own pod addresses, of 100.64.0.0/10, because a /16 would
// have addresses for only 256 nodes.
func planeArgs(dir, ready string, maxNodes int) []string {
	args := []string{"--data-dir", dir, "--secure-port", "0", "--proxy=false", "--ready-file", ready}
	if maxNodes <= 16_384 {
		return append(args, "--cluster-cidr", "100.64.0.0/10")
	}
	return append(args, "--allocate-node-cidrs=false")
}

// await waits until the file exists.
func (p *plane) await(ctx context.Context, ready string) error {
	deadline := time.After(planeStarts)
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		if isFile(ready) {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-p.ended:
			return fmt.Errorf("it has ended: %w", errors.Join(p.err, errors.New("its log follows")))
		case <-deadline:
			return fmt.Errorf("it is not ready after %s", planeStarts)
		case <-tick.C:
		}
	}
}

// logEnd returns the last lines of the control plane's log.
func (p *plane) logEnd() string {
	f, err := os.Open(p.log.Name())
	if err != nil {
		return ""
	}
	defer f.Close()
	const most = 4 << 10
	if st, err := f.Stat(); err == nil && st.Size() > most {
		_, _ = f.Seek(-most, io.SeekEnd)
	}
	text, _ := io.ReadAll(io.LimitReader(f, most))
	return string(bytes.TrimSpace(text))
}

// over reports whether the program has ended.
func (p *plane) over() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// guard calls stop, which ends ctx, when the control plane ends before ctx. The caller calls judge after ctx has ended. judge returns the error of
// the run: err or, if the control plane has ended although nobody wanted it, an error with the end of its log, which then stays. user is the context
// that ends when the user ends the run. A nil plane is a cluster that existed before; judge returns err.
func (p *plane) guard(user, ctx context.Context, stop func()) (judge func(err error) error) {
	if p == nil {
		return func(err error) error { return err }
	}
	lost := false
	var watching sync.WaitGroup
	watching.Go(func() {
		select {
		case <-ctx.Done():
		case <-p.ended:
			lost = ctx.Err() == nil
			stop()
		}
	})
	return func(err error) error {
		watching.Wait()
		// The fleet may notice first that nobody answers, and end with an error.
		if !lost && (err == nil || user.Err() != nil || !p.over()) {
			return err
		}
		p.temporary = false
		return fmt.Errorf("the control plane has ended by itself (%s); its whole log is %s, and its last lines are\n%s", p.cmd.ProcessState, p.log.Name(), p.logEnd())
	}
}

// stop ends the control plane, and removes its directory if it is temporary. For a nil plane it does nothing.
func (p *plane) stop() error {
	if p == nil {
		return nil
	}
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	<-p.ended
	_ = p.log.Close()
	if p.temporary {
		return os.RemoveAll(p.dir)
	}
	return nil
}
