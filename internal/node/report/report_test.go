package report

import (
	"slices"
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

// events is a Recorder that keeps what it gets.
type events struct{ seen []string }

func (e *events) Event(p *v1.Pod, _, _, reason, _ string) { e.seen = append(e.seen, reason+" "+p.Name) }

func named(name string) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name)},
		Spec: v1.PodSpec{RestartPolicy: v1.RestartPolicyAlways, Containers: []v1.Container{{Name: "c", Image: "i"}}}}
}

// The end of a pod is reported to the source of pushed pods only if the pod was pushed. A node of a cluster sees the ends of many
// other pods.
func TestOnlyEndsOfPushedPodsAreReportedToTheirSource(t *testing.T) {
	t.Parallel()
	for source, want := range map[pod.Source]int{pod.SourceAPI: 0, pod.SourceFile: 0, pod.SourcePush: 1} {
		ended := 0
		r := New(Config{Recorder: &events{}, Mirror: func(*v1.Pod) *v1.Pod { return nil }, RuntimeName: func() string { return "" },
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

// The Writer gets a status once, and again only if the status, the object, or one of the other arguments has changed.
func TestTheWriterGetsOnlyWhatChanges(t *testing.T) {
	t.Parallel()
	w := &statuses{}
	r := New(Config{Writer: w, Recorder: &events{}, RuntimeName: func() string { return "" }, HostIPs: func() []string { return nil }, RecursiveReadOnly: func(*v1.Pod) bool { return false }})
	p := named("web")
	turn := func(p *v1.Pod, state pod.ContainerState, queued bool, phase decide.Phase) int {
		before := len(w.states)
		for range 3 {
			r.Turn(&podworker.Turn{Ref: pod.Ref{UID: "web"}, Pod: p, Desired: p, Source: pod.SourceAPI, Memory: &decide.Memory{}, Plan: &decide.Plan{Phase: phase}, Queued: queued,
				Now: time.Unix(1, 0), Observed: &pod.Observed{Containers: []pod.Container{{ID: "1", Name: "c", State: state}}}})
		}
		return len(w.states) - before
	}
	for i, got := range []int{
		turn(p, pod.StateRunning, true, decide.PhaseActive),
		turn(p, pod.StateRunning, false, decide.PhaseActive),
		turn(named("web"), pod.StateRunning, false, decide.PhaseActive),
		turn(p, pod.StateExited, false, decide.PhaseStopping),
		turn(p, pod.StateExited, false, decide.PhaseStopped),
	} {
		if got != 1 {
			t.Errorf("change %d: the writer got %d statuses from three equal turns, want 1", i, got)
		}
	}
}

// The mirror shows how a static pod ends after its manifest is gone.
func TestAMirrorShowsTheEnd(t *testing.T) {
	t.Parallel()
	for source, want := range map[pod.Source][]string{
		pod.SourceFile: {"mirror running", "mirror terminated"},
		pod.SourceAPI:  {"web running"},
	} {
		w := &statuses{}
		mirror := named("mirror")
		mirror.ResourceVersion = "1"
		r := New(Config{Writer: w, Recorder: &events{}, Mirror: func(*v1.Pod) *v1.Pod { return mirror }, RuntimeName: func() string { return "" },
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
