package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/internal/source"
)

// runOptions are the flags of wherry run.
type runOptions struct {
	files              []string
	agent              ownAgent
	detach, wait, keep bool
	quiet, noLogs      bool
	timeout            time.Duration
	grace              int64
}

func newRun() *cobra.Command {
	var o runOptions
	cmd := &cobra.Command{
		Use:   "run [-f] MANIFEST...",
		Short: "Run the pods of manifests on this machine, without a cluster",
		Long: `Run the Pods of manifests, with their ConfigMaps and Secrets, on this machine. A manifest is a file, a directory of files,
or - for standard input.

Where an agent listens on the control socket, the pods are pushed to it. Else one is started here, with the container
runtime that is found, and ends with this command.

The command shows what the pods do and write. When all of them have run to their end (restartPolicy Never or OnFailure), it
ends with the exit code of the first container that failed. Ctrl-C stops the pods with their grace period and removes them
without trace; a second Ctrl-C leaves that to the next agent. With --keep they run on, also without an agent, and the next
"wherry run" looks after them again.

The same manifest again changes nothing while its pod runs. An edited one is a new pod, which begins when the old one has
ended. A changed ConfigMap or Secret is seen by the pods that mount it.`,
		Example: `  wherry run web.yaml
  wherry run --detach -f web.yaml -f config/
  generate-pod | wherry run -
  wherry run --container-runtime-endpoint simulated:// web.yaml`,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.files = append(o.files, args...)
			return o.run(cmd)
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringArrayVarP(&o.files, "filename", "f", nil, "a manifest, as an argument is one")
	fs.BoolVarP(&o.detach, "detach", "d", false, "push to an agent that runs, and end")
	fs.BoolVar(&o.wait, "wait", false, "with --detach: end when all pods are ready or have run to their end")
	fs.DurationVar(&o.timeout, "timeout", 0, "fail when the pods are not ready, or at their end, in this time; 0: wait on")
	fs.BoolVar(&o.keep, "keep", false, "leave the pods running at the end")
	fs.Int64VarP(&o.grace, "grace", "t", -1, "seconds that containers get to end; -1: what the manifest says")
	fs.BoolVarP(&o.quiet, "quiet", "q", false, "say nothing of progress")
	fs.BoolVar(&o.noLogs, "no-logs", false, "do not show what the containers write")
	fs.StringVar(&o.agent.socket, "socket", "", "the agent's control socket; default: WHERRY_SOCKET, then the usual places")
	fs.StringVar(&o.agent.runtime, "container-runtime-endpoint", "", "of an agent that is started: the container runtime, or simulated://; default: the first that is found")
	fs.StringVar(&o.agent.root, "root-dir", "", "of an agent that is started: where it keeps its state (/var/lib/wherry)")
	fs.StringVar(&o.agent.cgroupRoot, "cgroup-root", "/wherry", "of an agent that is started: the control group of its pods")
	fs.StringVar(&o.agent.nodeName, "node-name", "", "of an agent that is started: the node's name; default: the host's")
	fs.IntVarP(&o.agent.verbosity, "v", "v", 0, "of an agent that is started: log to standard error, this much; 0: to agent.log in its directory")
	return cmd
}

// runner is one wherry run.
type runner struct {
	*runOptions
	client  *client
	mine    *runningAgent // nil: the agent is somebody else's
	say     *lineWriter   // progress
	out     *lineWriter   // what containers write
	pods    []source.Pushed
	several bool              // pods were given
	seen    map[string]string // what was last said of each pod
	events  string            // up to where they have been said
	logs    sync.WaitGroup
}

func (o *runOptions) run(cmd *cobra.Command) error {
	ctx := cmd.Context()
	m, err := readManifests(o.files, cmd.InOrStdin())
	if err != nil {
		return err
	}
	r := &runner{runOptions: o, say: newLineWriter(cmd.ErrOrStderr()), out: newLineWriter(plainTerminal(cmd.OutOrStdout())), seen: map[string]string{}}
	for _, note := range m.notes {
		r.progress("%s", note)
	}
	if err := r.open(ctx, m); err != nil {
		return err
	}
	if r.mine != nil {
		defer r.agent.forgetNode()
		defer r.mine.stop()
	}
	r.sayEvents(ctx) // what was before is no news
	if err := r.push(ctx, m); err != nil {
		return err
	}
	if o.detach && !o.wait {
		return nil
	}
	if len(r.pods) == 0 {
		if r.mine == nil {
			return nil
		}
		return r.serve(ctx)
	}
	code, err := r.follow(ctx)
	if o.detach {
		if err == nil && code != 0 {
			err = exitStatus(code)
		}
		return err
	}
	if cleanErr := r.cleanUp(ctx); err == nil || ctx.Err() != nil {
		err = cleanErr
	}
	if err == nil && code != 0 {
		return exitStatus(code)
	}
	return err
}

func (r *runner) progress(format string, args ...any) {
	if !r.quiet {
		r.say.printf("%s", plain(fmt.Sprintf(format, args...)))
	}
}

// open finds an agent, or starts one.
func (r *runner) open(ctx context.Context, m *manifests) error {
	socket, err := findSocket(ctx, r.agent.socket)
	var none noAgent
	switch {
	case err == nil:
		r.client = newClient(socket)
		if r.agent.runtime != "" || r.agent.root != "" {
			r.progress("An agent listens on %s: --container-runtime-endpoint and --root-dir are its own.", socket)
		}
		return nil
	case !errors.As(err, &none):
		return err
	case r.detach:
		return fmt.Errorf("--detach: %w", err)
	case m.pods == 0 && len(m.all) > 0:
		return fmt.Errorf("there is no Pod among the manifests, and %w", err)
	}
	a := &r.agent
	if a.socket == "" {
		if a.socket = os.Getenv("WHERRY_SOCKET"); a.socket == "" {
			a.socket = runSocket()
		}
	}
	if a.root == "" {
		if a.root = "/var/lib/wherry"; os.Geteuid() != 0 {
			a.root = userDir()
		}
	}
	if a.runtime, err = findRuntime(ctx, a.runtime); err != nil {
		return err
	}
	if r.mine, err = a.start(ctx); err != nil {
		return err
	}
	r.client = newClient(a.socket)
	r.progress("Agent started on %s, socket %s.", a.runtime, a.socket)
	return nil
}

// push hands the manifests over and says what became of them.
func (r *runner) push(ctx context.Context, m *manifests) error {
	if len(m.all) == 0 {
		return nil
	}
	for {
		answer, err := r.client.push(ctx, "manifest", m.all)
		var a *answerError
		if errors.As(err, &a) && a.status == 503 { // it has not read its directory yet
			if err := sleep(ctx, pollEvery); err != nil {
				return err
			}
			continue
		}
		if err != nil {
			return err
		}
		for _, p := range answer.Items {
			name := strings.ToLower(p.Kind) + "/" + p.Name
			if r.detach && !r.quiet {
				r.out.printf("%s %s", name, p.Result)
			} else {
				r.progress("%s %s", name, p.Result)
			}
			if p.Kind == "Pod" {
				r.pods = append(r.pods, p)
			}
		}
		r.several = len(r.pods) > 1
		return nil
	}
}

// serve keeps the agent running for the pods that earlier ones have left.
func (r *runner) serve(ctx context.Context) error {
	pods, err := r.client.pods(ctx)
	if err != nil || len(pods) == 0 && len(r.files) > 0 {
		return err
	}
	r.progress("Looking after %d pods. Ctrl-C ends the agent; the pods run on.", len(pods))
	select {
	case <-ctx.Done():
		return nil
	case <-r.mine.ended:
		return r.mine.err
	}
}

// cleanUp ends what this command began, unless it is to be kept. It goes on when ctx has ended.
func (r *runner) cleanUp(ctx context.Context) error {
	if r.keep {
		for _, p := range r.pods {
			r.progress("pod/%s runs on", p.Name)
		}
		return nil
	}
	ctx = context.WithoutCancel(ctx)
	var pods []*v1.Pod
	for _, p := range r.pods {
		if p.Result == source.PushUnchanged && r.mine == nil {
			r.progress("pod/%s was here before and runs on", p.Name)
			continue
		}
		now, err := r.client.pod(ctx, p.Namespace, p.Name)
		if err != nil || now.UID != p.UID {
			continue // somebody has removed or replaced it
		}
		if runsAny(now) {
			r.progress("pod/%s stopping (up to %ds; Ctrl-C again leaves that to the next agent)", p.Name, graceOf(now, r.grace))
		}
		if err := r.client.end(ctx, now, graceArg(r.grace), true); err != nil {
			return err
		}
		pods = append(pods, now)
	}
	for _, p := range pods {
		for {
			_, err := r.client.pod(ctx, p.Namespace, p.Name)
			if isNotFound(err) {
				r.progress("pod/%s removed", p.Name)
				break
			}
			if err != nil {
				return err
			}
			if err := sleep(ctx, pollEvery); err != nil {
				return err
			}
		}
	}
	return nil
}

// graceOf is how long a pod may take to end.
func graceOf(p *v1.Pod, asked int64) int64 {
	if asked >= 0 {
		return asked
	}
	if s := p.Spec.TerminationGracePeriodSeconds; s != nil {
		return *s
	}
	return v1.DefaultTerminationGracePeriodSeconds
}
