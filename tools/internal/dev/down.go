package dev

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/wherry-node/wherry/tools/internal/cgroup"
	"github.com/wherry-node/wherry/tools/internal/proc"
	"github.com/wherry-node/wherry/tools/internal/runtime"
	"github.com/wherry-node/wherry/tools/internal/sysctl"
)

// step is one part of Down. Down carries out all steps, even if an earlier one fails.
type step struct {
	what string
	do   func(ctx context.Context, s *state) error
}

func (e *Env) steps() []step {
	return []step{
		{"delete workloads", e.deleteWorkloads},
		{"end the node", func(ctx context.Context, _ *state) error { return proc.Stop(ctx, e.pidFile("node"), 20*time.Second) }},
		{"end the CSI example", func(ctx context.Context, _ *state) error { return e.csiExample().end(ctx) }},
		{"end the runtime", e.endRuntime},
		{"end the control plane", e.endControlPlane},
		{"end strays", e.endStrays},
		{"unmount", func(context.Context, *state) error { return unmountBelow(e.path()) }},
		{"detach devices", func(ctx context.Context, _ *state) error { return runtime.DetachLoops(ctx, e.csiExample().volumes()) }},
		{"remove cgroups", func(ctx context.Context, _ *state) error { return cgroup.Remove(ctx, e.cgroupParent()) }},
		{"remove interfaces", func(ctx context.Context, s *state) error { return removeDummy(ctx, s.Dummy) }},
		{"restore sysctls", func(_ context.Context, s *state) error { return sysctl.Restore(s.Sysctls) }},
		{"remove data", e.removeData},
	}
}

// Down ends everything that Up started. It needs only the state file of Up and other files on disk, and may be repeated.
func (e *Env) Down(ctx context.Context) error {
	unlock, err := e.lock()
	if err != nil {
		return err
	}
	defer unlock()
	s, up, err := e.readState()
	if err != nil {
		e.say("%v: Down continues with the files that it finds", err)
	}
	if !up || s == nil {
		s = &state{Runtime: runtimeContainerd2}
	}
	var errs []error
	for _, step := range e.steps() {
		began := time.Now()
		if err := step.do(ctx, s); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", step.what, err))
			continue
		}
		if took := time.Since(began); took > 100*time.Millisecond {
			e.say("%s: done in %.1f s", step.what, took.Seconds())
		}
	}
	if len(errs) == 0 { // after an error the state file stays, because the next Down needs it
		errs = append(errs, os.RemoveAll(e.path("run")))
	}
	if errors.Join(errs...) == nil {
		e.say("down; logs of the last run: %s", e.path("logs"))
	}
	return errors.Join(errs...)
}

// deleteWorkloads deletes the pods and waits for the node to end them within their grace periods. Later steps kill the containers that are
// left.
func (e *Env) deleteWorkloads(ctx context.Context, _ *state) error {
	_, node := proc.Find(e.pidFile("node"))
	_, plane := proc.Find(e.pidFile("controlplane"))
	if !node || !plane {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 45*time.Second)
	defer cancel()
	if _, err := e.kubectl(ctx, "delete", "--all", "-A", "--wait=false", "--ignore-not-found", "--request-timeout=10s",
		"deployments,statefulsets,daemonsets,cronjobs,jobs,replicasets,replicationcontrollers"); err != nil {
		e.say("workloads not deleted (ended by force below): %s", firstLine(err.Error()))
		return nil
	}
	if _, err := e.kubectl(ctx, "delete", "pods", "--all", "-A", "--ignore-not-found", "--timeout=40s"); err != nil {
		e.say("pods not deleted (ended by force below): %s", firstLine(err.Error()))
	}
	return nil
}

// endContainerd ends the environment's containerd with its containers, and keeps its log. It does nothing if there is none.
func (e *Env) endContainerd(ctx context.Context, flavor string) error {
	c := e.containerd(flavor)
	if _, err := os.Stat(c.Dir); err != nil {
		return nil
	}
	keepLog(filepath.Join(c.Dir, "containerd.log"), e.path("logs", "containerd.log"))
	return runtime.Purge(ctx, c)
}

func (e *Env) endRuntime(ctx context.Context, s *state) error {
	switch s.Runtime {
	case runtimeSimulated:
		return nil
	case runtimeContainerd2, runtimeDebian:
		return e.endContainerd(ctx, s.Runtime)
	}
	var errs []error
	for _, name := range s.Imported {
		_, err := output(ctx, e.bin("ctr"), "--address", s.Runtime, "-n", "k8s.io", "images", "rm", name)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func (e *Env) endControlPlane(ctx context.Context, s *state) error {
	if err := proc.Stop(ctx, e.pidFile("controlplane"), time.Minute); err != nil {
		return err
	}
	if !s.Proxy {
		return nil
	}
	return removeProxyTables(ctx, s.Tables)
}

func (e *Env) endStrays(ctx context.Context, _ *state) error {
	strays, err := e.strays()
	if err != nil {
		return err
	}
	var errs []error
	for _, p := range strays {
		e.say("killed process %d of an earlier run", p.PID)
		errs = append(errs, p.Kill(ctx))
	}
	return errors.Join(errs...)
}

// removeData removes all files except logs, caches and the state file.
func (e *Env) removeData(context.Context, *state) error {
	// Files below a mount that is still there may belong to the machine, so nothing is removed then.
	mounts, err := runtime.MountsBelow(e.path())
	if err != nil {
		return err
	}
	if len(mounts) > 0 {
		return fmt.Errorf("still mounted: %s", strings.Join(mounts, " "))
	}
	logs, _ := os.ReadDir(e.path("controlplane", "logs"))
	for _, log := range logs {
		keepLog(e.path("controlplane", "logs", log.Name()), e.path("logs", log.Name()))
	}
	errs := []error{removeLogLinks("/var/log/containers", e.path("node", "pod-logs"))}
	for _, name := range []string{"controlplane", "node", "containerd", csiDir, "admin.kubeconfig"} {
		errs = append(errs, os.RemoveAll(e.path(name)))
	}
	return errors.Join(errs...)
}

// removeLogLinks removes the links in dir, for log collectors, that lead to container logs below the directory logs. The agent leaves links
// behind if containers end together with the runtime.
func removeLogLinks(dir, logs string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	errs := []error{err}
	for _, entry := range entries {
		link := filepath.Join(dir, entry.Name())
		if target, err := os.Readlink(link); err == nil && strings.HasPrefix(target, logs+"/") {
			errs = append(errs, os.Remove(link))
		}
	}
	return errors.Join(errs...)
}

func keepLog(from, to string) {
	_ = os.Rename(from, to) // a log that cannot be kept is no error of Down
}
