package podset

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/core/pod"
)

func object(uid, name string, annotations map[string]string) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid), Name: name, Namespace: "ns", Annotations: annotations}}
}

func TestReadyWaitsForEverySource(t *testing.T) {
	t.Parallel()
	var notified []types.UID
	s := New("node", []pod.Source{pod.SourceAPI, pod.SourceFile}, func(uid types.UID) { notified = append(notified, uid) })
	s.Replace(pod.SourceAPI, nil)
	if s.Ready() {
		t.Error("ready before the file source has answered")
	}
	s.Replace(pod.SourceFile, nil)
	if !s.Ready() {
		t.Error("not ready though all have answered")
	}
	if d := cmp.Diff([]types.UID{""}, notified); d != "" {
		t.Errorf("notified (-want +got):\n%s", d)
	}
}

// LastGrace returns the last grace period of a deleted pod until nothing of the pod is left, or until the pod is back.
func TestLastGrace(t *testing.T) {
	t.Parallel()
	s := New("node", []pod.Source{pod.SourceAPI}, func(types.UID) {})
	going := object("a", "a", nil)
	going.DeletionTimestamp, going.DeletionGracePeriodSeconds = &metav1.Time{}, new(int64(0))
	for _, c := range []struct {
		name string
		do   func()
		want bool
	}{
		{"the source has it", func() { s.Upsert(pod.SourceAPI, object("a", "a", nil)) }, false},
		{"its deletion is forced", func() { s.Delete(pod.SourceAPI, going) }, true},
		{"it is back", func() { s.Upsert(pod.SourceAPI, object("a", "a", nil)) }, false},
		{"it is removed without having been deleted", func() { s.Delete(pod.SourceAPI, object("a", "a", nil)) }, false},
		{"it is back again", func() { s.Upsert(pod.SourceAPI, object("a", "a", nil)) }, false},
		{"its deletion is forced again", func() { s.Delete(pod.SourceAPI, going) }, true},
		{"nothing is left of it", func() { s.Forget("a") }, false},
		{"an unknown pod is removed", func() { s.Delete(pod.SourceAPI, going) }, false},
	} {
		if c.do(); (s.LastGrace("a") != nil) != c.want {
			t.Errorf("%s: a grace period is known: %v, want %v", c.name, !c.want, c.want)
		}
	}
	if len(s.graces) > 0 {
		t.Errorf("%d are kept for good", len(s.graces))
	}
}

// While a source is in doubt, because it cannot read a manifest, the set remembers a removed pod until nothing of the pod is left on the
// node and, for a static pod, until its mirror is gone too. Such a doubt may last for months.
func TestRemovedPodsAreForgotten(t *testing.T) {
	t.Parallel()
	s := New("node", []pod.Source{pod.SourceAPI, pod.SourceFile}, func(types.UID) {})
	s.Doubt(pod.SourceFile, true)
	s.Replace(pod.SourceFile, nil)
	s.Replace(pod.SourceAPI, nil)
	for i := range 10_000 {
		p := object(fmt.Sprint(i), fmt.Sprint("pod-", i), nil)
		s.Upsert(pod.SourceAPI, p)
		s.Delete(pod.SourceAPI, p)
		if !s.Unwanted(pod.RefOf(p)) {
			t.Fatal("a pod that its source removed is not unwanted")
		}
		s.Forget(p.UID)
	}
	static, mirror := object("s", "web-node", nil), object("m", "web-node", map[string]string{pod.AnnotationMirror: "s"})
	s.Upsert(pod.SourceFile, static)
	s.Upsert(pod.SourceAPI, mirror)
	s.Delete(pod.SourceFile, static)
	s.Forget("s")
	if !s.Unwanted(pod.RefOf(static)) {
		t.Error("the static pod is forgotten before its mirror is gone, so nobody removes the mirror")
	}
	s.Delete(pod.SourceAPI, mirror)
	if len(s.removed)+len(s.graces) > 0 {
		t.Errorf("%d pods are remembered for good", len(s.removed)+len(s.graces))
	}
}

// On a node without any source, Unwanted returns false for every pod, because no source can say that it does not want the pod.
func TestWithoutSourcesNothingIsUnwanted(t *testing.T) {
	t.Parallel()
	if New("node", nil, func(types.UID) {}).Ready() {
		t.Error("ready without a source: every pod in the runtime would be stopped")
	}
}

func TestReplaceIsTheWholeStateOfOneSource(t *testing.T) {
	t.Parallel()
	var notified []types.UID
	s := New("node", []pod.Source{pod.SourceAPI, pod.SourceFile}, func(uid types.UID) { notified = append(notified, uid) })
	s.Upsert(pod.SourceFile, object("f", "static", map[string]string{pod.AnnotationSource: "file"}))
	s.Replace(pod.SourceAPI, []*v1.Pod{object("a", "a", nil), object("b", "b", nil)})
	notified = nil
	s.Replace(pod.SourceAPI, []*v1.Pod{object("b", "b", nil)})
	if p, _ := s.Get("a"); p != nil {
		t.Error("a is still wanted")
	}
	if p, src := s.Get("f"); p == nil || src != pod.SourceFile {
		t.Error("another source's pod is gone")
	}
	if d := cmp.Diff([]types.UID{"b", "a"}, notified); d != "" {
		t.Errorf("notified (-want +got):\n%s", d)
	}
}

func TestAMirrorIsNeverWanted(t *testing.T) {
	t.Parallel()
	var notified []types.UID
	s := New("node", []pod.Source{pod.SourceAPI}, func(uid types.UID) { notified = append(notified, uid) })
	static := object("f", "static", map[string]string{pod.AnnotationSource: "file", pod.AnnotationHash: "x"})
	s.Upsert(pod.SourceFile, static)
	mirror := object("m", "static", map[string]string{pod.AnnotationMirror: "x"})
	notified = nil
	s.Upsert(pod.SourceAPI, mirror)
	if p, _ := s.Get("m"); p != nil {
		t.Error("the mirror is wanted as a pod")
	}
	if s.Mirror(static) != mirror {
		t.Error("the mirror is not found by the static pod's name")
	}
	s.Delete(pod.SourceAPI, mirror)
	if s.Mirror(static) != nil {
		t.Error("a deleted mirror is still there")
	}
	if d := cmp.Diff([]types.UID{"f", "f"}, notified); d != "" {
		t.Errorf("the change of its mirror notifies the static pod (-want +got):\n%s", d)
	}
}

// A static pod does not take status from a mirror of an earlier manifest, and no status that somebody writes into its mirror ends
// the pod.
func TestAStaticPodIsNotifiedOfItsMirrorsStatus(t *testing.T) {
	t.Parallel()
	var named []string
	s := New("node", []pod.Source{pod.SourceAPI, pod.SourceFile}, func(types.UID) {})
	s.OnMirror(func(name string) { named = append(named, name) })
	static := object("f", "static", map[string]string{pod.AnnotationSource: "file", pod.AnnotationHash: "x"})
	s.Replace(pod.SourceFile, []*v1.Pod{static})
	began := metav1.Now()
	show := func(hash string, phase v1.PodPhase) *v1.PodStatus {
		m := object("m", "static", map[string]string{pod.AnnotationMirror: hash})
		m.Status = v1.PodStatus{Phase: phase, Reason: "Evicted", StartTime: &began}
		s.Upsert(pod.SourceAPI, m)
		p, _ := s.Get("f")
		return &p.Status
	}
	if st := show("y", v1.PodRunning); st.StartTime != nil || s.Mirror(static) != nil {
		t.Errorf("another manifest's mirror is taken: %+v", st)
	}
	if st := show("x", v1.PodFailed); st.StartTime == nil || st.Phase != v1.PodPending || st.Reason != "" {
		t.Errorf("status %+v", st)
	}
	if static.Status.StartTime != nil {
		t.Error("the source's object was changed")
	}
	s.Replace(pod.SourceAPI, nil)
	s.Replace(pod.SourceFile, nil)
	full := "static_ns"
	if d := cmp.Diff([]string{full, full, full, full, "", full}, named); d != "" {
		t.Errorf("names notified (-want +got):\n%s", d)
	}
	if p, m := s.Static(full); len(p) != 0 || m != nil || len(s.StaticNames()) != 0 {
		t.Errorf("left: %v %v", p, m)
	}
}

// A manifest that claims the UID of another pod does not replace that pod.
func TestNoSourceTakesAnothersUID(t *testing.T) {
	t.Parallel()
	s := New("node", []pod.Source{pod.SourceAPI, pod.SourceFile}, func(types.UID) {})
	s.Replace(pod.SourceAPI, []*v1.Pod{object("u", "web", nil)})
	s.Replace(pod.SourceFile, []*v1.Pod{object("u", "static", map[string]string{pod.AnnotationSource: "file"})})
	if p, src := s.Get("u"); p.Name != "web" || src != pod.SourceAPI {
		t.Errorf("%s of %s has the UID", p.Name, src)
	}
	if !s.Answered(pod.SourceFile) || !s.Answered(pod.SourceURL) {
		t.Error("not answered")
	}
}

// The pod of a higher source with the UID of another is not lost: it counts when the other source has removed its pod, if its own source still has
// it then.
func TestAHiddenPodCountsOnceTheOtherIsGone(t *testing.T) {
	t.Parallel()
	var notified int
	s := New("node", []pod.Source{pod.SourceFile, pod.SourceURL, pod.SourcePush}, func(types.UID) { notified++ })
	want := func(when, name string, src pod.Source) {
		t.Helper()
		p, from := s.Get("a")
		switch {
		case name == "" && p == nil:
		case p == nil || p.Name != name || from != src:
			t.Errorf("%s: the pod is %v of %v, want %q of %v", when, p, from, name, src)
		}
		if notified == 0 {
			t.Errorf("%s: nobody is notified", when)
		}
		notified = 0
	}
	pushed, url, file := object("a", "pushed", nil), object("a", "url", nil), object("a", "file", nil)
	s.Replace(pod.SourcePush, []*v1.Pod{pushed})
	s.Replace(pod.SourceURL, []*v1.Pod{url})
	want("URL", "url", pod.SourceURL)
	s.Replace(pod.SourceFile, []*v1.Pod{file})
	want("file", "file", pod.SourceFile)
	s.Replace(pod.SourceURL, []*v1.Pod{object("a", "url-2", nil)})
	s.Replace(pod.SourceFile, nil)
	want("the file is gone", "url-2", pod.SourceURL)
	if s.Unwanted(pod.Ref{UID: "a"}) {
		t.Error("a pod that a source has is unwanted")
	}
	s.Upsert(pod.SourceFile, file)
	s.Replace(pod.SourceURL, nil)
	s.Delete(pod.SourceFile, file)
	want("the file and the URL are gone", "pushed", pod.SourcePush)
	s.Upsert(pod.SourceFile, file)
	s.Delete(pod.SourcePush, pushed)
	s.Replace(pod.SourceFile, nil)
	want("all are gone", "", 0)
	if !s.Unwanted(pod.Ref{UID: "a"}) || len(s.hidden) > 0 {
		t.Errorf("at the end %v are hidden", s.hidden)
	}
}

// A pod that its source has removed is unwanted, even while another source does not answer.
func TestAPodThatItsSourceRemovedIsUnwanted(t *testing.T) {
	t.Parallel()
	s := New("node", []pod.Source{pod.SourceFile, pod.SourceURL}, func(types.UID) {})
	s.Replace(pod.SourceFile, []*v1.Pod{object("a", "a", nil), object("b", "b", nil)})
	s.Replace(pod.SourceFile, []*v1.Pod{object("b", "b", nil)})
	if !s.Unwanted(pod.Ref{Namespace: "ns", Name: "a", UID: "a"}) || s.Unwanted(pod.Ref{Namespace: "ns", Name: "never-seen", UID: "never-seen"}) || s.Ready() {
		t.Errorf("a %v, one that nobody knows %v, ready %v", s.Unwanted(pod.Ref{Namespace: "ns", Name: "a", UID: "a"}), s.Unwanted(pod.Ref{Namespace: "ns", Name: "never-seen", UID: "never-seen"}), s.Ready())
	}
	s.Replace(pod.SourceFile, []*v1.Pod{object("a", "a", nil)})
	if s.Unwanted(pod.Ref{Namespace: "ns", Name: "a", UID: "a"}) {
		t.Error("the removed pod is wanted again")
	}
	s.Replace(pod.SourceURL, nil)
	if !s.Unwanted(pod.Ref{Namespace: "ns", Name: "never-seen", UID: "never-seen"}) {
		t.Error("all have answered")
	}
}

// A caller may look for a pod just before a source adds it. If it then calls Unwanted, the answer is false.
func TestAPodInTheSetIsNotUnwanted(t *testing.T) {
	t.Parallel()
	s := New("node", []pod.Source{pod.SourceFile}, func(types.UID) {})
	s.Replace(pod.SourceFile, []*v1.Pod{object("a", "a", nil)})
	if s.Unwanted(pod.Ref{Namespace: "ns", Name: "a", UID: "a"}) || !s.Unwanted(pod.Ref{Namespace: "ns", Name: "b", UID: "b"}) {
		t.Error("a is wanted, b is not")
	}
}

// While a source cannot read one of its manifests (it is in doubt), the node must not stop a static pod that an earlier agent started:
// the unreadable manifest may be the pod's. Unwanted returns false for such a pod.
func TestAPodOfASourceInDoubtIsNotUnwanted(t *testing.T) {
	t.Parallel()
	notified := 0
	s := New("node", []pod.Source{pod.SourceFile}, func(types.UID) { notified++ })
	s.Doubt(pod.SourceFile, true)
	s.Replace(pod.SourceFile, []*v1.Pod{object("a", "a", nil), object("c2", "c", nil)})
	s.Replace(pod.SourceFile, []*v1.Pod{object("c2", "c", nil)})
	want := func(unknown bool) {
		t.Helper()
		got := map[string]bool{}
		for name, uid := range map[string]types.UID{"a": "a", "b": "b", "c": "c1", "api": "0a1b-2c", "own-node": "3d4e-5f"} {
			got[name] = s.Unwanted(pod.Ref{Namespace: "ns", Name: name, UID: uid})
		}
		if d := cmp.Diff(map[string]bool{"a": true, "b": unknown, "c": true, "api": true, "own-node": unknown}, got); d != "" {
			t.Errorf("unwanted (-want +got):\n%s", d)
		}
	}
	want(false)
	before := notified
	s.Doubt(pod.SourceFile, false)
	if notified == before {
		t.Error("nobody was notified")
	}
	want(true)
}
