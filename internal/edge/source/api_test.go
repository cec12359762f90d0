package source

import (
	"log/slog"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/wherry-node/wherry/internal/core/pod"
)

type taken struct{ uids []types.UID }

func (t *taken) Replace(_ pod.Source, pods []*v1.Pod) {
	for _, p := range pods {
		t.uids = append(t.uids, p.UID)
	}
}
func (t *taken) Upsert(_ pod.Source, p *v1.Pod) { t.uids = append(t.uids, p.UID) }
func (t *taken) Delete(pod.Source, *v1.Pod)     {}

// Names and UIDs become paths and keys. An object without them, or whose name or UID would lead to other paths, is ignored, and
// does not affect other pods.
func TestWhatCannotBeAPodIsIgnored(t *testing.T) {
	t.Parallel()
	of := func(ns, name, uid string) *v1.Pod {
		return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, UID: types.UID(uid)}}
	}
	bad := []runtime.Object{&v1.Pod{}, of("ns", "p", ""), of("ns", "p", "../../etc"), of("ns", "p", ".."), of("..", "p", "u"),
		of("ns", "a/b", "u"), of("ns", "", "u"), of("", "p", "u"), &v1.Node{}}
	got := &taken{}
	f := &follower{API: &API{Target: got, Log: slog.New(slog.DiscardHandler)}}
	f.Replace(append(bad, of("ns", "p", "good")))
	for _, o := range append(bad, of("ns", "q", "better")) {
		f.Apply(watch.Modified, o)
	}
	if d := cmp.Diff([]types.UID{"good", "better"}, got.uids); d != "" {
		t.Errorf("pods taken (-want +got):\n%s", d)
	}
}
