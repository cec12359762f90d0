package conformance

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/wherry-node/wherry/tools/internal/vmnode"
)

// A shell can read the scripts that run in the guest.
func TestScriptsOfTheGuest(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]string{
		"unit": unitScript("wherry", 0), "unit of the other agent": unitScript("kubelet", 512), "images": imagesScript(), "start": startScript,
	} {
		check := exec.Command("/bin/sh", "-n")
		check.Stdin = strings.NewReader(script)
		if out, err := check.CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s\n%s", name, err, out, script)
		}
	}
}

// Upstream's kubelet replaces Wherry and runs without the limits of Wherry's package; swap space is there only if it is asked for.
func TestTheAgentUnderTest(t *testing.T) {
	t.Parallel()
	wherry, kubelet := unitScript("wherry", 0), unitScript("kubelet", 512)
	for _, part := range []string{"20-hardening.conf", "/usr/bin/kubelet", "swapon"} {
		if strings.Contains(wherry, part) || !strings.Contains(kubelet, part) {
			t.Errorf("%s: is in the script for Wherry, or not in that for upstream's kubelet:\n%s\n\n%s", part, wherry, kubelet)
		}
	}
	if !strings.Contains(kubelet, "fallocate -l 512M ") {
		t.Errorf("the swap space has not the size that was asked for:\n%s", kubelet)
	}
}

// The guest's suite is the node suite, with files of its own and the guest's paths.
func TestTheGuestsSuite(t *testing.T) {
	t.Parallel()
	o, node := Options{Suite: SuiteGuest, Checkout: "../../..", Focus: FocusDefault}, Options{Suite: SuiteNode, Checkout: "../../..", Focus: FocusDefault}
	got, err := o.skips()
	if err != nil {
		t.Fatal(err)
	}
	if want, err := node.skips(); err != nil || got != want {
		t.Errorf("it leaves out other tests than the node suite (%v)", err)
	}
	if got := filepath.Base(o.list("wherry.txt")); got != "vm-wherry.txt" {
		t.Errorf("its results are in %s", got)
	}
	if got := o.testProgram(); got != "/var/lib/node-tests/e2e_node.test" {
		t.Errorf("the test program is %s", got)
	}
	if o.OwnNamespaces() || !node.OwnNamespaces() {
		t.Error("only the node suite needs namespaces of its own")
	}
}

// A run uses the guest of an earlier one only if it runs and has the same agent and the same swap space.
func TestAKeptGuest(t *testing.T) {
	t.Parallel()
	env, err := vmnode.New(vmnode.Options{Checkout: "/x", Dir: filepath.Join(t.TempDir(), "vm"), Cache: "/c"})
	if err != nil {
		t.Fatal(err)
	}
	g := &guestCluster{Env: env, o: Options{Node: "wherry"}}
	if g.kept() {
		t.Error("a guest that was never there is used")
	}
	if err := os.MkdirAll(filepath.Join(env.Dir, "guest"), 0o755); err != nil {
		t.Fatal(err)
	}
	write := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(g.prepared(), g.purpose())
	if g.kept() {
		t.Error("a guest that does not run is used")
	}
	sleep := exec.Command("sleep", "600")
	if err := sleep.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = sleep.Process.Kill(), sleep.Wait() })
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", sleep.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	started := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))[19]
	write(filepath.Join(env.Dir, "guest", "qemu.pid"), fmt.Sprintf("%d %s\n", sleep.Process.Pid, started))
	if !g.kept() {
		t.Error("a guest that runs is not used")
	}
	g.o.Node = "kubelet"
	if g.kept() {
		t.Error("a guest with the other agent is used")
	}
	g.o.Node, g.o.SwapMiB = "wherry", 2048
	if g.kept() {
		t.Error("a guest without swap space is used")
	}
}

// Exit code 1 of ginkgo means that tests failed, wherever it ran; another code means that it could not run them.
func TestFailedTestsOfTheGuest(t *testing.T) {
	t.Parallel()
	for code, want := range map[int]bool{1: true, 2: false, -1: false} {
		if got := isFailedTests(errors.Join(fmt.Errorf("run the tests: %w", guestExit(code)))); got != want {
			t.Errorf("exit code %d: tests failed: %v, want %v", code, got, want)
		}
		if here := exec.Command("/bin/sh", "-c", fmt.Sprintf("exit %d", code&255)).Run(); isFailedTests(here) != want {
			t.Errorf("exit code %d on this machine: want %v", code, want)
		}
	}
	if isFailedTests(errors.New("no guest")) {
		t.Error("an error without an exit code counts as failed tests")
	}
}

// Placeholders have names that no other image has, and that of perl has so many files that its removal is noticed.
func TestPlaceholders(t *testing.T) {
	t.Parallel()
	bin := t.TempDir()
	if err := os.MkdirAll(filepath.Join(bin, "images"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(bin, "images", "pause"), []byte("program"), 0o755); err != nil {
		t.Fatal(err)
	}
	set, err := placeholders(bin)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, image := range set {
		if seen[image.Reference] {
			t.Errorf("%s is there twice", image.Reference)
		}
		seen[image.Reference] = true
		if many := len(image.Files) > 10000; many != (image.Reference == e2eImages+"perl:5.26") {
			t.Errorf("%s has %d files", image.Reference, len(image.Files))
		}
	}
	if _, err := NewRegistry(set); err != nil {
		t.Error(err)
	}
}
