package work

import (
	"context"
	"fmt"
	"os/exec"
	"strconv"
	"sync"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/wherry-node/wherry/bench/internal/rig"
)

// execs is how many commands are run to measure what a command costs. execsAtOnce is how many of them run at the same time in the
// concurrent measurement.
const (
	execs       = 40
	execsAtOnce = 8
)

// execCost measures what it costs to run a command in a container, as a probe does, in three ways: with ExecSync of the CRI runtime, with
// runc alone, and with nsenter. nsenter only joins the container's namespaces and runs the command, which every runtime has to do.
func (c *CRI) execCost(ctx context.Context, r *rig.Rig, s Samples, round int, made map[string]bare) error {
	name := fmt.Sprintf("bare-exec-%d", round)
	b, err := c.start(ctx, name)
	made[name] = b
	if err != nil {
		return err
	}
	pid, err := c.PID(ctx, b.container)
	if err != nil {
		return err
	}
	if err := rig.Sleep(ctx, time.Second); err != nil { // by then the work that follows the start of a container is done
		return err
	}
	execSync := func(ctx context.Context) error {
		res, err := c.r.ExecSync(ctx, &runtimeapi.ExecSyncRequest{ContainerId: b.container, Cmd: []string{"true"}, Timeout: 30})
		if err == nil && res.ExitCode != 0 {
			err = fmt.Errorf("it ended with %d: %s", res.ExitCode, res.Stderr)
		}
		return err
	}
	used, err := meter(r, 0)
	if err != nil {
		return err
	}
	if err := c.execAgain(ctx, s, "ExecSync, one after another", 1, execSync); err != nil {
		return err
	}
	if err := used(s, "CPU per ExecSync", execs); err != nil {
		return err
	}
	if err := c.execAgain(ctx, s, "ExecSync, eight at a time", execsAtOnce, execSync); err != nil {
		return err
	}
	runc, root := r.Runc()
	for _, p := range []struct {
		what string
		args []string
	}{
		{"runc exec", []string{runc, "--root", root, "exec", b.container, "true"}},
		{"nsenter", []string{"nsenter", "--target", strconv.Itoa(pid), "--all", "--root", "/bin/true"}},
	} {
		if err := c.execAgain(ctx, s, p.what+", one after another", 1, func(ctx context.Context) error {
			cmd := exec.CommandContext(ctx, p.args[0], p.args[1:]...)
			out, err := cmd.CombinedOutput()
			if err != nil {
				return fmt.Errorf("%v: %w: %s", p.args, err, out)
			}
			s.took("CPU per "+p.what, cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime())
			return nil
		}); err != nil {
			return err
		}
	}
	return c.stop(ctx, b)
}

// execAgain runs a command repeatedly, atOnce of them at a time, and adds the duration of each successful run to the samples.
func (c *CRI) execAgain(ctx context.Context, s Samples, what string, atOnce int, run func(context.Context) error) error {
	var mu sync.Mutex
	var wg sync.WaitGroup
	var first error
	for range atOnce {
		wg.Go(func() {
			for range execs / atOnce {
				began := time.Now()
				_, err := rig.Within(ctx, 30*time.Second, func(ctx context.Context) (struct{}, error) { return struct{}{}, run(ctx) })
				took := time.Since(began)
				mu.Lock()
				if err == nil {
					s.took(what, took)
				} else if first == nil {
					first = err
				}
				mu.Unlock()
				if err != nil {
					return
				}
			}
		})
	}
	wg.Wait()
	return first
}
