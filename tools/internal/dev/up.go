package dev

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/wherry-node/wherry/tools/internal/build"
	"github.com/wherry-node/wherry/tools/internal/cgroup"
	"github.com/wherry-node/wherry/tools/internal/debian"
	"github.com/wherry-node/wherry/tools/internal/images"
	"github.com/wherry-node/wherry/tools/internal/proc"
	"github.com/wherry-node/wherry/tools/internal/runtime"
	"github.com/wherry-node/wherry/tools/internal/sysctl"
)

// Up builds missing programs and starts the environment. It returns when the node is Ready and the example runs.
func (e *Env) Up(ctx context.Context) error {
	unlock, err := e.lock()
	if err != nil {
		return err
	}
	defer unlock()
	s, err := e.plan(ctx)
	if err != nil {
		return err
	}
	if !e.Bare {
		if err := e.buildAll(ctx, s); err != nil {
			return err
		}
	}
	var parts errgroup.Group
	parts.Go(func() error { return e.startControlPlane(ctx, s) })
	parts.Go(func() error { return e.startRuntime(ctx, s) })
	if err := parts.Wait(); err != nil {
		return err
	}
	if s.Runtime != runtimeSimulated {
		if err := cgroup.Make(e.cgroupParent()); err != nil {
			return err
		}
	}
	if err := e.startNode(s); err != nil {
		return err
	}
	e.say("node %s started, waiting until it is Ready", s.NodeName)
	if err := e.awaitNode(ctx, s); err != nil {
		return err
	}
	if err := e.installDNS(ctx, s); err != nil {
		return err
	}
	if !e.SkipExample {
		if err := e.runExample(ctx, s); err != nil {
			return err
		}
	}
	if err := e.awaitDNS(ctx, s); err != nil {
		return err
	}
	if e.Bare {
		return nil
	}
	return e.summary(ctx, s)
}

// plan chooses the runtime, and stores what Down has to restore before anything is changed. If an environment already runs, plan returns
// its state.
func (e *Env) plan(ctx context.Context) (*state, error) {
	s, running, err := e.readState()
	if err != nil {
		return nil, err
	}
	if running {
		if e.Runtime != s.Runtime && !e.fallback {
			return nil, fmt.Errorf("the environment is up with RUNTIME=%s: make down first", s.Runtime)
		}
		if s.Dummy != "" {
			return s, makeDummy(ctx)
		}
		return s, nil
	}
	s = &state{Runtime: e.Runtime, NodeName: e.NodeName, Sysctls: sysctl.Read(), NodeIP: machineAddress()}
	root := os.Geteuid() == 0
	if root {
		if s.Tables, err = runtime.Tables(ctx); err != nil {
			return nil, err
		}
	}
	if !root && (s.Runtime == runtimeContainerd2 || s.Runtime == runtimeDebian) {
		if !e.fallback {
			return nil, fmt.Errorf("RUNTIME=%s needs root", s.Runtime)
		}
		e.simulate(s, "not root")
	}
	if s.NodeIP == "" && root && s.Runtime != runtimeSimulated {
		s.Dummy, s.NodeIP = dummyName, dummyAddress
	}
	if s.NodeIP == "" {
		s.NodeIP = "127.0.0.1"
	}
	s.Proxy = root && s.Runtime != runtimeSimulated
	if err := e.writeState(s); err != nil {
		return nil, err
	}
	if s.Dummy != "" {
		return s, makeDummy(ctx)
	}
	return s, nil
}

// simulate chooses the simulated runtime in place of another one, and prints why.
func (e *Env) simulate(s *state, why string) {
	e.say("NO REAL CONTAINERS: the node runs over the simulated runtime, because: %s", why)
	s.Runtime = runtimeSimulated
}

func (e *Env) buildAll(ctx context.Context, s *state) error {
	real := s.Runtime != runtimeSimulated
	if real {
		if err := debian.Install(ctx, debian.Needed(), e.Progress); err != nil {
			return err
		}
	}
	names := []string{"wherry", "wherry-controlplane"}
	if _, err := exec.LookPath("kubectl"); err != nil {
		names = append(names, "kubectl")
	}
	if real {
		names = append(names, "runc", "containerd", "CNI plugins", "crictl", "image programs")
	}
	if e.dns(s) {
		names = append(names, "CoreDNS")
	}
	e.say("building into %s (the first time takes some minutes)", filepath.Join(e.Checkout, "bin"))
	if err := build.Run(ctx, e.Checkout, names, e.Progress); err != nil {
		return err
	}
	if !real {
		return nil
	}
	if _, err := build.Images(ctx, e.Checkout); err != nil {
		return err
	}
	if e.dns(s) {
		if _, err := build.DNSImage(e.Checkout); err != nil {
			return err
		}
	}
	if s.Runtime == runtimeDebian {
		_, err := debian.Runtime(ctx, e.path("debian"), e.Progress)
		return err
	}
	return nil
}

func (e *Env) startControlPlane(ctx context.Context, s *state) error {
	ready := e.path("run", "controlplane.ready")
	if _, running := proc.Find(e.pidFile("controlplane")); !running {
		_ = os.Remove(ready)
		args := []string{
			"--data-dir=" + e.path("controlplane"), "--admin-kubeconfig=" + e.Kubeconfig(), "--ready-file=" + ready,
			"--node-name=" + s.NodeName, "--cluster-cidr=" + clusterCIDR, "--secure-port=" + strconv.Itoa(e.planePort()),
		}
		if s.NodeIP != "127.0.0.1" {
			args = append(args, "--advertise-address="+s.NodeIP)
		}
		args = append(args, "--proxy="+strconv.FormatBool(s.Proxy))
		if _, err := proc.Start(proc.Spec{
			PIDFile: e.pidFile("controlplane"), Log: e.path("logs", "controlplane.log"), Path: e.bin("wherry-controlplane"), Args: args,
		}); err != nil {
			return err
		}
		e.say("control plane started")
	}
	for deadline := time.Now().Add(4 * time.Minute); ; {
		if _, err := os.Stat(ready); err == nil {
			e.say("control plane ready")
			return nil
		}
		if _, running := proc.Find(e.pidFile("controlplane")); !running || time.Now().After(deadline) {
			return fmt.Errorf("start control plane: it is not ready; last lines of %s:\n%s",
				e.path("logs", "controlplane.log"), lastLines(e.path("logs", "controlplane.log"), 16))
		}
		if err := sleep(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
}

// planePort returns the usual port of an API server, 6443; 0 if that port is in use, so that the control plane chooses another one.
func (e *Env) planePort() int {
	if port, err := freePort(6443); err == nil && port == 6443 {
		return port
	}
	return 0
}

func (e *Env) startRuntime(ctx context.Context, s *state) error {
	switch s.Runtime {
	case runtimeSimulated:
		return nil
	case runtimeContainerd2, runtimeDebian:
		c := e.containerd(s.Runtime)
		err := runtime.Start(ctx, c)
		for _, archive := range append(e.archives(s), e.Archives...) {
			if err == nil {
				err = runtime.Import(ctx, c, archive)
			}
		}
		if err == nil {
			e.say("containerd (%s) serves %s", s.Runtime, c.Socket())
			return nil
		}
		if !e.fallback || ctx.Err() != nil {
			return err
		}
		if stopErr := runtime.Purge(ctx, c); stopErr != nil {
			return errors.Join(err, stopErr)
		}
		e.simulate(s, err.Error())
		return e.writeState(s)
	}
	return e.useMachineRuntime(ctx, s)
}

// useMachineRuntime imports the images into a container runtime that the environment did not start. Down removes the images that were not
// there before.
func (e *Env) useMachineRuntime(ctx context.Context, s *state) error {
	endpoint := "unix://" + s.Runtime
	before, err := output(ctx, e.bin("crictl"), "--runtime-endpoint", endpoint, "--image-endpoint", endpoint, "images", "-o", "json")
	if err != nil {
		return fmt.Errorf("use runtime %s: %w", s.Runtime, err)
	}
	for _, archive := range e.archives(s) {
		if _, err := output(ctx, e.bin("ctr"), "--address", s.Runtime, "-n", "k8s.io", "images", "import", archive); err != nil {
			return fmt.Errorf("use runtime %s: import images (only containerd can): %w", s.Runtime, err)
		}
	}
	names := build.ImageNames()
	if e.dns(s) {
		names = append(names, images.CoreDNS)
	}
	for _, name := range names {
		if !strings.Contains(before, `"`+name+`"`) {
			s.Imported = append(s.Imported, name)
		}
	}
	e.say("the machine's runtime on %s is used", s.Runtime)
	return e.writeState(s)
}

// archives returns the archives of images that every runtime gets.
func (e *Env) archives(s *state) []string {
	out := []string{e.bin("images.tar")}
	if e.dns(s) {
		out = append(out, e.bin("coredns.tar"))
	}
	return out
}

func output(ctx context.Context, program string, args ...string) (string, error) {
	return proc.Output(exec.CommandContext(ctx, program, args...), proc.Line(program, args...))
}

func lastLines(path string, n int) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return "  " + err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	return "  " + strings.Join(lines[max(0, len(lines)-n):], "\n  ")
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
