package agent

import (
	"context"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/edge/cri"
	"github.com/wherry-node/wherry/internal/edge/trace"
	"github.com/wherry-node/wherry/internal/node/podworker"
)

// buildTracer creates the tracer (tracing) if the configuration keeps any traces.
func (a *Agent) buildTracer() error {
	dropped := prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "wherry_trace_spans_dropped_total", Help: "Spans of traces that the collector did not get, because it hung, was absent or was too slow",
	}, func() float64 { return float64(a.tracer.Load().Dropped()) })
	if err := a.deps.Metrics.Register(dropped); err != nil {
		return fmt.Errorf("register wherry_trace_spans_dropped_total: %w", err)
	}
	t := a.cfg.Kubelet.Tracing
	if t == nil || t.SamplingRatePerMillion == nil || *t.SamplingRatePerMillion <= 0 {
		return nil
	}
	send := a.deps.Traces
	if send == nil {
		endpoint := ""
		if t.Endpoint != nil {
			endpoint = *t.Endpoint
		}
		c, err := trace.Dial(endpoint)
		if err != nil {
			return err
		}
		a.opened.closes = append(a.opened.closes, func() { _ = c.Close() })
		send = c.Send
	}
	a.tracer.Store(trace.New(trace.Config{
		Send: send, PerMillion: *t.SamplingRatePerMillion, Version: a.cfg.KubeletVersion, Log: a.log,
		Resource: []trace.Attribute{{Key: "service.name", Value: "kubelet"}, {Key: "service.version", Value: a.cfg.KubeletVersion}, {Key: "k8s.node.name", Value: a.cfg.NodeName}},
	}))
	return nil
}

// tracedCalls returns the function that begins the span of a call to the runtime; nil: nothing is traced.
func (a *Agent) tracedCalls() cri.BeginCall {
	t := a.tracer.Load()
	if t == nil {
		return nil
	}
	return func(ctx context.Context, method string) (context.Context, func(error)) {
		ctx, span := t.Call(ctx, method)
		return ctx, span.End
	}
}

// traced wraps a performer so that each action is a span. Without a tracer it returns the performer itself.
func (a *Agent) traced(to podworker.Performer) podworker.Performer {
	if t := a.tracer.Load(); t != nil {
		return tracedPerformer{to, t}
	}
	return to
}

// tracedPerformer records each action as a span.
type tracedPerformer struct {
	to     podworker.Performer
	tracer *trace.Tracer
}

// Do performs an action.
func (t tracedPerformer) Do(ctx context.Context, job pod.Job) pod.Outcome {
	a := &job.Action
	first := false
	switch a.Op {
	case pod.OpSetUp, pod.OpPullImage, pod.OpRunSandbox:
		first = job.Observed == nil || len(job.Observed.Sandboxes) == 0
	case pod.OpTearDown, pod.OpForget:
		t.tracer.Gone(job.Ref.UID)
	case pod.OpNone, pod.OpStartContainer, pod.OpPostStart, pod.OpPreStop, pod.OpStopContainer, pod.OpStopSandbox, pod.OpResize,
		pod.OpRemoveContainer, pod.OpRemoveSandbox:
	}
	ctx, span := t.tracer.Action(ctx, job.Ref, a.Op.String(), first)
	span.Set("k8s.container.name", a.Container)
	span.Set("wherry.why", string(a.Why))
	out := t.to.Do(ctx, job)
	span.End(out.Err)
	return out
}
