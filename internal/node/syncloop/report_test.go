package syncloop

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/core/decide"
	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/edge/status"
	"github.com/wherry-node/wherry/internal/node/podworker"
)

func TestEndsAreCountedOnce(t *testing.T) {
	t.Parallel()
	end := func(id string, code int32) v1.ContainerState {
		return v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ContainerID: id, ExitCode: code, Reason: "Error"}}
	}
	running := v1.ContainerState{Running: &v1.ContainerStateRunning{}}
	one := func(state, last v1.ContainerState) []v1.ContainerStatus {
		return []v1.ContainerStatus{{Name: "other", State: running}, {Name: "main", State: state, LastTerminationState: last}}
	}
	none := v1.ContainerState{}
	for _, tt := range []struct {
		name          string
		before, after []v1.ContainerStatus
		want          []string
	}{
		{"runs", nil, one(running, none), nil},
		{"ended", one(running, none), one(end("a", 139), none), []string{"container 139 Error"}},
		{"ended before the first look", nil, one(end("a", 139), none), []string{"container 139 Error"}},
		{"still ended", one(end("a", 139), none), one(end("a", 139), none), nil},
		{"runs again", one(end("a", 139), none), one(running, end("a", 139)), nil},
		{"ended and runs again between two looks", one(running, none), one(running, end("a", 1)), []string{"container 1 Error"}},
		{"ended twice", one(running, none), one(end("b", 2), end("a", 1)), []string{"container 1 Error", "container 2 Error"}},
		{"ended again", one(running, end("a", 1)), one(end("b", 2), end("a", 1)), []string{"container 2 Error"}},
		{"an end that nobody saw has no ID", nil, one(end("", 137), none), nil},
	} {
		var got []string
		countEnds(tt.before, tt.after, "container", func(kind string, code int32, reason string) {
			got = append(got, fmt.Sprintf("%s %d %s", kind, code, reason))
		})
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

// The end of a pod is reported to the source of pushed pods only if the pod was pushed. A node of a cluster sees the ends of many
// other pods.
func TestOnlyEndsOfPushedPodsAreReportedToTheirSource(t *testing.T) {
	t.Parallel()
	for source, want := range map[pod.Source]int{pod.SourceAPI: 0, pod.SourceFile: 0, pod.SourcePush: 1} {
		ended := 0
		r := NewReport(ReportConfig{Recorder: &bare{}, Mirror: func(*v1.Pod) *v1.Pod { return nil }, RuntimeName: func() string { return "" },
			HostIPs: func() []string { return nil }, RecursiveReadOnly: func(*v1.Pod) bool { return false }, Ended: func(types.UID) { ended++ }})
		p := named("web")
		p.DeletionTimestamp = new(metav1.Now())
		r.Turn(&podworker.Turn{Ref: pod.RefOf(p), Pod: p, Desired: p, Source: source, Observed: &pod.Observed{}, Memory: &decide.Memory{},
			Plan: &decide.Plan{Phase: decide.PhaseStopped}, Now: time.Now()})
		if ended != want {
			t.Errorf("%v: ended %d times, want %d", source, ended, want)
		}
	}
}

func TestTheEndOfAnActiveDeadlineIsAnEvent(t *testing.T) {
	t.Parallel()
	b := &bare{}
	r := NewReport(ReportConfig{Recorder: b, Mirror: func(*v1.Pod) *v1.Pod { return nil }, RuntimeName: func() string { return "" },
		HostIPs: func() []string { return nil }, RecursiveReadOnly: func(*v1.Pod) bool { return false }})
	turn := func(stop *decide.Stop) {
		r.Turn(&podworker.Turn{Pod: &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u"}}, Observed: &pod.Observed{}, Memory: &decide.Memory{}, Plan: &decide.Plan{Stop: stop}, Now: time.Unix(1, 0)})
	}
	turn(&decide.Stop{Reason: "Evicted", Message: "the node is low on memory"}) // the code that evicts the pod records the event for this reason
	turn(&decide.Stop{Reason: decide.ReasonDeadlineExceeded, Message: decide.MessageDeadlineExceeded})
	turn(nil)
	if len(b.events) != 1 || !strings.Contains(b.events[0], "DeadlineExceeded") {
		t.Errorf("events %q, want one of DeadlineExceeded", b.events)
	}
}

// statuses is a StatusWriter that keeps the statuses that it gets.
type statuses struct{ states []string }

func (w *statuses) Forget(types.UID) {}

func (w *statuses) Set(d status.Desired) {
	s := d.Status.ContainerStatuses[0].State
	switch {
	case s.Running != nil:
		w.states = append(w.states, string(d.Pod.UID)+" running")
	case s.Terminated != nil:
		w.states = append(w.states, string(d.Pod.UID)+" terminated")
	}
}

// The mirror shows how a static pod ends after its manifest is gone.
func TestAMirrorShowsTheEnd(t *testing.T) {
	t.Parallel()
	for source, want := range map[pod.Source][]string{
		pod.SourceFile: {"mirror running", "mirror running", "mirror terminated"},
		pod.SourceAPI:  {"web running"},
	} {
		w := &statuses{}
		mirror := named("mirror")
		mirror.ResourceVersion = "1"
		r := NewReport(ReportConfig{Writer: w, Recorder: &bare{}, Mirror: func(*v1.Pod) *v1.Pod { return mirror }, RuntimeName: func() string { return "" },
			HostIPs: func() []string { return nil }, RecursiveReadOnly: func(*v1.Pod) bool { return false }})
		p := named("web")
		p.Annotations = map[string]string{pod.AnnotationSource: source.String()}
		turn := func(p *v1.Pod, state pod.ContainerState, plan decide.Plan) {
			from := source
			if p == nil {
				from = pod.SourceNone
			}
			r.Turn(&podworker.Turn{Ref: pod.Ref{UID: "web"}, Pod: p, Desired: p, Source: from, Memory: &decide.Memory{}, Plan: &plan, Now: time.Unix(1, 0),
				Observed: &pod.Observed{Containers: []pod.Container{{ID: "1", Name: "c", State: state}}}})
		}
		turn(p, pod.StateRunning, decide.Plan{})
		turn(nil, pod.StateRunning, decide.Plan{Ending: true, Phase: decide.PhaseStopping})
		turn(nil, pod.StateExited, decide.Plan{Ending: true, Ended: true, Phase: decide.PhaseStopping})
		turn(nil, pod.StateExited, decide.Plan{Ending: true, Ended: true, Phase: decide.PhaseClearing})
		if !slices.Equal(w.states, want) || len(r.pods) > 0 {
			t.Errorf("%v: the writer got %q, want %q; %d pods are remembered", source, w.states, want, len(r.pods))
		}
	}
}
