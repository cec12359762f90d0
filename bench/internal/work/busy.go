package work

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/bench/internal/rig"
)

// The functions in this file measure a busy node: how long a user waits while the node always has other work.

// readySoon gives a pod a readiness probe that runs a command every second. The pod's container first writes one line, which LogsFirstByte
// reads.
func readySoon(p *v1.Pod) {
	c := &p.Spec.Containers[0]
	c.ReadinessProbe = &v1.Probe{
		ProbeHandler: v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"true"}}}, PeriodSeconds: 1, TimeoutSeconds: 5,
	}
	c.Command = []string{"sh", "-c", "echo first line; exec sleep 1000000"}
}

// busy starts many pods with readiness probes at once. While they run, it measures other work: first while all of them run, then while a
// fifth of them run.
func (s *Session) busy(ctx context.Context) error {
	names := s.named("busy", s.Plan.Pods)
	if err := s.atOnce(ctx, names, "probed pods at once, create to Ready", readySoon); err != nil {
		return err
	}
	if err := s.more(ctx); err != nil {
		return fmt.Errorf("beside %d pods with probes: %w", len(names), err)
	}
	for _, n := range []int{len(names), len(names) / 5} {
		if _, err := each(names[n:], func(name string) error { return s.deleteNow(ctx, name) }); err != nil {
			return err
		}
		deleted := len(names) - n
		if names = names[:n]; deleted > 0 {
			what := fmt.Sprintf("one pod beside %d pods that are deleted by force, create to Ready", deleted)
			if err := s.sequence(ctx, "besidegone", 1, what, "", nil); err != nil {
				return err
			}
		}
		if err := s.settle(ctx, n); err != nil {
			return err
		}
		if err := s.beside(ctx, fmt.Sprintf("%d probed pods", n), names); err != nil {
			return fmt.Errorf("beside %d pods with probes: %w", n, err)
		}
	}
	if err := s.force(ctx, names, ""); err != nil {
		return err
	}
	return s.anew(ctx) // removes all pods: an agent may keep the sandboxes of deleted pods for a minute
}

// more starts as many pods without probes as there are pods with probes, and then deletes them with grace period 0.
func (s *Session) more(ctx context.Context) error {
	names := s.named("busymore", s.Plan.Pods)
	if err := s.atOnce(ctx, names, "pods at once beside as many probed pods, create to Ready", nil); err != nil {
		return err
	}
	if _, err := each(names, func(name string) error { return s.deleteNow(ctx, name) }); err != nil {
		return err
	}
	return s.settle(ctx, s.Plan.Pods)
}

// settle waits until deleted pods no longer disturb the next measurement. It waits until the runtime has at most this many ready sandboxes,
// and then for 3 s in which the agent may remove the rest of the deleted pods.
func (s *Session) settle(ctx context.Context, pods int) error {
	if _, err := rig.Within(ctx, 3*time.Minute, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, s.CRI.Settled(ctx, pods)
	}); err != nil {
		return err
	}
	return rig.Sleep(ctx, 3*time.Second)
}

// beside starts and deletes pods one after another while the named pods run. It also runs commands in these pods and reads their logs.
func (s *Session) beside(ctx context.Context, what string, names []string) error {
	prefix := fmt.Sprintf("beside-%d", len(names))
	if err := s.sequence(ctx, prefix, s.Plan.Sequence, "one pod beside "+what+", create to Ready", "one pod beside "+what+", delete to gone", nil); err != nil {
		return err
	}
	for i := range min(2*s.Plan.Sequence, len(names)) {
		for kind, first := range map[string]func(context.Context, string) (time.Duration, error){
			"exec": s.Rig.ExecFirstByte, "logs": s.Rig.LogsFirstByte,
		} {
			took, err := rig.Within(ctx, 30*time.Second, func(ctx context.Context) (time.Duration, error) { return first(ctx, names[i]) })
			if err != nil {
				return err
			}
			s.Samples.took(kind+" beside "+what+", first byte", took)
		}
	}
	return nil
}

// crash starts many pods whose containers fail again and again, and starts other pods during the first restarts.
func (s *Session) crash(ctx context.Context) error {
	names := s.named("crash", s.Plan.Pods)
	if _, err := each(names, func(n string) error {
		return s.create(ctx, n, func(p *v1.Pod) { p.Spec.Containers[0].Command = []string{"false"} })
	}); err != nil {
		return err
	}
	what := "pods that crash-loop"
	if err := s.sequence(ctx, "besidecrash", s.Plan.Sequence, "one pod beside "+what+", create to Ready", "one pod beside "+what+", delete to gone", nil); err != nil {
		return err
	}
	if err := s.force(ctx, names, ""); err != nil {
		return err
	}
	return s.anew(ctx)
}

// writers is the number of containers that write logs at the same time. Each writes a megabyte ten times per second, if the machine is fast
// enough.
const writers = 5

// chatter starts containers that together write about 50 MB of logs per second, if the machine is fast enough, and starts other pods at the
// same time.
func (s *Session) chatter(ctx context.Context) error {
	names := s.named("chatter", writers)
	if err := s.atOnce(ctx, names, "", func(p *v1.Pod) {
		p.Spec.Containers[0].Command = []string{"sh", "-c", "while :; do head -c 1000000 /dev/zero | tr '\\0' 'x' | fold -w 100; sleep 0.1; done"}
	}); err != nil {
		return err
	}
	what := "containers that write logs"
	if err := s.sequence(ctx, "besidechatter", s.Plan.Sequence, "one pod beside "+what+", create to Ready", "one pod beside "+what+", delete to gone", nil); err != nil {
		return err
	}
	if err := s.force(ctx, names, ""); err != nil {
		return err
	}
	return s.anew(ctx)
}
