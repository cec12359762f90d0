package perform

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/wherry-node/wherry/internal/pod"
)

// HTTPDoer sends a hook's request.
type HTTPDoer interface {
	Do(*http.Request) (*http.Response, error)
}

// postStart runs a container's postStart hook. "If either a PostStart or PreStop hook fails, it kills the
// Container": the decision does that, here is only the outcome.
func (x *Performer) postStart(ctx context.Context, job pod.Job) pod.Outcome {
	c, err := container(job.Pod, job.Action.Container)
	if err != nil {
		return failed("PostStartHookError", err)
	}
	if c.Lifecycle == nil || c.Lifecycle.PostStart == nil {
		return pod.Outcome{ID: job.Action.ID}
	}
	if err := x.hook(ctx, job, c, c.Lifecycle.PostStart, 0); err != nil {
		x.event(job, v1.EventTypeWarning, "FailedPostStartHook", "PostStartHook failed: %v", err)
		o := failed("PostStartHookError", err)
		o.ID = job.Action.ID
		return o
	}
	return pod.Outcome{ID: job.Action.ID}
}

// preStop runs a container's preStop hook for at most the grace that the decision gives it.
func (x *Performer) preStop(ctx context.Context, job pod.Job) pod.Outcome {
	c, err := container(job.Pod, job.Action.Container)
	if err != nil {
		return failed("PreStopHookError", err)
	}
	if c.Lifecycle == nil || c.Lifecycle.PreStop == nil {
		return pod.Outcome{ID: job.Action.ID}
	}
	ctx, cancel := context.WithTimeout(ctx, job.Action.Grace)
	defer cancel()
	if err := x.hook(ctx, job, c, c.Lifecycle.PreStop, job.Action.Grace); err != nil {
		x.event(job, v1.EventTypeWarning, "FailedPreStopHook", "PreStopHook failed: %v", err)
		o := failed("PreStopHookError", err)
		o.ID = job.Action.ID
		return o
	}
	return pod.Outcome{ID: job.Action.ID}
}

func (x *Performer) hook(ctx context.Context, job pod.Job, c *v1.Container, h *v1.LifecycleHandler, limit time.Duration) error {
	switch {
	case h.Exec != nil:
		_, stderr, code, err := x.cfg.CRI.ExecSync(ctx, job.Action.ID, h.Exec.Command, limit)
		if err != nil {
			return fmt.Errorf("exec %q: %w", h.Exec.Command, err)
		}
		if code != 0 {
			return fmt.Errorf("exec %q: exit code %d: %s", h.Exec.Command, code, firstLine(stderr))
		}
		return nil
	case h.HTTPGet != nil:
		return x.httpHook(ctx, job, c, h.HTTPGet)
	case h.Sleep != nil:
		t := time.NewTimer(time.Duration(h.Sleep.Seconds) * time.Second)
		defer t.Stop()
		select {
		case <-t.C:
			return nil
		case <-ctx.Done():
			return fmt.Errorf("sleep %d s: %w", h.Sleep.Seconds, context.Cause(ctx))
		}
	}
	return fmt.Errorf("the hook has no exec, httpGet or sleep")
}

func (x *Performer) httpHook(ctx context.Context, job pod.Job, c *v1.Container, g *v1.HTTPGetAction) error {
	host := g.Host
	if host == "" {
		ips := podIPs(job.Observed, x.cfg.Facts().HostIPs, job.Pod)
		if len(ips) == 0 {
			return fmt.Errorf("httpGet: the pod has no address")
		}
		host = ips[0]
	}
	port, err := portOf(g.Port, c)
	if err != nil {
		return fmt.Errorf("httpGet: %w", err)
	}
	scheme := strings.ToLower(string(g.Scheme))
	if scheme == "" {
		scheme = "http"
	}
	path, query, _ := strings.Cut(g.Path, "?")
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, scheme+"://"+net.JoinHostPort(host, strconv.Itoa(port))+"/", nil)
	if err != nil {
		return fmt.Errorf("httpGet: %w", err)
	}
	req.URL.Path, req.URL.RawQuery = "/"+strings.TrimPrefix(path, "/"), query
	for _, h := range g.HTTPHeaders {
		if strings.EqualFold(h.Name, "host") {
			req.Host = h.Value
			continue
		}
		req.Header.Add(h.Name, h.Value)
	}
	resp, err := x.cfg.HTTP.Do(req)
	if err != nil {
		return fmt.Errorf("httpGet: %w", err)
	}
	return resp.Body.Close()
}

// portOf resolves a port that may be the name of one of the container's ports.
func portOf(p intstr.IntOrString, c *v1.Container) (int, error) {
	n := p.IntValue()
	if p.Type == intstr.String && n == 0 {
		for i := range c.Ports {
			if c.Ports[i].Name == p.StrVal {
				return int(c.Ports[i].ContainerPort), nil
			}
		}
		return 0, fmt.Errorf("port %q is not a port of container %s", p.StrVal, c.Name)
	}
	if n < 1 || n > 65535 {
		return 0, fmt.Errorf("port %s is not between 1 and 65535", p.String())
	}
	return n, nil
}

func firstLine(b []byte) string {
	s, _, _ := strings.Cut(strings.TrimSpace(string(b)), "\n")
	return s
}
