package work

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/wherry-node/wherry/bench/internal/rig"
)

// A busy node: what a person waits for, beside what the node does all the time.

// readySoon has each pod's readiness asked for each second, by a command.
func readySoon(p *v1.Pod) {
	c := &p.Spec.Containers[0]
	c.ReadinessProbe = &v1.Probe{
		ProbeHandler: v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"true"}}}, PeriodSeconds: 1, TimeoutSeconds: 5,
	}
	c.Command = []string{"sh", "-c", "echo first line; exec sleep 1000000"}
}

// busy starts many pods with such probes at once, and has a few other things done beside them: first beside all of them, then
// beside a fifth.
func (s *Session) busy(ctx context.Context) error {
	names := s.named("busy", s.Plan.Pods)
	if err := s.atOnce(ctx, names, "probed pods at once, create to Ready", readySoon); err != nil {
		return err
	}
	if err := s.more(ctx); err != nil {
		return fmt.Errorf("beside %d pods with probes: %w", len(names), err)
	}
	for _, n := range []int{len(names), len(names) / 5} {
		if _, err := each(names[n:], func(name string) error {
			return s.Rig.Client.CoreV1().Pods(rig.Namespace).Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))})
		}); err != nil {
			return err
		}
		names = names[:n]
		if err := sleep(ctx, 3*time.Second); err != nil {
			return err
		}
		if err := s.beside(ctx, fmt.Sprintf("%d probed pods", n), names); err != nil {
			return fmt.Errorf("beside %d pods with probes: %w", n, err)
		}
	}
	if err := s.force(ctx, names); err != nil {
		return err
	}
	return s.anew(ctx) // an agent may leave sandboxes for a minute
}

// more starts as many pods again, without probes, beside those with probes, and deletes them by force.
func (s *Session) more(ctx context.Context) error {
	names := s.named("busymore", s.Plan.Pods)
	if err := s.atOnce(ctx, names, "pods at once beside as many probed pods, create to Ready", nil); err != nil {
		return err
	}
	if _, err := each(names, func(name string) error {
		return s.Rig.Client.CoreV1().Pods(rig.Namespace).Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))})
	}); err != nil {
		return err
	}
	_, err := within(ctx, 3*time.Minute, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, s.CRI.Run(ctx, s.Plan.Pods)
	})
	return err
}

// beside starts and deletes pods one after another, and runs commands in pods and reads their logs, beside others.
func (s *Session) beside(ctx context.Context, what string, names []string) error {
	prefix := fmt.Sprintf("beside-%d", len(names))
	if err := s.sequence(ctx, prefix, s.Plan.Sequence, "one pod beside "+what+", create to Ready", "one pod beside "+what+", delete to gone", nil); err != nil {
		return err
	}
	for i := range min(2*s.Plan.Sequence, len(names)) {
		for kind, first := range map[string]func(context.Context, string) (time.Duration, error){
			"exec": s.Rig.ExecFirstByte, "logs": s.Rig.LogsFirstByte,
		} {
			took, err := within(ctx, 30*time.Second, func(ctx context.Context) (time.Duration, error) { return first(ctx, names[i]) })
			if err != nil {
				return err
			}
			s.Samples.took(kind+" beside "+what+", first byte", took)
		}
	}
	return nil
}

// crash has many pods crash in a loop, and others start beside them while the first restarts follow each other.
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
	if err := s.force(ctx, names); err != nil {
		return err
	}
	return s.anew(ctx)
}

// writers is how many containers write logs at once: a megabyte each, ten times a second where the machine has room for it.
const writers = 5

// chatter has containers write about 50 MB of logs a second, as far as the machine has room, and others start beside them.
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
	if err := s.force(ctx, names); err != nil {
		return err
	}
	return s.anew(ctx)
}
