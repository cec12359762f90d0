package work

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/wherry-node/wherry/bench/internal/rig"
)

// probedFor is how long the agent is measured while its probes run.
const probedFor = 20 * time.Second

// probeKinds are the kinds of probe that the step "probes" can run.
var probeKinds = []string{"exec", "grpc", "http"}

// probes runs pods with a probe every second, for one kind of probe after another. The pods use the host's network, so that a server of the
// benchmark (rig.Target) answers their HTTP and gRPC probes and counts them. Afterwards it deletes the pods with grace period 0.
func (s *Session) probes(ctx context.Context) error {
	for _, kind := range s.Plan.Probes {
		target, err := rig.NewTarget()
		if err != nil {
			return err
		}
		err = s.probed(ctx, kind, target)
		target.Close()
		if err != nil {
			return fmt.Errorf("%s: %w", kind, err)
		}
	}
	return nil
}

func (s *Session) probed(ctx context.Context, kind string, target *rig.Target) error {
	handler := v1.ProbeHandler{}
	switch kind {
	case "exec":
		handler.Exec = &v1.ExecAction{Command: []string{"true"}}
	case "http":
		handler.HTTPGet = &v1.HTTPGetAction{Port: intstr.FromInt(target.HTTP), Path: "/"}
	case "grpc":
		handler.GRPC = &v1.GRPCAction{Port: int32(target.GRPC)}
	default:
		return fmt.Errorf("there is no such kind of probe")
	}
	names := s.named("probed-"+kind, s.Plan.Pods)
	if err := s.atOnce(ctx, names, "", func(p *v1.Pod) {
		p.Spec.HostNetwork = true
		p.Spec.Containers[0].ReadinessProbe = &v1.Probe{ProbeHandler: handler, PeriodSeconds: 1, TimeoutSeconds: 5}
	}); err != nil {
		return err
	}
	if err := rig.Sleep(ctx, 3*time.Second); err != nil {
		return err
	}
	target.Served()
	took, err := s.cpu(ctx, "CPU with a probe a second, "+kind, probedFor)
	if err != nil {
		return err
	}
	if kind != "exec" {
		s.Samples.add("probes per second, "+kind, float64(target.Served())/took.Seconds())
	}
	if err := s.force(ctx, names, "pods deleted by force, to the end of the last process"); err != nil {
		return err
	}
	return s.anew(ctx) // removes all pods: an agent may keep the sandboxes of deleted pods for a minute
}

// force deletes pods with grace period 0 and waits until the runtime runs no container. It asks the runtime, because such pods leave the
// API before their containers have ended. It stores the time that this took as the sample named what; "": no sample.
func (s *Session) force(ctx context.Context, names []string, what string) error {
	start := time.Now()
	if _, err := each(names, func(n string) error { return s.deleteNow(ctx, n) }); err != nil {
		return err
	}
	ended, err := rig.Within(ctx, 3*time.Minute, s.CRI.NoneRuns)
	if err != nil {
		return err
	}
	if what != "" {
		s.Samples.took(what, ended.Sub(start))
	}
	return nil
}
