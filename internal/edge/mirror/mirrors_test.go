package mirror

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/core/pod"
)

// blind is an API server whose watch reports nothing. There is a static pod, and the watch never shows its mirror.
type blind struct {
	static *v1.Pod

	mu      sync.Mutex
	mirror  *v1.Pod
	creates int
}

func (b *blind) Static(string) (statics []*v1.Pod, mirror *v1.Pod) { return []*v1.Pod{b.static}, nil }
func (b *blind) StaticNames() []string {
	return []string{pod.RefOf(b.static).FullName()}
}
func (b *blind) Unwanted(pod.Ref) bool { return false }

func (b *blind) Create(_ context.Context, p *v1.Pod, _ metav1.CreateOptions) (*v1.Pod, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.creates++
	if b.mirror != nil {
		return nil, apierrors.NewAlreadyExists(schema.GroupResource{Resource: "pods"}, p.Name)
	}
	b.mirror = p
	return p, nil
}

func (b *blind) Get(context.Context, string, metav1.GetOptions) (*v1.Pod, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mirror, nil
}

func (b *blind) Delete(context.Context, string, metav1.DeleteOptions) error { return nil }

// A mirror that was created and deleted while the watch was down is created again. While the mirror exists but the watch does not
// show it, there are few create requests.
func TestAMirrorThatWasNeverSeen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &blind{static: &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "s", Namespace: "ns", UID: "u", Annotations: map[string]string{
			pod.AnnotationHash: "h", pod.AnnotationSource: "file"}}}}
		m := New(Config{
			API: func(string) API { return b }, Pods: b, Log: slog.New(slog.DiscardHandler),
			Node: func() *v1.Node { return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}} },
			Ends: func(string, types.UID) bool { return false }, Gone: func(types.UID) {},
			Owes: func(types.UID) bool { return false },
		})
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { _ = m.Run(ctx) })
		time.Sleep(time.Minute)
		b.mu.Lock()
		if b.creates > 10 {
			t.Errorf("%d requests for one mirror in a minute", b.creates)
		}
		b.mirror = nil
		b.mu.Unlock()
		time.Sleep(time.Minute)
		b.mu.Lock()
		if b.mirror == nil {
			t.Error("the mirror that was deleted before it was seen is not made again")
		}
		b.mu.Unlock()
		cancel()
		wg.Wait()
	})
}

// shown is an API server that still has a mirror pod after the manifest of its static pod was removed.
type shown struct {
	blind
	deleted time.Time
}

func (s *shown) Static(string) (statics []*v1.Pod, mirror *v1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return nil, s.mirror
}
func (s *shown) StaticNames() []string { return []string{"ns/s"} }
func (s *shown) Unwanted(pod.Ref) bool { return true }

func (s *shown) Delete(context.Context, string, metav1.DeleteOptions) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mirror, s.deleted = nil, time.Now()
	return nil
}

// A mirror gets the final status of its pod before it is removed.
func TestAMirrorIsRemovedAfterItsLastStatus(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &shown{}
		s.mirror = &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "s", Namespace: "ns", UID: "m", Annotations: map[string]string{pod.AnnotationMirror: "h"}}}
		reported := time.Now().Add(5 * time.Second)
		m := New(Config{
			API: func(string) API { return s }, Pods: s, Log: slog.New(slog.DiscardHandler), Node: func() *v1.Node { return nil },
			Ends: func(string, types.UID) bool { return time.Until(reported) > 2*time.Second },
			Owes: func(uid types.UID) bool { return uid == "m" && time.Now().Before(reported) }, Gone: func(types.UID) {},
		})
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { _ = m.Run(ctx) })
		time.Sleep(time.Minute)
		cancel()
		wg.Wait()
		if late := s.deleted.Sub(reported); late < 0 || late > 2*time.Second {
			t.Errorf("the mirror was deleted %s after its last status", late)
		}
	})
}

// twins is an API server that shows its one pod at once, and a node on which two sources have a static pod of one name.
type twins struct {
	shown
	statics []*v1.Pod
	runs    types.UID // the static pod that has something on the node; "": none
}

func (w *twins) Static(string) (statics []*v1.Pod, mirror *v1.Pod) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.statics, w.mirror
}

func (w *twins) Ends(_ string, but types.UID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.runs != "" && w.runs != but
}

// image returns the image of the mirror; "": there is none.
func (w *twins) image() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mirror == nil {
		return ""
	}
	return w.mirror.Spec.Containers[0].Image
}

// If two sources have a static pod of one name, the mirror shows the one that runs, whichever has the smaller UID, also after somebody has deleted the
// mirror. When the other one runs, the mirror shows that.
func TestTheMirrorShowsTheStaticPodThatRuns(t *testing.T) {
	t.Parallel()
	static := func(uid types.UID) *v1.Pod {
		return &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "s", Namespace: "ns", UID: uid, Annotations: map[string]string{pod.AnnotationHash: "hash-" + string(uid)}},
			Spec:       v1.PodSpec{NodeName: "n", Containers: []v1.Container{{Name: "main", Image: "of-" + string(uid)}}},
		}
	}
	for _, runs := range []types.UID{"a", "b"} {
		synctest.Test(t, func(t *testing.T) {
			w := &twins{statics: []*v1.Pod{static("a"), static("b")}, runs: runs}
			m := New(Config{
				API: func(string) API { return w }, Pods: w, Log: slog.New(slog.DiscardHandler), Ends: w.Ends, Gone: func(types.UID) {},
				Node: func() *v1.Node { return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}} }, Owes: func(types.UID) bool { return false },
			})
			ctx, cancel := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			wg.Go(func() { _ = m.Run(ctx) })
			shows := func(when string, runs types.UID) {
				t.Helper()
				time.Sleep(time.Minute)
				if got := w.image(); got != "of-"+string(runs) {
					t.Errorf("%s runs, %s: the mirror is %q", runs, when, got)
				}
			}
			shows("at first", runs)
			w.mu.Lock()
			w.mirror = nil
			w.mu.Unlock()
			m.Look("ns/s")
			shows("the mirror was deleted", runs)
			other := w.statics[0].UID
			if other == runs {
				other = w.statics[1].UID
			}
			w.mu.Lock()
			w.runs = ""
			w.mu.Unlock()
			shows("it has ended", runs)
			w.mu.Lock()
			w.runs = other
			w.mu.Unlock()
			shows("after the other", other)
			cancel()
			wg.Wait()
		})
	}
}
