package vm

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/wherry-node/wherry/tools/internal/vm"
	"github.com/wherry-node/wherry/tools/internal/vmnode"
)

// shared has the environment with the guest that all tests use, and the error of its start.
var shared struct {
	sync.Mutex
	env *vmnode.Env
	err error
}

func TestMain(m *testing.M) {
	code := m.Run()
	if e := shared.env; e != nil && os.Getenv("WHERRY_VM_KEEP") == "" {
		if err := e.Down(context.Background()); err != nil {
			fmt.Fprintln(os.Stderr, "down:", err)
			code = 1
		}
	}
	os.Exit(code)
}

// node is the environment with the guest, and has the helpers of the tests.
type node struct {
	*testing.T
	*vmnode.Env
}

// newNode returns the guest as a Ready node without pods. It boots the guest if no earlier test has done so.
func newNode(t *testing.T) *node {
	t.Helper()
	if os.Getenv("WHERRY_VM") == "" {
		t.Skip("set WHERRY_VM=1 to boot a virtual machine (make test-vm does, and builds what it needs)")
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root: a network namespace, a tap device and the image")
	}
	shared.Lock()
	defer shared.Unlock()
	if shared.env == nil && shared.err == nil {
		shared.env, shared.err = up(t)
	}
	if shared.err != nil {
		t.Fatalf("bring up the guest: %v", shared.err)
	}
	n := &node{t, shared.env}
	if err := n.AwaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	n.noPods()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("last lines of the agent's log:\n%s", n.Journal(context.Background(), 40))
		}
	})
	return n
}

func up(t *testing.T) (*vmnode.Env, error) {
	checkout, err := filepath.Abs("../../..")
	if err != nil {
		return nil, err
	}
	e, err := vmnode.New(vmnode.Options{Checkout: checkout, NoBuild: true, Progress: os.Stderr})
	if err != nil {
		return nil, err
	}
	// The environment is stored before Up succeeds, so that TestMain also ends an environment whose Up failed.
	shared.env = e
	return e, e.Up(t.Context())
}

// sh runs a script in the guest and returns its output. An exit code other than 0 fails the test.
func (n *node) sh(script string) string {
	n.Helper()
	out, err := n.Machine.Shell(n.Context(), 3*time.Minute, script)
	if err != nil {
		n.Fatal(err)
	}
	return strings.TrimSpace(out)
}

// file returns the content of a file of the guest, such as a cgroup file.
func (n *node) file(path string) string {
	n.Helper()
	data, err := n.Machine.CopyOut(n.Context(), path, 1<<20)
	if err != nil {
		n.Error(err)
	}
	return strings.TrimSpace(string(data))
}

func (n *node) kubectl(args ...string) string {
	n.Helper()
	out, err := n.Kubectl(n.Context(), args...)
	if err != nil {
		n.Fatal(err)
	}
	return out
}

// apply applies a manifest.
func (n *node) apply(manifest string) {
	n.Helper()
	if _, err := n.KubectlApply(n.Context(), manifest, "apply", "-f", "-"); err != nil {
		n.Fatal(err)
	}
}

// await calls look until it returns true, and fails the test after the time bound.
func (n *node) await(what string, bound time.Duration, look func() (bool, string)) {
	n.Helper()
	err := vm.Await(n.Context(), what, bound, time.Second, func(context.Context) (bool, string) { return look() })
	if err != nil {
		n.Fatal(err)
	}
}
