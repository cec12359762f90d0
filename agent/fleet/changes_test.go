package fleet

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// told records changes as texts.
type told struct{ lines []string }

func (l *told) take(c Change) {
	l.lines = append(l.lines, strings.TrimSpace(fmt.Sprintf("%s %s %s ready=%v restarts=%d", c.Node, c.Pod, c.State, c.Ready, c.Restarts)))
}

// Each change of a node or pod is passed on once, and what is gone is passed on as gone, also if a watch has missed its end.
func TestChanges(t *testing.T) {
	t.Parallel()
	var to told
	c := newChanges(to.take, func() time.Duration { return time.Second })
	pod := func(uid types.UID, restarts int32) *v1.Pod {
		return &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: uid, Namespace: "ns", Name: string(uid)}, Status: v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{{RestartCount: restarts}}}}
	}
	running := podState{node: "n1", phase: v1.PodRunning, ready: true}
	c.node("n1", false, true)
	c.node("n1", true, true)
	c.node("n1", true, true)
	c.node("n2", true, true)
	c.keepNodes(map[string]bool{"n1": true})
	c.node("n3", false, false)
	c.pod(pod("a", 0), &running)
	c.pod(pod("a", 0), &running)
	c.pod(pod("a", 2), &running)
	c.pod(pod("b", 0), &podState{node: "n1", phase: v1.PodPending})
	c.keepPods(map[types.UID]bool{"b": true})
	c.podGone("b")
	c.podGone("b")
	want := []string{
		"n1  NotReady ready=false restarts=0", "n1  Ready ready=false restarts=0", "n2  Ready ready=false restarts=0", "n2  Gone ready=false restarts=0",
		"n1 ns/a Running ready=true restarts=0", "n1 ns/a Running ready=true restarts=2", "n1 ns/b Pending ready=false restarts=0",
		"n1 ns/a Gone ready=false restarts=0", "n1 ns/b Gone ready=false restarts=0",
	}
	if !slices.Equal(to.lines, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(to.lines, "\n"), strings.Join(want, "\n"))
	}
	var none *changes // nobody wants the changes
	none.node("n1", true, true)
	none.keepNodes(nil)
	none.pod(pod("a", 0), &running)
	none.podGone("a")
	none.keepPods(nil)
}

func TestWorkloadOf(t *testing.T) {
	t.Parallel()
	for want, p := range map[string]*v1.Pod{
		"web-0":   {ObjectMeta: metav1.ObjectMeta{Name: "web-0"}},
		"web-*":   {ObjectMeta: metav1.ObjectMeta{Name: "web-5d8f-x2x", GenerateName: "web-5d8f-", Labels: map[string]string{"pod-template-hash": "5d8f"}}},
		"job-*":   {ObjectMeta: metav1.ObjectMeta{Name: "job-abcde", GenerateName: "job-"}},
		"f-pod-*": {ObjectMeta: metav1.ObjectMeta{Name: "f-pod-7", Labels: map[string]string{LabelFleet: "f"}}},
		"f-pod-8": {ObjectMeta: metav1.ObjectMeta{Name: "f-pod-8", Labels: map[string]string{LabelFleet: "g"}}},
		"a-*":     {ObjectMeta: metav1.ObjectMeta{Name: "a-x", GenerateName: "a-", Labels: map[string]string{"pod-template-hash": "a-very-long-hash"}}},
	} {
		if got := workloadOf(p); got != want {
			t.Errorf("%s: %s, want %s", p.Name, got, want)
		}
	}
}

// history writes and reads a history of changes such as "1s n1 - Ready" and "2s n1 ns/web-a ns/web-* Running ready 1".
func history(t *testing.T, changes ...Change) *History {
	t.Helper()
	var b bytes.Buffer
	r := NewRecorder(&b)
	for _, c := range changes {
		r.Changed(c)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	h, err := ReadHistory("test", &b)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func ofPod(at int, node, name, state string, ready bool, restarts int32) Change {
	return Change{At: time.Duration(at) * time.Second, Node: node, Pod: "ns/" + name, Workload: "ns/web-*", State: state, Ready: ready, Restarts: restarts}
}

// Two runs are equal if the same came out, whatever the names of pods, their nodes and the times.
func TestCompare(t *testing.T) {
	t.Parallel()
	a := history(t,
		Change{At: 1, Node: "n1", State: StateReady}, Change{At: 2, Node: "n2", State: StateReady},
		ofPod(1, "n1", "web-a", "Pending", false, 0), ofPod(2, "n1", "web-a", "Running", true, 0),
		ofPod(1, "n2", "web-b", "Pending", false, 0), ofPod(3, "n2", "web-b", "Running", true, 0), ofPod(4, "n2", "web-b", StateGone, false, 0),
	)
	same := history(t,
		Change{At: 5, Node: "n2", State: StateReady}, Change{At: 2, Node: "n1", State: StateReady},
		ofPod(10, "n2", "web-x", "Pending", false, 0), ofPod(20, "n2", "web-x", "Running", false, 0), ofPod(21, "n2", "web-x", "Running", true, 0),
		ofPod(10, "n2", "web-y", "Pending", false, 0), ofPod(30, "n2", "web-y", "Running", true, 0), ofPod(40, "n2", "web-y", StateGone, false, 0),
	)
	if d := Compare(a, same, false); len(d) != 0 {
		t.Errorf("runs with the same outcome differ: %+v", d)
	}
	if d := Compare(a, same, true); len(d) != 2 || d[0].Outcome != "Pending > Running > Running, ready" || d[0].B != 1 {
		t.Errorf("the states on the way: %+v", d)
	}
	other := history(t,
		Change{At: 1, Node: "n1", State: StateReady}, Change{At: 7, Node: "n1", State: StateNotReady},
		ofPod(1, "n1", "web-a", "Running", true, 0), ofPod(9, "n1", "web-a", "Failed (Evicted)", false, 0), ofPod(2, "n1", "web-b", "Running", true, 3),
	)
	want := []Difference{
		{Object: "node/n1", Outcome: "NotReady", B: 1, First: 7, Name: "n1"},
		{Object: "node/n1", Outcome: "Ready", A: 1, First: 1, Name: "n1"},
		{Object: "node/n2", Outcome: "Ready", A: 1, First: 2, Name: "n2"},
		{Object: "pod/ns/web-*", Outcome: "Failed (Evicted)", B: 1, First: 9 * time.Second, Name: "ns/web-a"},
		{Object: "pod/ns/web-*", Outcome: "Running, ready", A: 1, First: 2 * time.Second, Name: "ns/web-a"},
		{Object: "pod/ns/web-*", Outcome: "Running, ready, 3 restarts", B: 1, First: 2 * time.Second, Name: "ns/web-b"},
		{Object: "pod/ns/web-*", Outcome: "Running, ready, then gone", A: 1, First: 4 * time.Second, Name: "ns/web-b"},
	}
	if got := Compare(a, other, false); !slices.Equal(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
	nodes, pods := same.Timings()
	if nodes.Count != 2 || pods.Count != 2 || pods.P50 != 20*time.Second || pods.Max != 20*time.Second {
		t.Errorf("times of nodes %+v, of pods %+v", nodes, pods)
	}
}

// A file that is no history is refused, with the line that is wrong.
func TestReadHistoryRefuses(t *testing.T) {
	t.Parallel()
	const first = `{"apiVersion":"wherry.dev/v1alpha1","kind":"FleetHistory"}` + "\n"
	for text, want := range map[string]string{
		"":                                 "empty",
		"{}\n":                             "f:1: this is no history",
		"\x00":                             "f:1: this is no history",
		first + "{\n":                      "f:2: ",
		first + `{"node":"n"}` + "\n":      "f:2: a change has",
		first + `{"state":"x"}` + "\n":     "f:2: a change has",
		first + strings.Repeat("x", 1<<17): "f:2: ",
		first + `{"at":-1,"node":"n","state":"Ready"}` + "\n": "f:2: a change has",
	} {
		if _, err := ReadHistory("f", strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.80q: %v, want %q", text, err, want)
		}
	}
}
