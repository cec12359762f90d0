package launch

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The error for a runtime that does not answer names its endpoint and asks whether it is running.
func TestFindRuntime(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	if got, err := findRuntime(ctx, "simulated://?cpu=1"); err != nil || got != "simulated://?cpu=1" {
		t.Errorf("%q, %v", got, err)
	}
	path := "unix://" + filepath.Join(t.TempDir(), "absent.sock")
	if _, err := findRuntime(ctx, path); err == nil || !strings.Contains(err.Error(), "container runtime at "+path+" does not answer: is it running?") {
		t.Errorf("%v", err)
	}
}

// The agent that wherry run starts answers on its socket, ends on Stop, and leaves no files behind.
func TestOwnAgent(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	o := Own{Socket: filepath.Join(dir, "run", "wherry.sock"), Root: filepath.Join(dir, "root"), Runtime: "simulated://?cpu=1", CgroupRoot: "/wherry-test"}
	if err := o.Complete(t.Context()); err != nil {
		t.Fatal(err)
	}
	answers := func(ctx context.Context) bool {
		c, err := (&net.Dialer{}).DialContext(ctx, "unix", o.Socket)
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	}
	r, err := o.Start(t.Context(), answers)
	if err != nil {
		t.Fatal(err)
	}
	other := o
	other.Root = filepath.Join(dir, "other")
	if _, err := other.Start(t.Context(), func(context.Context) bool { return false }); err == nil || !strings.Contains(err.Error(), "start an agent") {
		t.Errorf("a second agent on the socket: %v", err)
	}
	r.Stop()
	if r.Err() != nil {
		t.Errorf("it ended with %v", r.Err())
	}
	if answers(t.Context()) {
		t.Error("its socket still answers")
	}
	if log, err := os.ReadFile(filepath.Join(o.Root, "agent.log")); err != nil || !strings.Contains(string(log), "node agent started") {
		t.Errorf("its log: %q, %v", log, err)
	}
}

// An agent that is started for a directory that another agent has does not take the log of that agent away. A log that has grown large becomes the
// older one.
func TestALogIsContinued(t *testing.T) {
	t.Parallel()
	o := Own{Root: t.TempDir(), Runtime: "simulated://", Socket: "/none/s"}
	cfg, err := o.config()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(o.Root, "agent.log")
	for _, line := range []string{"first", "second"} {
		log, f, err := o.log(&cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		log.Warn(line)
	}
	text, err := os.ReadFile(path)
	if err != nil || !strings.Contains(string(text), "first") || !strings.Contains(string(text), "second") {
		t.Errorf("the log has %q (%v), want the lines of both agents", text, err)
	}
	if err := os.Truncate(path, maxLog+1); err != nil {
		t.Fatal(err)
	}
	_, f, err := o.log(&cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	now, err := os.Stat(path)
	before, errBefore := os.Stat(path + olderLog)
	if err != nil || errBefore != nil || now.Size() != 0 || before.Size() != maxLog+1 {
		t.Errorf("after a large log: %v, %v; %v, %v", now, err, before, errBefore)
	}
}
