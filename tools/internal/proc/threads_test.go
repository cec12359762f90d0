package proc

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

const firstThreadEnds = "WHERRY_TEST_FIRST_THREAD_ENDS"

// init keeps the main goroutine on the first thread of the process, which TestMain ends.
func init() { runtime.LockOSThread() }

// TestMain makes this program also the child of a test: its first thread ends, and the others run on.
func TestMain(m *testing.M) {
	if os.Getenv(firstThreadEnds) != "" {
		go time.Sleep(time.Minute)
		_, _, _ = syscall.RawSyscall(syscall.SYS_EXIT, 0, 0, 0)
	}
	os.Exit(m.Run())
}

// A process that is killed shows as a zombie as soon as its first thread has ended. Until the last thread has ended too, its files are open: a
// network device that it uses is still busy.
func TestAZombieWithThreadsStillRuns(t *testing.T) {
	t.Setenv(firstThreadEnds, "1")
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "pid")
	p, err := Start(Spec{PIDFile: file, Log: filepath.Join(t.TempDir(), "log"), Path: path})
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID))
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(status), "State:\tZ") {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("the first thread has not ended after 10 s:\n%s", status)
		}
	}
	if !p.Alive() {
		t.Error("a process with threads that run counts as ended")
	}
	if err := p.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	if p.Alive() {
		t.Error("the process runs after Kill")
	}
}
