package podsapi_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	podsv1alpha1 "k8s.io/kubelet/pkg/apis/pods/v1alpha1"

	"github.com/wherry-node/wherry/internal/edge/podsapi"
)

// node is a set of pods with a server and a client.
type node struct {
	*testing.T
	*podsapi.Server
	client podsv1alpha1.PodsClient
	behind atomic.Int64 // watches that ended because their client was too far behind

	mu   sync.Mutex
	pods map[types.UID]*v1.Pod
}

func (n *node) List() (out []*v1.Pod) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, p := range n.pods {
		out = append(out, p)
	}
	return out
}

func (n *node) ByUID(uid types.UID) *v1.Pod {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.pods[uid]
}

// set stores a pod with a phase, or removes it if the phase is empty, and tells the server.
func (n *node) set(uid types.UID, phase v1.PodPhase) {
	n.mu.Lock()
	delete(n.pods, uid)
	if phase != "" {
		n.pods[uid] = &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pod-" + string(uid), UID: uid, Labels: map[string]string{"a": "1", "b": "2", "c": "3"}},
			Spec:       v1.PodSpec{NodeName: strings.Repeat("x", 1000)}, // so that a connection holds few events that are not read
			Status:     v1.PodStatus{Phase: phase},
		}
	}
	n.mu.Unlock()
	n.Changed(uid)
}

// withNode runs do in virtual time with a node that serves the Pods API.
func withNode(t *testing.T, do func(n *node)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n := &node{T: t, pods: map[types.UID]*v1.Pod{}}
		n.Server = podsapi.New(n, func() { n.behind.Add(1) })
		l := bufconn.Listen(1 << 10)
		ctx, end := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- n.Serve(ctx, l) }()
		conn, err := grpc.NewClient("passthrough:///node", grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithStaticStreamWindowSize(64<<10), // otherwise gRPC makes the windows larger, and a client that does not read gets more
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }))
		if err != nil {
			t.Fatal(err)
		}
		n.client = podsv1alpha1.NewPodsClient(conn)
		do(n)
		end()
		if err := <-ended; err != nil {
			t.Errorf("Serve: %v", err)
		}
		_ = conn.Close()
		synctest.Wait()
	})
}

// watch is an open WatchPods, whose events are read by another goroutine.
type watch struct {
	end context.CancelFunc

	mu     sync.Mutex
	events []string
	err    error
}

// watch opens a WatchPods. Each of its events is described as "ADDED a Running"; pause is how long the client waits before each event.
func (n *node) watch(pause time.Duration) *watch {
	n.Helper()
	ctx, end := context.WithCancel(context.Background())
	stream, err := n.client.WatchPods(ctx, &podsv1alpha1.WatchPodsRequest{})
	if err != nil {
		n.Fatal(err)
	}
	w := &watch{end: end}
	go func() {
		for {
			time.Sleep(pause)
			event, err := stream.Recv()
			w.mu.Lock()
			if err != nil {
				w.err = err
				w.mu.Unlock()
				return
			}
			var p v1.Pod
			if err := p.Unmarshal(event.GetPod()); err != nil {
				n.Error(err)
			}
			w.events = append(w.events, strings.TrimSpace(fmt.Sprint(event.GetType(), " ", p.UID, " ", p.Status.Phase)))
			w.mu.Unlock()
		}
	}()
	return w
}

// take returns the events since the last call.
func (w *watch) take() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	events := w.events
	w.events = nil
	return events
}

func (n *node) expect(w *watch, want ...string) {
	n.Helper()
	synctest.Wait()
	if got := w.take(); !slices.Equal(got, want) {
		n.Errorf("events %q, want %q", got, want)
	}
}

func TestListAndGet(t *testing.T) {
	t.Parallel()
	withNode(t, func(n *node) {
		ctx := context.Background()
		n.set("b", v1.PodRunning)
		n.set("a", v1.PodPending)
		list, err := n.client.ListPods(ctx, &podsv1alpha1.ListPodsRequest{})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, b := range list.GetPods() {
			var p v1.Pod
			if err := p.Unmarshal(b); err != nil {
				t.Fatal(err)
			}
			got = append(got, p.Name+" "+string(p.Status.Phase))
		}
		if want := []string{"pod-a Pending", "pod-b Running"}; !slices.Equal(got, want) {
			t.Errorf("the list has %q, want %q", got, want)
		}
		one, err := n.client.GetPod(ctx, &podsv1alpha1.GetPodRequest{PodUID: "b"})
		if err != nil {
			t.Fatal(err)
		}
		var p v1.Pod
		if err := p.Unmarshal(one.GetPod()); err != nil || p.Name != "pod-b" {
			t.Errorf("the pod b is %q (%v)", p.Name, err)
		}
		for _, uid := range []string{"", "c", strings.Repeat("x", 60_000)} {
			_, err := n.client.GetPod(ctx, &podsv1alpha1.GetPodRequest{PodUID: uid})
			if status.Code(err) != codes.NotFound || len(err.Error()) > 300 {
				t.Errorf("a pod that is not there: %.400v", err)
			}
		}
	})
}

// A watcher gets what is there, then each change. A pod that has not changed is not sent again.
func TestWatch(t *testing.T) {
	t.Parallel()
	withNode(t, func(n *node) {
		n.set("b", v1.PodRunning)
		n.set("a", v1.PodPending)
		w := n.watch(0)
		n.expect(w, "ADDED a Pending", "ADDED b Running", "INITIAL_SYNC_COMPLETE")
		n.set("a", v1.PodRunning)
		n.expect(w, "MODIFIED a Running")
		n.Changed("a")
		n.Changed("unknown")
		n.expect(w)
		n.set("c", v1.PodPending)
		n.expect(w, "ADDED c Pending")
		n.set("b", "")
		n.expect(w, "DELETED b")
		n.Changed("b")
		n.expect(w)
		n.set("b", v1.PodPending) // a static pod may come back with its UID
		n.expect(w, "ADDED b Pending")
		w.end()
		synctest.Wait()
		if status.Code(w.err) != codes.Canceled {
			t.Errorf("after the client has ended the call: %v", w.err)
		}
	})
}

// A client that reads slowly is not dropped, and it learns the newest state of every pod. It does not delay the others.
func TestSlowWatcher(t *testing.T) {
	t.Parallel()
	withNode(t, func(n *node) {
		slow, fast := n.watch(time.Second), n.watch(0)
		uids := make([]types.UID, 300)
		for i := range uids {
			uids[i] = types.UID(fmt.Sprintf("%03d", i))
		}
		for _, phase := range []v1.PodPhase{v1.PodPending, v1.PodRunning, v1.PodSucceeded} {
			for _, uid := range uids {
				n.set(uid, phase)
			}
			synctest.Wait()
		}
		if got, want := len(fast.take()), 1+3*len(uids); got != want {
			t.Errorf("the fast client got %d events, want %d", got, want)
		}
		n.set("000", "")
		time.Sleep(time.Hour)
		last := map[string]string{}
		events := slow.take()
		for _, e := range events {
			if f := strings.Fields(e); len(f) > 1 {
				last[f[1]] = e
			}
		}
		if len(events) >= 1+3*len(uids) {
			t.Errorf("the slow client got %d events, although the pods changed while it did not read", len(events))
		}
		for _, uid := range uids[1:] {
			if e := last[string(uid)]; !strings.HasSuffix(e, " Succeeded") {
				t.Errorf("the last event about pod %s is %q", uid, e)
			}
		}
		if e := last["000"]; e != "DELETED 000" && e != "" {
			t.Errorf("the last event about the pod that is gone is %q", e)
		}
		slow.end()
		fast.end()
	})
}

// The watch of a client that does not read ends once thousands of pods have come and gone, because it would need more memory for each of
// them. Changes of the same pods end no watch, and clients that read notice nothing.
func TestStalledWatcher(t *testing.T) {
	t.Parallel()
	withNode(t, func(n *node) {
		stalled, fast := n.watch(time.Minute), n.watch(0)
		for i := range 300 {
			n.set(types.UID(fmt.Sprintf("stays-%03d", i)), v1.PodRunning)
		}
		synctest.Wait() // now the connection of the client that does not read is full
		slow := n.watch(time.Minute)
		change := func(from, to int) {
			for i := from; i < to; i++ {
				uid := types.UID(fmt.Sprintf("goes-%05d", i))
				n.set(uid, v1.PodRunning)
				n.set(uid, "")
				n.Changed("stays-000")
				if i%100 == 0 {
					synctest.Wait()
				}
			}
		}
		change(0, 3700) // with the 300 fewer than 4,096: the clients may begin to read now, and miss nothing
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		if slow.err != nil || stalled.err != nil || n.behind.Load() != 0 {
			t.Errorf("the watches of clients that are not far behind: %v, %v", slow.err, stalled.err)
		}
		slow.end()
		stalled.end()
		stalled = n.watch(24 * time.Hour)
		synctest.Wait()
		change(3700, 9000)
		n.set("last", v1.PodRunning)
		synctest.Wait()
		if fast.err != nil || !slices.Contains(fast.take(), "ADDED last Running") {
			t.Errorf("the client that reads did not get the last event: %v", fast.err)
		}
		time.Sleep(365 * 24 * time.Hour)
		synctest.Wait()
		if behind := n.behind.Load(); status.Code(stalled.err) != codes.ResourceExhausted || behind != 1 {
			t.Errorf("the client that does not read: %v, want %v; %d watches ended, want 1", stalled.err, codes.ResourceExhausted, behind)
		}
		fast.end()
	})
}

// There are limits for watchers and for the rate of requests. When clients leave, others are served.
func TestLimits(t *testing.T) {
	t.Parallel()
	withNode(t, func(n *node) {
		refused := func(err error) bool { return status.Code(err) == codes.ResourceExhausted }
		_, err := n.client.ListPods(context.Background(), &podsv1alpha1.ListPodsRequest{})
		for range 1000 {
			if err != nil {
				break
			}
			_, err = n.client.ListPods(context.Background(), &podsv1alpha1.ListPodsRequest{})
		}
		if !refused(err) {
			t.Errorf("1,000 requests at the same instant: %v", err)
		}
		time.Sleep(time.Minute)
		if _, err := n.client.ListPods(context.Background(), &podsv1alpha1.ListPodsRequest{}); err != nil {
			t.Errorf("a minute later: %v", err)
		}
	})
}

// When the agent ends, Serve returns although clients watch.
func TestEndWithWatchers(t *testing.T) {
	t.Parallel()
	var w *watch
	withNode(t, func(n *node) {
		n.set("a", v1.PodRunning)
		w = n.watch(0)
		n.expect(w, "ADDED a Running", "INITIAL_SYNC_COMPLETE")
	})
	if w.err == nil || w.err == io.EOF {
		t.Errorf("the client of an agent that has ended: %v", w.err)
	}
}
