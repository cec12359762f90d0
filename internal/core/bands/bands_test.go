package bands_test

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/wherry-node/wherry/internal/core/bands"
	"github.com/wherry-node/wherry/internal/core/decide"
	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/core/timeline"
)

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// input returns the input of a decision about a pod of two containers, and an empty plan, after change has modified both.
func input(change func(*decide.Input, *decide.Plan)) (*decide.Input, *decide.Plan) {
	in := &decide.Input{
		Pod:    &v1.Pod{Spec: v1.PodSpec{RestartPolicy: v1.RestartPolicyAlways, Containers: []v1.Container{{Name: "a"}, {Name: "b"}}}},
		Memory: &decide.Memory{}, Observed: &pod.Observed{}, Now: now,
	}
	plan := &decide.Plan{}
	change(in, plan)
	return in, plan
}

func has(in *decide.Input, name string, state pod.ContainerState, exit int32) {
	in.Observed.Containers = append(in.Observed.Containers, pod.Container{ID: "id-" + name, Name: name, State: state, ExitCode: exit})
}

func TestNow(t *testing.T) {
	t.Parallel()
	readiness := &v1.Probe{}
	for name, c := range map[string]struct {
		change func(in *decide.Input, plan *decide.Plan)
		want   timeline.Band
	}{
		"nothing of the pod exists": {func(*decide.Input, *decide.Plan) {}, timeline.BandWaiting},
		"a pull begins":             {func(_ *decide.Input, p *decide.Plan) { p.Do = []pod.Action{{Op: pod.OpPullImage, Container: "a"}} }, timeline.BandPulling},
		"a pull is in flight":       {func(in *decide.Input, _ *decide.Plan) { in.InFlight = []pod.Action{{Op: pod.OpPullImage}} }, timeline.BandPulling},
		"a pull comes before a set-up": {func(in *decide.Input, _ *decide.Plan) {
			in.InFlight = []pod.Action{{Op: pod.OpSetUp}, {Op: pod.OpPullImage}}
		}, timeline.BandPulling},
		"a sandbox is made":          {func(in *decide.Input, _ *decide.Plan) { in.InFlight = []pod.Action{{Op: pod.OpRunSandbox}} }, timeline.BandStarting},
		"one of two containers runs": {func(in *decide.Input, _ *decide.Plan) { has(in, "a", pod.StateRunning, 0) }, timeline.BandWaiting},
		"both containers run": {func(in *decide.Input, _ *decide.Plan) {
			has(in, "a", pod.StateRunning, 0)
			has(in, "b", pod.StateRunning, 0)
		}, timeline.BandReady},
		"volumes refreshed while ready": {func(in *decide.Input, p *decide.Plan) {
			has(in, "a", pod.StateRunning, 0)
			has(in, "b", pod.StateRunning, 0)
			p.Do = []pod.Action{{Op: pod.OpSetUp}}
		}, timeline.BandReady},
		"a readiness probe without a result": {func(in *decide.Input, _ *decide.Plan) {
			has(in, "a", pod.StateRunning, 0)
			has(in, "b", pod.StateRunning, 0)
			in.Pod.Spec.Containers[1].ReadinessProbe = readiness
		}, timeline.BandRunning},
		"a readiness probe that succeeds": {func(in *decide.Input, _ *decide.Plan) {
			has(in, "a", pod.StateRunning, 0)
			has(in, "b", pod.StateRunning, 0)
			in.Pod.Spec.Containers[1].ReadinessProbe = readiness
			in.Probed = decide.ProbeResults{{Name: "b", ID: "id-b", Started: true, Ready: true}}
		}, timeline.BandReady},
		"an agent that has begun anew believes the status of the same instance": {func(in *decide.Input, _ *decide.Plan) {
			has(in, "a", pod.StateRunning, 0)
			has(in, "b", pod.StateRunning, 0)
			in.Pod.Spec.Containers[1].ReadinessProbe = readiness
			in.Pod.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "b", Ready: true, ContainerID: "sim://id-b"}}
		}, timeline.BandReady},
		"a container waits for its back-off": {func(in *decide.Input, _ *decide.Plan) {
			has(in, "a", pod.StateRunning, 0)
			has(in, "b", pod.StateExited, 3)
			in.Memory.Containers = []decide.ContainerMemory{{Name: "b", ContainerSettled: decide.ContainerSettled{CrashUntil: now.Add(time.Second)}}}
		}, timeline.BandFailing},
		"a back-off that is over": {func(in *decide.Input, _ *decide.Plan) {
			in.Memory.Containers = []decide.ContainerMemory{{Name: "b", ContainerSettled: decide.ContainerSettled{CrashUntil: now}}}
		}, timeline.BandWaiting},
		"an image that could not be pulled": {func(in *decide.Input, _ *decide.Plan) {
			in.Memory.Containers = []decide.ContainerMemory{{Name: "b", ContainerTries: decide.ContainerTries{PullUntil: now.Add(time.Second)}}}
		}, timeline.BandFailing},
		"a set-up that failed": {func(in *decide.Input, _ *decide.Plan) {
			in.Memory.Retry = []decide.Retry{{Op: pod.OpSetUp, Until: now.Add(time.Second)}}
		}, timeline.BandFailing},
		"an init container runs": {func(in *decide.Input, _ *decide.Plan) {
			in.Pod.Spec.InitContainers = []v1.Container{{Name: "i"}}
			has(in, "i", pod.StateRunning, 0)
		}, timeline.BandStarting},
		"one has completed, one runs": {func(in *decide.Input, _ *decide.Plan) {
			in.Pod.Spec.RestartPolicy = v1.RestartPolicyOnFailure
			has(in, "a", pod.StateExited, 0)
			has(in, "b", pod.StateRunning, 0)
		}, timeline.BandReady},
		"the pod ends":          {func(_ *decide.Input, p *decide.Plan) { p.Phase = decide.PhaseStopping }, timeline.BandEnding},
		"no source has the pod": {func(in *decide.Input, _ *decide.Plan) { in.Pod = nil }, timeline.BandEnding},
		"all containers have completed": {func(in *decide.Input, p *decide.Plan) {
			has(in, "a", pod.StateExited, 0)
			has(in, "b", pod.StateExited, 0)
			p.Finished = true
		}, timeline.BandEnded},
		"a container has failed for good": {func(in *decide.Input, p *decide.Plan) {
			has(in, "a", pod.StateExited, 0)
			has(in, "b", pod.StateExited, 1)
			p.Finished = true
		}, timeline.BandFailed},
		"the node ended the pod": {func(in *decide.Input, p *decide.Plan) { in.Memory.Stop = &decide.Stop{}; p.Phase = decide.PhaseStopped }, timeline.BandFailed},
		"a deleted pod": {func(in *decide.Input, p *decide.Plan) {
			in.Pod.DeletionTimestamp = &metav1.Time{Time: now}
			has(in, "a", pod.StateExited, 137)
			p.Phase = decide.PhaseStopped
		}, timeline.BandEnded},
	} {
		in, plan := input(c.change)
		if got := bands.Now(in, plan); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

func TestSpans(t *testing.T) {
	t.Parallel()
	at := func(ms int) time.Time { return now.Add(time.Duration(ms) * time.Millisecond) }
	decision := func(ms int, b timeline.Band, why string) timeline.Record {
		return timeline.Record{At: at(ms), Kind: timeline.KindDecision, Band: b, Why: why}
	}
	failed := func(ms int, text string) timeline.Record {
		return timeline.Record{At: at(ms), Kind: timeline.KindEnded, What: "pull-image a", Error: text}
	}
	for name, c := range map[string]struct {
		records []timeline.Record
		want    []bands.Span
	}{
		"no record":                  {nil, nil},
		"records without a decision": {[]timeline.Record{failed(0, "x")}, nil},
		"one band, its last reason": {
			[]timeline.Record{decision(0, timeline.BandWaiting, "one"), decision(500, timeline.BandWaiting, "two")},
			[]bands.Span{{Band: timeline.BandWaiting, From: at(0), Why: "two"}},
		},
		"bands follow each other": {
			[]timeline.Record{decision(0, timeline.BandPulling, "image"), decision(500, timeline.BandReady, "well")},
			[]bands.Span{{Band: timeline.BandPulling, From: at(0), To: at(500), Why: "image"}, {Band: timeline.BandReady, From: at(500), Why: "well"}},
		},
		"a short band at the beginning is left out": {
			[]timeline.Record{decision(0, timeline.BandPulling, ""), decision(3, timeline.BandReady, "well")},
			[]bands.Span{{Band: timeline.BandReady, From: at(0), Why: "well"}},
		},
		"a short band between two equal ones joins them": {
			[]timeline.Record{decision(0, timeline.BandReady, ""), decision(500, timeline.BandPulling, ""), decision(501, timeline.BandReady, "well")},
			[]bands.Span{{Band: timeline.BandReady, From: at(0), Why: "well"}},
		},
		"short trouble stays, with the error that led to it": {
			[]timeline.Record{decision(0, timeline.BandPulling, ""), failed(400, "no such image"), decision(400, timeline.BandFailing, "back-off"), decision(401, timeline.BandPulling, "again")},
			[]bands.Span{
				{Band: timeline.BandPulling, From: at(0), To: at(400)}, {Band: timeline.BandFailing, From: at(400), To: at(401), Why: "no such image"},
				{Band: timeline.BandPulling, From: at(401), Why: "again"},
			},
		},
	} {
		got := bands.Spans(c.records)
		if len(got) != len(c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
			continue
		}
		for i := range got {
			if got[i] != c.want[i] {
				t.Errorf("%s: span %d is %+v, want %+v", name, i, got[i], c.want[i])
			}
		}
	}
}

// FuzzSpans makes spans of arbitrary records, and checks that the spans are in order and leave no gap.
func FuzzSpans(f *testing.F) {
	f.Add([]byte{1, 10, 2, 1, 5, 200, 6, 1, 1, 3})
	f.Fuzz(func(t *testing.T, data []byte) {
		at := now
		var records []timeline.Record
		for i := 0; i+1 < len(data); i += 2 {
			at = at.Add(time.Duration(data[i+1]) * time.Millisecond)
			records = append(records, timeline.Record{At: at, Band: timeline.Band(data[i] % 10)})
		}
		spans := bands.Spans(records)
		for i, s := range spans {
			last := i == len(spans)-1
			if s.To.IsZero() != last || !last && (s.To.Before(s.From) || !spans[i+1].From.Equal(s.To) || spans[i+1].Band == s.Band) {
				t.Fatalf("span %d of %+v", i, spans)
			}
		}
	})
}
