// Command podworker runs one pod worker for one pod, with a pod cache that an HTTP request sets. The worker starts nothing until the pod
// cache has an entry for the pod, which says which sandboxes and containers of the pod the runtime has.
//
//	go run ./examples/labs/podworker &
//	curl 'localhost:8080/setcache?id=59367ef6-1bb2-4057-ba10-e71328a2c94e'
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/examples/labs/lab"
	"github.com/wherry-node/wherry/internal/core/admit"
	"github.com/wherry-node/wherry/internal/core/crispec"
	"github.com/wherry-node/wherry/internal/core/decide"
	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/edge/checkpoint"
	"github.com/wherry-node/wherry/internal/node/podworker"
)

func main() {
	listen := flag.String("listen", "localhost:8080", "where to listen")
	lab.Main(func(ctx context.Context) error {
		l, err := net.Listen("tcp", *listen)
		if err != nil {
			return err
		}
		return run(ctx, os.Stdout, l)
	})
}

// cache is a pod cache. It has no entry for a pod until a request sets one. stamps has the time of that request, by the pod's UID.
type cache struct {
	mu     sync.Mutex
	stamps map[types.UID]time.Time
}

// Get returns an inspection that found no sandboxes and no containers, and the time when a request set the entry. The time is zero if no
// request has set it.
func (c *cache) Get(uid types.UID) (*pod.Observed, time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return &pod.Observed{Ref: pod.Ref{UID: uid}}, c.stamps[uid]
}

// Inspect inspects nothing, because only requests set entries of this cache.
func (c *cache) Inspect(types.UID) time.Time { return time.Now() }

func (c *cache) set(uid types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stamps[uid] = time.Now()
}

// wanted is the set of desired pods, which has one pod.
type wanted struct{ *v1.Pod }

func (w wanted) Get(uid types.UID) (*v1.Pod, pod.Source) {
	if uid != w.UID {
		return nil, pod.SourceNone
	}
	return w.Pod, pod.SourceAPI
}

// LastGrace returns nil, because the lab deletes no pod.
func (wanted) LastGrace(types.UID) *int64 { return nil }

// node implements the other interfaces that a worker needs from its node. It performs no action; it only prints a message when the start of
// a pod begins.
type node struct{ out io.Writer }

func (node) Node(pod.Ref) decide.Node           { return decide.Node{NetworkReady: true, SourcesReady: true} }
func (node) Admit(*v1.Pod) (*decide.Stop, bool) { return nil, false }
func (node) Resize(*v1.Pod, *pod.Allocation) (admit.ResizeResult, bool) {
	return admit.ResizeResult{OK: true}, true
}
func (node) Loaded(types.UID, *pod.Allocation)                                  {}
func (node) Probe(*v1.Pod, *pod.Observed, *decide.Memory, *decide.ProbeResults) {}
func (node) Turn(*podworker.Turn)                                               {}
func (n node) Do(_ context.Context, job pod.Job) pod.Outcome {
	if job.Action.Op == pod.OpSetUp { // a start begins with OpSetUp
		fmt.Fprintf(n.out, "a makeshift syncPod function\nthe pod to be handled is %s\n", job.Ref.Name)
	}
	return pod.Outcome{Err: errors.New("the lab performs no actions"), Reason: "Lab"}
}

func run(ctx context.Context, out io.Writer, l net.Listener) error {
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "nginx-kubelet", UID: "59367ef6-1bb2-4057-ba10-e71328a2c94e"},
		Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "nginx", Image: "nginx"}}},
	}
	c, here, policy := &cache{stamps: map[types.UID]time.Time{}}, node{out}, decide.DefaultPolicy()
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	w := podworker.New(&podworker.Config{
		Context: ctx, Group: &wg,
		Cache: c, Desired: wanted{p}, Performer: here, Reporter: here, Host: here, Checkpoints: checkpoint.Nowhere{},
		Gate: podworker.NewGate(1, 1, func(types.UID) {}), Policy: func() *decide.Policy { return &policy },
		Hash: func(*v1.Pod, *v1.Container) string { return "" }, Sizes: crispec.Sizes,
		Gone: func(types.UID) {}, Log: slog.New(slog.DiscardHandler),
	}, pod.RefOf(p))
	w.Look("source")

	mux := http.NewServeMux()
	mux.HandleFunc("GET /setcache", func(rw http.ResponseWriter, r *http.Request) {
		uid := types.UID(r.URL.Query().Get("id"))
		c.set(uid)
		if uid == p.UID {
			w.Look("runtime")
		}
		fmt.Fprintln(rw, "set")
	})
	err := lab.Serve(ctx, l, mux)
	cancel()
	w.Close()
	wg.Wait()
	return err
}
