package proc

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func startSleep(t *testing.T, script string) (Process, string) {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "x.pid")
	p, err := Start(Spec{PIDFile: file, Log: filepath.Join(dir, "log"), Path: "/bin/sh", Args: []string{"-c", script}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Kill(t.Context()) })
	return p, file
}

func TestStopEndsTheProcessAndItsFile(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]string{
		"one that ends when asked":       "exec sleep 1000",
		"one that has to be killed":      "trap '' TERM; while :; do sleep 0.1; done",
		"one whose grace is almost over": "trap 'exit 0' TERM; while :; do sleep 0.05; done",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, file := startSleep(t, script)
			if err := Stop(t.Context(), file, 500*time.Millisecond); err != nil {
				t.Fatal(err)
			}
			if p.Alive() {
				t.Errorf("process %d is still there", p.PID)
			}
			if _, err := os.Stat(file); err == nil {
				t.Error("its pid file is still there")
			}
			if err := Stop(t.Context(), file, time.Second); err != nil {
				t.Errorf("stopping what is gone: %v", err)
			}
		})
	}
}

func TestAnotherProcessWithTheNumberIsNotOurs(t *testing.T) {
	t.Parallel()
	p, file := startSleep(t, "exec sleep 1000")
	if err := os.WriteFile(file, fmt.Appendf(nil, "%d %d\n", p.PID, p.StartTime+1), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, ok := Find(file); ok {
		t.Error("a process that started at another time was taken for ours")
	}
	if err := Stop(t.Context(), file, time.Second); err != nil {
		t.Fatal(err)
	}
	if !p.Alive() {
		t.Error("a process that is not ours was ended")
	}
}

func TestHalfWrittenFileNamesNothing(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "x.pid")
	for _, content := range []string{"", "12", "x y", "-1 0"} {
		if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		if p, ok := Find(file); ok {
			t.Errorf("%q names process %d", content, p.PID)
		}
	}
}
