package ownnode

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/wherry-node/wherry/internal/base/kubeclient"
)

// api has one Node, and one watch, which the test feeds.
type api struct {
	t       *testing.T
	node    v1.Node
	watched *watch.FakeWatcher
}

func (a *api) only(opts metav1.ListOptions) {
	if opts.FieldSelector != "metadata.name=n1" {
		a.t.Errorf("selector %q reads other Nodes too", opts.FieldSelector)
	}
}

func (a *api) List(_ context.Context, opts metav1.ListOptions) (*v1.NodeList, error) {
	a.only(opts)
	return &v1.NodeList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}, Items: []v1.Node{a.node}}, nil
}

func (a *api) Watch(_ context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	a.only(opts)
	return a.watched, nil
}

func node(version string, inUse ...v1.UniqueVolumeName) *v1.Node {
	return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", ResourceVersion: version}, Status: v1.NodeStatus{VolumesInUse: inUse}}
}

// The Follower reads only its own Node, and has its newest version.
func TestTheNewestNode(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := &api{t: t, node: *node("1"), watched: watch.NewFake()}
		f := New(Config{Nodes: a, Name: "n1"})
		if f.Last() != nil {
			t.Error("there is a Node before the first answer")
		}
		ctx, cancel := context.WithCancel(t.Context())
		join := f.Begin(ctx)
		synctest.Wait()
		if n := f.Last(); n == nil || n.ResourceVersion != "1" {
			t.Errorf("after the list: %v", n)
		}
		a.watched.Modify(node("2"))
		synctest.Wait()
		if n := f.Last(); n == nil || n.ResourceVersion != "2" {
			t.Errorf("after a change: %v", n)
		}
		cancel()
		join()
	})
}

// A Node that may be old is not used: after a failure, after the Node was deleted, and if a list has no Node.
func TestAnOldNodeIsDropped(t *testing.T) {
	t.Parallel()
	for name, drop := range map[string]func(*Follower){
		"failed":  func(f *Follower) { f.Failed(errors.New("the server is gone")) },
		"deleted": func(f *Follower) { f.Apply(watch.Deleted, node("2")) },
		"absent":  func(f *Follower) { f.Replace(nil) },
	} {
		f := New(Config{Name: "n1"})
		if f.Apply(watch.Added, node("1")); f.Last() == nil {
			t.Fatal("the Node was not stored")
		}
		if drop(f); f.Last() != nil {
			t.Errorf("%s: the old Node is still there", name)
		}
	}
}

// Volumes is called for the first Node, and when the volumes of the Node have changed, not for other changes.
func TestChangesOfVolumesAreReported(t *testing.T) {
	t.Parallel()
	calls := 0
	f := New(Config{Name: "n1", Volumes: func() { calls++ }})
	for i, step := range []struct {
		node *v1.Node
		want int
	}{{node("1"), 1}, {node("2"), 1}, {node("3", "disk"), 2}, {node("4", "disk"), 2}, {node("5"), 3}} {
		if f.Apply(watch.Modified, step.node); calls != step.want {
			t.Errorf("after step %d: %d calls, want %d", i, calls, step.want)
		}
	}
}

// With a shared watch the Follower sends no requests. It stores the shared Node itself and not a copy.
func TestASharedWatch(t *testing.T) {
	t.Parallel()
	shared, joined := node("1"), false
	f := New(Config{Name: "n1", Follow: func(_ context.Context, to kubeclient.Followed) func() {
		to.Replace([]runtime.Object{shared})
		return func() { joined = true }
	}})
	f.Begin(t.Context())()
	if f.Last() != shared || !joined {
		t.Errorf("got %p, want %p; joined: %t", f.Last(), shared, joined)
	}
}
