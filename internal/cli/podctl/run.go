package podctl

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/internal/cli/launch"
	"github.com/wherry-node/wherry/internal/cli/plain"
	"github.com/wherry-node/wherry/internal/edge/push"
)

// Run runs the pods of manifests on this machine, without a cluster: on a running agent, or on an agent that it starts.
type Run struct {
	// Files are manifests, directories of them, or "-" for standard input.
	Files []string
	// Agent configures the agent that Run starts if none is running.
	Agent launch.Own
	// Detach pushes the pods to a running agent and returns at once. With Wait too, it returns when all pods are ready or have
	// completed.
	Detach, Wait bool
	// Keep leaves the pods running when the command ends.
	Keep bool
	// Quiet prints no progress. NoLogs prints no logs of containers.
	Quiet, NoLogs bool
	// Timeout bounds the time until all pods are ready or have completed; 0: no bound.
	Timeout time.Duration
	// Grace is the grace period for ending the pods, in seconds; negative: each pod's own.
	Grace int64
}

// runner is the state of one wherry run.
type runner struct {
	*Run
	client  *client
	mine    *launch.Running // nil: another process runs the agent
	say     *lineWriter     // progress
	out     *lineWriter     // the logs of containers
	pods    []push.Pushed
	several bool              // there are several pods, so each line of a log names its pod
	seen    map[string]string // the last printed state of each pod
	events  string            // position of the last printed event
	logs    sync.WaitGroup
}

// Run pushes the manifests. It prints the progress and the logs of their pods until all pods have run to their end. If a
// container failed, the error is an ExitStatus with its exit code.
func (o *Run) Run(ctx context.Context, s Streams) error {
	m, err := readManifests(o.Files, s.In)
	if err != nil {
		return err
	}
	r := &runner{Run: o, say: newLineWriter(s.Err), out: newLineWriter(plain.Terminal(s.Out)), seen: map[string]string{}}
	for _, note := range m.notes {
		r.progress("%s", note)
	}
	if err := r.open(ctx, m); err != nil {
		return err
	}
	if r.mine != nil {
		defer r.Agent.Forget()
		defer r.mine.Stop()
	}
	r.sayEvents(ctx) // prints nothing, because no pod is pushed yet: it only skips the earlier events
	if err := r.push(ctx, m); err != nil {
		if !o.Detach { // the agent may have taken some of the pods before it refused another one
			err = errors.Join(err, r.cleanUp(ctx))
		}
		return err
	}
	if o.Detach && !o.Wait {
		return nil
	}
	if len(r.pods) == 0 {
		if r.mine == nil {
			return nil
		}
		return r.serve(ctx)
	}
	code, err := r.follow(ctx)
	if o.Detach {
		if err == nil && code != 0 {
			err = ExitStatus(code)
		}
		return err
	}
	if ctx.Err() != nil { // the user has ended the command, which is no error
		err = nil
	}
	err = errors.Join(err, r.cleanUp(ctx))
	if err == nil && code != 0 {
		return ExitStatus(code)
	}
	return err
}

func (r *runner) progress(format string, args ...any) {
	if !r.Quiet {
		r.say.printf("%s", plain.Text(fmt.Sprintf(format, args...)))
	}
}

// open connects to an agent, or starts one.
func (r *runner) open(ctx context.Context, m *manifests) error {
	socket, err := findSocket(ctx, r.Agent.Socket)
	var none noAgent
	switch {
	case err == nil:
		r.client = newClient(socket)
		if r.Agent.Runtime != "" || r.Agent.Root != "" {
			r.progress("An agent listens on %s: --container-runtime-endpoint and --root-dir are its own.", socket)
		}
		return nil
	case !errors.As(err, &none):
		return err
	case r.Detach:
		return fmt.Errorf("--detach: %w", err)
	case m.pods == 0 && len(m.all) > 0:
		return fmt.Errorf("there is no Pod among the manifests, and %w", err)
	}
	a := &r.Agent
	if err := a.Complete(ctx); err != nil {
		return err
	}
	r.client = newClient(a.Socket)
	r.mine, err = a.Start(ctx, func(ctx context.Context) bool {
		_, err := r.client.pods(ctx)
		return err == nil
	})
	if err != nil {
		return err
	}
	r.progress("Agent started on %s, socket %s.", a.Runtime, a.Socket)
	return nil
}

// push sends the manifests and prints the result.
func (r *runner) push(ctx context.Context, m *manifests) error {
	if len(m.all) == 0 {
		return nil
	}
	for {
		answer, err := r.client.post(ctx, "manifest", m.all)
		var a *answerError
		if errors.As(err, &a) && a.status == 503 { // the agent has not read its directory yet, so try again
			if err := sleep(ctx, pollEvery); err != nil {
				return err
			}
			continue
		}
		for _, p := range answer.Items { // also together with an error
			name := strings.ToLower(p.Kind) + "/" + p.Name
			if r.Detach && !r.Quiet {
				r.out.printf("%s %s", name, p.Result)
			} else {
				r.progress("%s %s", name, p.Result)
			}
			if p.Kind == "Pod" {
				r.pods = append(r.pods, p)
			}
		}
		r.several = len(r.pods) > 1
		return err
	}
}

// serve keeps this process's agent running, because the agent has pods of earlier commands.
func (r *runner) serve(ctx context.Context) error {
	pods, err := r.client.pods(ctx)
	if err != nil || len(pods) == 0 && len(r.Files) > 0 {
		return err
	}
	r.progress("Looking after %d pods. Ctrl-C ends the agent; the pods run on.", len(pods))
	select {
	case <-ctx.Done():
		return nil
	case <-r.mine.Ended():
		return r.mine.Err()
	}
}

// cleanUp stops and removes the pods that this command has pushed, unless Keep is set. It does so even if ctx has ended. If it fails for
// one pod, it goes on with the others; the error names each pod that it leaves.
func (r *runner) cleanUp(ctx context.Context) error {
	if r.Keep {
		for _, p := range r.pods {
			r.progress("pod/%s runs on", p.Name)
		}
		return nil
	}
	ctx = context.WithoutCancel(ctx)
	var pods []*v1.Pod
	var errs []error
	left := func(p push.Pushed, err error) {
		errs = append(errs, fmt.Errorf("pod/%s is not removed: %w", p.Name, err))
	}
	for _, p := range r.pods {
		if p.Result == push.Unchanged && r.mine == nil {
			r.progress("pod/%s was here before and runs on", p.Name)
			continue
		}
		now, err := r.client.pod(ctx, p.Namespace, p.Name)
		switch {
		case isNotFound(err) || err == nil && now.UID != p.UID:
			continue // another command has removed or replaced the pod
		case err != nil:
			left(p, err)
			continue
		}
		if runsAny(now) {
			r.progress("pod/%s stopping (up to %ds; Ctrl-C again leaves that to the next agent)", p.Name, graceOf(now, r.Grace))
		}
		if err := r.client.end(ctx, now, graceArg(r.Grace), true); err != nil {
			left(p, err)
			continue
		}
		pods = append(pods, now)
	}
	for _, p := range pods {
		if err := r.awaitEnd(ctx, p); err != nil {
			return errors.Join(append(errs, err)...)
		}
	}
	return errors.Join(errs...)
}

// awaitEnd waits until nothing of a pod is left.
func (r *runner) awaitEnd(ctx context.Context, p *v1.Pod) error {
	for {
		_, err := r.client.pod(ctx, p.Namespace, p.Name)
		if isNotFound(err) {
			r.progress("pod/%s removed", p.Name)
			return nil
		}
		if err != nil {
			return err
		}
		if err := sleep(ctx, pollEvery); err != nil {
			return err
		}
	}
}

// graceOf returns how many seconds a pod has to end: asked, or the pod's own grace period if asked is negative.
func graceOf(p *v1.Pod, asked int64) int64 {
	if asked >= 0 {
		return asked
	}
	if s := p.Spec.TerminationGracePeriodSeconds; s != nil {
		return *s
	}
	return v1.DefaultTerminationGracePeriodSeconds
}
