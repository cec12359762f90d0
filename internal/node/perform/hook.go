package perform

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/edge/probe"
)

// HTTPDoer sends the request of a hook.
type HTTPDoer interface {
	Do(*http.Request) (*http.Response, error)
}

// postStart runs a container's postStart hook. Kubernetes' documentation says: "If either a PostStart or PreStop hook fails, it kills the
// Container." postStart itself only returns the outcome; the next decision kills the container.
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

// hookOverrun is how long a preStop hook may continue after the grace period, while StopContainer ends its container. It is
// longer than a runtime takes for StopContainer. The decision cancels the hook when the container has ended.
const hookOverrun = 10 * time.Second

// preStop runs a container's preStop hook. The hook may run longer than the grace period of the action: then StopContainer runs
// at the same time.
func (x *Performer) preStop(ctx context.Context, job pod.Job) pod.Outcome {
	c, err := container(job.Pod, job.Action.Container)
	if err != nil {
		c, err = x.remembered(ctx, job.Action)
	}
	if err != nil {
		return failed("PreStopHookError", err)
	}
	if c.Lifecycle == nil || c.Lifecycle.PreStop == nil {
		return pod.Outcome{ID: job.Action.ID}
	}
	x.recordKilling(job)
	x.announced.add(job.Action.ID)
	limit := min(job.Action.Grace, math.MaxInt64-hookOverrun) + hookOverrun
	within, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if err := x.hook(within, job, c, c.Lifecycle.PreStop, limit); err != nil {
		// If ctx has ended, the container has ended too. A sleep that ends early is then no failure.
		if c.Lifecycle.PreStop.Sleep == nil || ctx.Err() == nil {
			x.event(job, v1.EventTypeWarning, "FailedPreStopHook", "PreStopHook failed: %v", err)
		}
		o := failed("PreStopHookError", err)
		o.ID = job.Action.ID
		return o
	}
	return pod.Outcome{ID: job.Action.ID}
}

// remembered returns the part of a container's spec that is in the annotations of the container. It is for pods whose object is gone.
func (x *Performer) remembered(ctx context.Context, a pod.Action) (*v1.Container, error) {
	st, err := x.cfg.CRI.ContainerStatus(ctx, a.ID)
	if err != nil {
		return nil, err
	}
	c := &v1.Container{Name: a.Container}
	hook, ports := st.GetAnnotations()[pod.AnnotationPreStop], st.GetAnnotations()[pod.AnnotationPorts]
	if hook != "" {
		c.Lifecycle = &v1.Lifecycle{PreStop: &v1.LifecycleHandler{}}
		if err := json.Unmarshal([]byte(hook), c.Lifecycle.PreStop); err != nil {
			return nil, fmt.Errorf("read annotation %s of container %s: %w", pod.AnnotationPreStop, a.ID, err)
		}
	}
	if ports != "" {
		if err := json.Unmarshal([]byte(ports), &c.Ports); err != nil {
			return nil, fmt.Errorf("read annotation %s of container %s: %w", pod.AnnotationPorts, a.ID, err)
		}
	}
	return c, nil
}

// hook runs one hook. limit is how long the runtime lets the command of an exec hook run; 0: without limit.
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
			x.cfg.Meter.SleepCut()
			return fmt.Errorf("sleep %d s: %w", h.Sleep.Seconds, context.Cause(ctx))
		}
	}
	return fmt.Errorf("the hook has no action: it needs exec, httpGet or sleep")
}

// httpHook sends the request of an httpGet hook. Any answer is a success.
func (x *Performer) httpHook(ctx context.Context, job pod.Job, c *v1.Container, g *v1.HTTPGetAction) error {
	host := g.Host
	if host == "" {
		ips := podIPs(job.Observed, x.cfg.Facts().HostIPs, job.Pod)
		if len(ips) == 0 {
			return fmt.Errorf("httpGet: the pod has no address")
		}
		host = ips[0]
	}
	req, err := probe.HTTPRequest(ctx, g, c, host, "kube-lifecycle/1.36")
	if err != nil {
		return fmt.Errorf("httpGet: %w", err)
	}
	resp, err := x.cfg.HTTP.Do(req)
	if errors.Is(err, http.ErrSchemeMismatch) { // an HTTPS hook whose server speaks HTTP
		plain := req.Clone(ctx)
		plain.URL.Scheme = "http"
		plain.Header.Del("Authorization")
		if resp, err = x.cfg.HTTP.Do(plain); err == nil {
			x.cfg.Meter.HookFellBack()
			x.event(job, v1.EventTypeWarning, "LifecycleHTTPFallback", "request to HTTPS lifecycle hook %s got HTTP response, retry with HTTP succeeded", req.URL.Host)
		}
	}
	if err != nil {
		return fmt.Errorf("httpGet: %w", err)
	}
	return resp.Body.Close()
}

// firstLine returns the first line of a command's output, with a bounded length.
func firstLine(b []byte) string {
	b = bytes.TrimSpace(b)
	b = b[:min(len(b), 2*pod.TextBytes)]
	s, _, _ := strings.Cut(string(b), "\n")
	return pod.Text(s)
}
