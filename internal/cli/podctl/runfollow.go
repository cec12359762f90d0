package podctl

import (
	"context"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/internal/edge/push"
)

// follow prints the progress of the pods until all have run to their end or ctx ends.
func (r *runner) follow(ctx context.Context) (code int, err error) {
	logs, stopLogs := context.WithCancel(ctx)
	defer func() { stopLogs(); r.logs.Wait() }()
	if !r.NoLogs && !r.Detach {
		r.followLogs(logs)
	}
	wait := ctx
	if r.Timeout > 0 {
		var cancel context.CancelFunc
		wait, cancel = context.WithTimeout(ctx, r.Timeout)
		defer cancel()
	}
	up := false
	for {
		r.sayEvents(ctx)
		pods, err := r.current(ctx)
		if err != nil {
			return 0, err
		}
		ready, done := 0, 0
		for _, p := range pods {
			r.sayPod(p)
			ended, c := completed(p)
			if ended {
				done++
				if code == 0 {
					code = c
				}
			}
			if ended || isReady(p) {
				ready++
			}
		}
		switch {
		case len(pods) == 0:
			if r.mine != nil {
				return 0, r.serve(ctx) // other commands may have added pods, so the agent stays
			}
			return 0, nil
		case done == len(r.pods):
			r.drainLogs(stopLogs)
			return code, nil
		case ready == len(r.pods) && r.Detach:
			return 0, nil
		case ready == len(r.pods) && !up:
			up, wait = true, ctx
			r.sayUp(pods)
		}
		code = 0
		if err := sleep(wait, pollEvery); err != nil {
			if ctx.Err() != nil {
				return 0, ctx.Err()
			}
			return 0, r.late(pods)
		}
	}
}

// current returns the pods of this command in their present state.
func (r *runner) current(ctx context.Context) ([]*v1.Pod, error) {
	all, err := r.client.pods(ctx)
	if err != nil {
		if r.mine != nil {
			select {
			case <-r.mine.Ended():
				return nil, fmt.Errorf("the agent has ended: %w", r.mine.Err())
			default:
			}
		}
		return nil, err
	}
	var out []*v1.Pod
	var kept []push.Pushed
	for _, mine := range r.pods {
		i := slices.IndexFunc(all, func(p v1.Pod) bool { return p.Namespace == mine.Namespace && p.Name == mine.Name })
		if i < 0 {
			r.progress("pod/%s was removed", mine.Name)
			continue
		}
		if all[i].UID != mine.UID {
			r.progress("pod/%s was replaced", mine.Name)
			mine.UID = all[i].UID
		}
		out, kept = append(out, &all[i]), append(kept, mine)
	}
	r.pods = kept
	return out, nil
}

// sayPod prints a pod's status and ready containers, as in wherry ps, if they have changed since the last call.
func (r *runner) sayPod(p *v1.Pod) {
	line := fmt.Sprintf("%s %s", statusOf(p), readyOf(p))
	if r.seen[string(p.UID)] == line {
		return
	}
	r.seen[string(p.UID)] = line
	if text := troubleOf(p); text != "" {
		line += ": " + text
	}
	r.progress("pod/%s %s", p.Name, line)
}

// sayEvents prints new events about the pods of this command: warnings and pulls.
func (r *runner) sayEvents(ctx context.Context) {
	if r.events == "" {
		r.events = "0"
	}
	events, next, err := r.client.events(ctx, r.events, 0)
	if err != nil { // a node of a cluster sends its events to the API server
		return
	}
	r.events = next
	for i := range events {
		e := &events[i]
		mine := slices.ContainsFunc(r.pods, func(p push.Pushed) bool { return p.UID == e.InvolvedObject.UID })
		if mine && (e.Type == v1.EventTypeWarning || e.Reason == "Pulling" || e.Reason == "Pulled") && e.Count == 1 {
			r.progress("pod/%s %s: %s", e.InvolvedObject.Name, e.Reason, strings.TrimSpace(e.Message))
		}
	}
}

func (r *runner) sayUp(pods []*v1.Pod) {
	for _, p := range pods {
		where := p.Status.PodIP
		if ports := portsOf(p); ports != "" {
			where += ", ports " + ports
		}
		if done, _ := completed(p); !done {
			r.progress("pod/%s is up at %s", p.Name, where)
		}
	}
	theirs := func(p push.Pushed) bool { return p.Result == push.Unchanged && r.mine == nil }
	if r.Keep || !slices.ContainsFunc(r.pods, func(p push.Pushed) bool { return !theirs(p) }) {
		r.progress("Ctrl-C leaves them running.")
		return
	}
	r.progress("Ctrl-C stops and removes them.")
}

// late returns the error for a timeout: which pods are not ready, and why.
func (r *runner) late(pods []*v1.Pod) error {
	var lines []string
	for _, p := range pods {
		if done, _ := completed(p); !done && !isReady(p) {
			line := fmt.Sprintf("pod/%s is %s %s", p.Name, statusOf(p), readyOf(p))
			if text := troubleOf(p); text != "" {
				line += ": " + text
			}
			lines = append(lines, line)
		}
	}
	return fmt.Errorf("after %s not all pods are ready:\n%s", r.Timeout, strings.Join(lines, "\n"))
}
