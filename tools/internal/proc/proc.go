package proc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Process identifies a process that this package started, by PID and start time.
type Process struct {
	PID       int
	StartTime uint64 // clock ticks since boot, field 22 of /proc/PID/stat
}

// Spec describes a process to start.
type Spec struct {
	PIDFile string
	Log     string // file to which standard output and standard error are appended
	Path    string
	Args    []string
	Env     []string // variables in addition to the environment of the caller
	Dir     string
}

// Start starts a process in a session of its own and writes its pid file. It returns an error if the process of that pid file already runs.
func Start(s Spec) (Process, error) {
	if p, ok := Find(s.PIDFile); ok {
		return p, fmt.Errorf("start %s: it runs already as process %d (%s)", filepath.Base(s.Path), p.PID, s.PIDFile)
	}
	for _, path := range []string{s.PIDFile, s.Log} {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return Process{}, err
		}
	}
	log, err := os.OpenFile(s.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return Process{}, err
	}
	defer func() { _ = log.Close() }()
	cmd := exec.Command(s.Path, s.Args...)
	cmd.Stdout, cmd.Stderr, cmd.Dir = log, log, s.Dir
	cmd.Env = append(os.Environ(), s.Env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return Process{}, fmt.Errorf("start %s: %w", s.Path, err)
	}
	go func() { _ = cmd.Wait() }() // reaps the process if it ends while the caller still runs
	p, err := lookup(cmd.Process.Pid)
	if err != nil {
		return Process{}, fmt.Errorf("start %s: it ended at once; see %s", filepath.Base(s.Path), s.Log)
	}
	if err := os.WriteFile(s.PIDFile, fmt.Appendf(nil, "%d %d\n", p.PID, p.StartTime), 0o644); err != nil {
		return Process{}, errors.Join(err, p.Kill(context.Background())) // without a pid file nobody could find the process again
	}
	return p, nil
}

// Find returns the process of a pid file; ok is false if it does not run any more.
func Find(pidFile string) (Process, bool) {
	data, err := os.ReadFile(pidFile)
	if err != nil {
		return Process{}, false
	}
	var p Process
	if n, _ := fmt.Sscan(string(data), &p.PID, &p.StartTime); n != 2 {
		return Process{}, false
	}
	return p, p.Alive()
}

// Alive reports whether the process still runs. A zombie counts as ended when the last of its threads has ended: only then are its files closed.
func (p Process) Alive() bool {
	now, err := lookup(p.PID)
	return err == nil && now == p
}

// Stop sends SIGTERM to the process of a pid file and, if it still runs after grace, SIGKILL. Then it removes the pid file. It is no error
// if the process does not run.
func Stop(ctx context.Context, pidFile string, grace time.Duration) error {
	p, ok := Find(pidFile)
	if !ok {
		return removeFile(pidFile)
	}
	if err := p.end(ctx, syscall.SIGTERM, grace); err != nil {
		if ctx.Err() != nil {
			return fmt.Errorf("end process %d (%s): %w", p.PID, pidFile, err)
		}
		if err := p.end(ctx, syscall.SIGKILL, 10*time.Second); err != nil {
			return fmt.Errorf("end process %d (%s): %w", p.PID, pidFile, err)
		}
	}
	return removeFile(pidFile)
}

func (p Process) end(ctx context.Context, signal syscall.Signal, bound time.Duration) error {
	if err := syscall.Kill(p.PID, signal); err != nil && !errors.Is(err, syscall.ESRCH) {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	for p.Alive() {
		select {
		case <-ctx.Done():
			return fmt.Errorf("still running after signal %d (%s): %w", signal, signal, ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
	return nil
}

// Matching returns the processes of the machine that match selects. match gets the arguments of a process, the program's name first.
func Matching(match func(args []string) bool) ([]Process, error) {
	dirs, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var found []Process
	for _, dir := range dirs {
		pid, err := strconv.Atoi(dir.Name())
		if err != nil {
			continue
		}
		data, err := os.ReadFile(filepath.Join("/proc", dir.Name(), "cmdline"))
		if err != nil || !match(strings.Split(strings.TrimRight(string(data), "\x00"), "\x00")) {
			continue
		}
		if p, err := lookup(pid); err == nil {
			found = append(found, p)
		}
	}
	return found, nil
}

// Kill sends SIGKILL to the process and waits until it has ended.
func (p Process) Kill(ctx context.Context) error {
	if !p.Alive() {
		return nil
	}
	return p.end(ctx, syscall.SIGKILL, 10*time.Second)
}

func lookup(pid int) (Process, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return Process{}, err
	}
	// The name of the program is in parentheses and may contain any character, even parentheses.
	fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
	if len(fields) < 20 {
		return Process{}, os.ErrProcessDone
	}
	state, threads := fields[0], fields[17]
	if state == "X" || state == "Z" && threads == "1" {
		return Process{}, os.ErrProcessDone
	}
	start, err := strconv.ParseUint(fields[19], 10, 64)
	return Process{PID: pid, StartTime: start}, err
}

func removeFile(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}
