package agenttest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	v1 "k8s.io/api/core/v1"
	tracingapi "k8s.io/component-base/tracing/api/v1"

	"github.com/wherry-node/wherry/agent"
	"github.com/wherry-node/wherry/internal/sim/simcri"
)

// traceSink stores the trace spans that an agent exports.
type traceSink struct {
	mu    sync.Mutex
	spans []sentSpan
}

// sentSpan has those fields of an OTLP span that the tests check.
type sentSpan struct{ trace, id, parent, name string }

func (s *traceSink) send(_ context.Context, request []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, resource := range fieldsOf(request)[1] {
		for _, scope := range fieldsOf(resource)[2] {
			for _, span := range fieldsOf(scope)[2] {
				f := fieldsOf(span)
				parent := ""
				if len(f[4]) > 0 {
					parent = string(f[4][0])
				}
				s.spans = append(s.spans, sentSpan{string(f[1][0]), string(f[2][0]), parent, string(f[5][0])})
			}
		}
	}
	return nil
}

// fieldsOf returns the fields of a protobuf message that contain bytes, by field number.
func fieldsOf(b []byte) map[protowire.Number][][]byte {
	out := map[protowire.Number][][]byte{}
	for len(b) > 0 {
		n, kind, size := protowire.ConsumeTag(b)
		b = b[size:]
		if kind == protowire.BytesType {
			v, _ := protowire.ConsumeBytes(b)
			out[n] = append(out[n], v)
		}
		b = b[protowire.ConsumeFieldValue(n, kind, b):]
	}
	return out
}

// tree returns the trace whose first span has the name root: one span per line, indented by depth, and sorted by name below each parent.
func (s *traceSink) tree(root string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var b strings.Builder
	var below func(parent sentSpan, depth int)
	below = func(parent sentSpan, depth int) {
		fmt.Fprintf(&b, "%s%s\n", strings.Repeat("  ", depth), parent.name)
		var children []sentSpan
		for _, c := range s.spans {
			if c.parent == parent.id && c.trace == parent.trace {
				children = append(children, c)
			}
		}
		slices.SortFunc(children, func(a, b sentSpan) int { return strings.Compare(a.name, b.name) })
		for _, c := range children {
			below(c, depth+1)
		}
	}
	for _, span := range s.spans {
		if span.parent == "" && span.name == root {
			below(span, 0)
		}
	}
	return b.String()
}

func (s *traceSink) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.spans)
}

// tracing returns a configuration with tracing.samplingRatePerMillion set to perMillion. The agent sends its spans to sink.
func tracing(sink *traceSink, perMillion int32) Config {
	return Config{
		Agent: func(c *agent.Config) {
			c.Kubelet.Tracing = &tracingapi.TracingConfiguration{SamplingRatePerMillion: &perMillion}
		},
		Deps: func(d *agent.Deps) { d.Traces = sink.send },
	}
}

// The start of a pod is one trace: each action has below it the calls to the runtime that it makes. A restart is a trace of its own.
func TestTraces(t *testing.T) {
	t.Parallel()
	sink := &traceSink{}
	// with this samplingRatePerMillion every trace is kept
	Run(t, tracing(sink, 1_000_000), func(w *World) {
		time.Sleep(time.Second) // by then the agent has the Services of the cluster, so that the start does not wait for them
		w.Create(Pod("a"))
		w.WaitReady("a")
		time.Sleep(10 * time.Second)
		want := `pod start
  pull-image
    ImageStatus
    ImageStatus
    PullImage
  run-sandbox
    RunPodSandbox
  set-up
  start-container
    CreateContainer
    ImageStatus
    StartContainer
`
		if got := sink.tree("pod start"); got != want {
			t.Errorf("the trace is\n%swant\n%s", got, want)
		}
		w.Kill("a", "main", 1, "Error")
		time.Sleep(time.Minute)
		if got := sink.tree("start-container"); !strings.Contains(got, "  CreateContainer\n") {
			t.Errorf("the trace of a restart is\n%s", got)
		}
	})
}

// A pod that never runs has a trace, too; it ends when nothing of the pod is left. Without samplingRatePerMillion nothing is sent.
func TestTraceOfAPodThatNeverRuns(t *testing.T) {
	t.Parallel()
	sink := &traceSink{}
	Run(t, tracing(sink, 1_000_000), func(w *World) {
		w.Runtime.Inject(simcri.Fault{Method: "PullImage", Pod: "", Times: 1000})
		w.Create(Pod("a", func(p *v1.Pod) { p.Spec.Containers[0].Image = "registry.example/none:1" }))
		time.Sleep(time.Minute)
		if got := sink.tree("pod start"); got != "" {
			t.Errorf("before the pod's end there is\n%s", got)
		}
		w.Delete("a", -1)
		w.WaitGone("a")
		time.Sleep(10 * time.Second)
		if got := sink.tree("pod start"); !strings.HasPrefix(got, "pod start\n  pull-image\n") {
			t.Errorf("after it there is\n%s", got)
		}
	})
	off := &traceSink{}
	Run(t, tracing(off, 0), func(w *World) {
		w.Create(Pod("a"))
		w.WaitReady("a")
		time.Sleep(time.Minute)
		if n := off.count(); n != 0 {
			t.Errorf("%d spans with a rate of 0", n)
		}
	})
}
