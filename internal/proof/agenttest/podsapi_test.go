package agenttest

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	v1 "k8s.io/api/core/v1"
	podsv1alpha1 "k8s.io/kubelet/pkg/apis/pods/v1alpha1"

	"github.com/wherry-node/wherry/agent"
)

// podsClient is a client of the Pods API of a simulated node. It records the events that it gets.
type podsClient struct {
	podsv1alpha1.PodsClient
	events []string // "ADDED web Pending"; guarded by mu
	mu     sync.Mutex
}

// withPodsAPI runs do with a node for which the gate PodsAPI is set, and with a client.
func withPodsAPI(t *testing.T, gate bool, do func(w *World, c *podsClient)) {
	t.Helper()
	var l *bufconn.Listener
	Run(t, Config{
		Agent: func(c *agent.Config) { c.Kubelet.FeatureGates = map[string]bool{"PodsAPI": gate} },
		Deps: func(d *agent.Deps) {
			l = bufconn.Listen(1 << 16)
			d.PodsAPI = l
		},
	}, func(w *World) {
		conn, err := grpc.NewClient("passthrough:///node", grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }))
		if err != nil {
			t.Fatal(err)
		}
		do(w, &podsClient{PodsClient: podsv1alpha1.NewPodsClient(conn)})
		_ = conn.Close()
		_ = l.Close()
	})
}

// watch records the events until the agent ends or stop is called.
func (c *podsClient) watch(w *World) (stop context.CancelFunc) {
	w.Helper()
	ctx, stop := context.WithCancel(context.Background())
	stream, err := c.WatchPods(ctx, &podsv1alpha1.WatchPodsRequest{})
	if err != nil {
		w.Fatal(err)
	}
	go func() {
		for {
			event, err := stream.Recv()
			if err != nil {
				return
			}
			var p v1.Pod
			if err := p.Unmarshal(event.GetPod()); err != nil {
				w.Error(err)
			}
			c.mu.Lock()
			c.events = append(c.events, strings.TrimSpace(fmt.Sprint(event.GetType(), " ", p.Name, " ", p.Status.Phase)))
			c.mu.Unlock()
		}
	}()
	return stop
}

func (c *podsClient) has(event string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Contains(c.events, event)
}

// With the gate PodsAPI, programs of the node see its pods with the node's own statuses, also while the API server is away.
func TestPodsAPI(t *testing.T) {
	t.Parallel()
	withPodsAPI(t, true, func(w *World, c *podsClient) {
		w.Create(Pod("before"))
		w.WaitReady("before")
		defer c.watch(w)()
		time.Sleep(time.Second)
		if !c.has("ADDED before Running") || !c.has("INITIAL_SYNC_COMPLETE") {
			t.Errorf("a new client got %q", c.events)
		}
		uid := w.Create(Pod("web"))
		w.WaitReady("web")
		time.Sleep(time.Second)
		if !c.has("ADDED web Pending") || !c.has("MODIFIED web Running") {
			t.Errorf("while a pod started, the client got %q", c.events)
		}
		answer, err := c.GetPod(context.Background(), &podsv1alpha1.GetPodRequest{PodUID: string(uid)})
		if err != nil {
			t.Fatal(err)
		}
		var p v1.Pod
		if err := p.Unmarshal(answer.GetPod()); err != nil || !Ready(&p) || p.Status.PodIP == "" {
			t.Errorf("the pod is %+v (%v), want one that is ready and has an address", p.Status, err)
		}
		w.Delete("web", 1)
		w.WaitGone("web")
		time.Sleep(time.Second)
		if !c.has("DELETED web") {
			t.Errorf("after the deletion, the client got %q", c.events)
		}
		list, err := c.ListPods(context.Background(), &podsv1alpha1.ListPodsRequest{})
		if err != nil || len(list.GetPods()) != 1 {
			t.Errorf("the list has %d pods (%v), want 1", len(list.GetPods()), err)
		}
	})
}

// Without the gate, nothing is served, although there is a listener.
func TestPodsAPINeedsItsGate(t *testing.T) {
	t.Parallel()
	withPodsAPI(t, false, func(_ *World, c *podsClient) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_, err := c.ListPods(ctx, &podsv1alpha1.ListPodsRequest{})
		if code := status.Code(err); code != codes.DeadlineExceeded && code != codes.Unavailable {
			t.Errorf("a request: %v, want no answer", err)
		}
	})
}
