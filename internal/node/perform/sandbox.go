package perform

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/wherry-node/wherry/internal/core/crispec"
	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/edge/cri"
)

// sandboxConfig returns the sandbox configuration, which is sent to the runtime with RunPodSandbox and again with each CreateContainer.
// It is built anew for each request, from the pod and the node's facts, so it differs after a change of the node's configuration.
func (x *Performer) sandboxConfig(job pod.Job, attempt uint32, handler string) (*runtimeapi.PodSandboxConfig, []crispec.Warning, error) {
	facts := x.cfg.Facts()
	users, err := x.userns(job.Pod, handler, &facts)
	if err != nil {
		return nil, nil, err
	}
	dns, warnings := crispec.DNS(crispec.DNSInput{
		Pod: job.Pod, ClusterDNS: facts.ClusterDNS, ClusterDomain: facts.Spec.ClusterDomain,
		Host: facts.HostResolv, NodeIPs: facts.HostIPs,
	})
	cfg, err := crispec.Sandbox(crispec.SandboxInput{
		Pod: job.Pod, Attempt: attempt, DNS: dns, LogDir: crispec.LogDir(facts.LogRoot, job.Pod),
		CgroupParent: x.cfg.Cgroups.Parent(job.Pod), Policy: facts.Spec, Userns: users,
	})
	return cfg, warnings, err
}

// userns returns the user namespace of a pod that asks for one of its own, and nil for other pods.
func (x *Performer) userns(p *v1.Pod, handler string, facts *Facts) (*runtimeapi.UserNamespace, error) {
	if !crispec.NeedsUserns(p) {
		return nil, nil
	}
	if !facts.UserNamespaces[handler] {
		if handler != "" {
			return nil, fmt.Errorf("can't set `spec.hostUsers: false`, RuntimeClass handler %q does not support user namespaces", handler)
		}
		return nil, errors.New("can't set `spec.hostUsers: false`, runtime does not support user namespaces")
	}
	first, length, err := x.cfg.IDs.Range(p.UID)
	if err != nil {
		return nil, fmt.Errorf("create user namespace: %w", err)
	}
	return crispec.UserNamespace(first, length), nil
}

// handler returns the runtime handler of the pod's runtime class, or "" for the runtime's default.
func (x *Performer) handler(ctx context.Context, p *v1.Pod) (string, error) {
	if p.Spec.RuntimeClassName == nil || *p.Spec.RuntimeClassName == "" {
		return "", nil
	}
	h, err := x.cfg.Objects.RuntimeHandler(ctx, *p.Spec.RuntimeClassName)
	if err != nil {
		return "", fmt.Errorf("spec.runtimeClassName %q: %w", *p.Spec.RuntimeClassName, err)
	}
	return h, nil
}

// resolverKnown returns an error while the node's resolver configuration cannot be read. A sandbox keeps its configuration as long as it exists, so a
// pod that starts before the machine has made the file, for example, would never have the node's name servers.
func (x *Performer) resolverKnown(p *v1.Pod) error {
	if err := x.cfg.Facts().HostResolvErr; err != nil && p.Spec.DNSPolicy != v1.DNSNone {
		return fmt.Errorf("resolvConf: %w", err)
	}
	return nil
}

func (x *Performer) runSandbox(ctx context.Context, job pod.Job) pod.Outcome {
	const reason = "FailedCreatePodSandBox"
	began := time.Now()
	if job.Observed.NewestSandbox() != nil { // an attempt whose result was not known may have left none
		x.event(job, v1.EventTypeNormal, "SandboxChanged", "Pod sandbox changed, it will be killed and re-created.")
	}
	handler, err := x.handler(ctx, job.Pod)
	if err == nil {
		err = x.resolverKnown(job.Pod)
	}
	defer func() { x.cfg.Meter.SandboxStarted(handler, crispec.NeedsUserns(job.Pod), time.Since(began), err) }()
	if err == nil {
		var cfg *runtimeapi.PodSandboxConfig
		var warnings []crispec.Warning
		cfg, warnings, err = x.sandboxConfig(job, job.Action.Attempt, handler)
		for _, w := range warnings {
			x.event(job, v1.EventTypeWarning, w.Reason, "%s", w.Message)
			if w.Node != "" {
				x.cfg.Recorder.NodeEvent(v1.EventTypeWarning, w.Reason, w.Node)
			}
		}
		if err == nil {
			var id string
			if id, err = x.cfg.CRI.RunSandbox(ctx, cfg, handler); err == nil {
				return pod.Outcome{ID: id}
			}
		}
	}
	o := failed(reason, err)
	x.event(job, v1.EventTypeWarning, reason, "Failed to create pod sandbox: %s", cri.StatusText(err))
	return o
}

func (x *Performer) stopSandbox(ctx context.Context, job pod.Job) pod.Outcome {
	if err := x.cfg.CRI.StopSandbox(ctx, job.Action.ID); err != nil {
		x.recordNotKilled(job, "KillPodSandbox", string(job.Ref.UID), "KillPodSandboxError", err)
		return failed("KillPodSandboxError", err)
	}
	return pod.Outcome{ID: job.Action.ID}
}

func (x *Performer) removeSandbox(ctx context.Context, job pod.Job) pod.Outcome {
	if err := x.cfg.CRI.RemoveSandbox(ctx, job.Action.ID); err != nil {
		return failed("RemovePodSandboxError", err)
	}
	return pod.Outcome{ID: job.Action.ID}
}
