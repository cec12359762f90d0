package dev

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/wherry-node/wherry/tools/internal/machine"
	"github.com/wherry-node/wherry/tools/internal/proc"
)

// TestUpThenDownLeavesNothing checks that the machine is the same before `make up` and after `make down`. It uses this checkout and
// compares the whole machine, so nothing else may start or end on the machine at the same time.
func TestUpThenDownLeavesNothing(t *testing.T) {
	if os.Getenv("WHERRY_UPDOWN") == "" {
		t.Skip("set WHERRY_UPDOWN=1 on a machine where nothing else starts or ends containers (make test does)")
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	checkout, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		runtime string
		crash   bool
	}{{"containerd2", false}, {"containerd2", true}, {"debian", false}, {"simulated", false}} {
		name := test.runtime
		if test.crash {
			name += " with everything killed"
		}
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			e, err := New(Options{Checkout: checkout, Runtime: test.runtime, Progress: &out})
			if err != nil {
				t.Fatal(err)
			}
			if _, up, _ := e.readState(); up {
				t.Skip("the environment is up: make down first")
			}
			before := take(t, checkout)
			upErr := e.Up(t.Context())
			if test.crash {
				crash(t, e)
			}
			// Down is called twice, to check that it may be repeated.
			for range 2 {
				if err := e.Down(t.Context()); err != nil {
					t.Errorf("down: %v", err)
				}
			}
			if upErr != nil {
				t.Errorf("up: %v", upErr)
			}
			diff := machine.Diff(before, take(t, checkout))
			for range 60 { // the kernel removes the interfaces of a network namespace a little later
				if len(diff) == 0 {
					break
				}
				<-time.After(time.Second)
				diff = machine.Diff(before, take(t, checkout))
			}
			if len(diff) > 0 {
				t.Errorf("before and after differ:\n%s", strings.Join(diff, "\n"))
			}
			if t.Failed() {
				t.Logf("output:\n%s", &out)
			}
		})
	}
}

func take(t *testing.T, checkout string) machine.Snapshot {
	t.Helper()
	s, err := machine.Take(t.Context(), checkout)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// crash kills the node agent, the runtime and the control plane at once.
func crash(t *testing.T, e *Env) {
	t.Helper()
	for _, file := range []string{e.pidFile("node"), e.path("containerd", "containerd.pid"), e.pidFile("controlplane")} {
		p, ok := proc.Find(file)
		if !ok {
			t.Errorf("%s names no process", file)
			continue
		}
		if err := syscall.Kill(p.PID, syscall.SIGKILL); err != nil {
			t.Errorf("kill %d: %v", p.PID, err)
		}
	}
}
