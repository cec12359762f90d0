// Command many runs many node agents in one process. Each is a node of a real control plane with a simulated runtime. The command creates
// pods on each node, waits until all are Running, and prints what an agent and an idle pod cost.
//
//	go run ./examples/many --kubeconfig .wherry/admin.kubeconfig --nodes 100 --pods 10
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"sync"
	"syscall"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/wherry-node/wherry/agent"
	"github.com/wherry-node/wherry/agent/simulated"
)

type options struct {
	kubeconfig string
	nodes      int
	pods       int
	timeout    time.Duration
	keep       bool
	verbose    bool
}

func main() {
	var o options
	flag.StringVar(&o.kubeconfig, "kubeconfig", ".wherry/admin.kubeconfig", "administrator of the control plane")
	flag.IntVar(&o.nodes, "nodes", 100, "node agents in this process")
	flag.IntVar(&o.pods, "pods", 10, "pods per node")
	flag.DurationVar(&o.timeout, "timeout", 5*time.Minute, "how long to wait for nodes and pods")
	flag.BoolVar(&o.keep, "keep", false, "stay, and leave nodes and pods where they are, until interrupted")
	flag.BoolVar(&o.verbose, "v", false, "log what the agents do")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "many:", err)
		os.Exit(1)
	}
}

// run runs the demonstration. At the end it removes the namespace and the nodes that it created.
func run(ctx context.Context, o options) (err error) {
	cfg, err := clientcmd.BuildConfigFromFlags("", o.kubeconfig)
	if err != nil {
		return fmt.Errorf("read kubeconfig: %w (make up starts a control plane)", err)
	}
	cfg.QPS, cfg.Burst = -1, -1
	admin, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return err
	}
	s := &stage{options: o, config: cfg, admin: admin, namespace: fmt.Sprintf("many-%d", os.Getpid())}
	defer func() { err = errors.Join(err, s.clean()) }()
	agents, end := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer end()

	before := usage()
	began := time.Now()
	failed := make(chan error, o.nodes)
	for i := range o.nodes {
		a, err := s.agent(i)
		if err != nil {
			return err
		}
		wg.Go(func() {
			if err := a.Run(agents); err != nil {
				failed <- err
			}
		})
	}
	wait, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	if err := s.waitNodes(wait, failed); err != nil {
		return err
	}
	fmt.Printf("%d nodes Ready in %s\n", o.nodes, time.Since(began).Round(time.Millisecond))
	idle := usage()
	idle.since(before).print("per agent, without pods", o.nodes)

	began = time.Now()
	if err := s.createPods(wait); err != nil {
		return err
	}
	if err := s.waitPods(wait, failed); err != nil {
		return err
	}
	fmt.Printf("%d pods Running in %s\n", o.nodes*o.pods, time.Since(began).Round(time.Millisecond))
	settle(wait)
	full := usage()
	full.since(idle).print("per idle pod", o.nodes*o.pods)
	full.since(before).print("per agent with its pods", o.nodes)
	if o.keep {
		fmt.Println("staying; interrupt to end")
		<-ctx.Done()
	}
	return nil
}

// stage has the options, the clients of the control plane, and the namespace that the demonstration creates there.
type stage struct {
	options
	config    *rest.Config
	admin     kubernetes.Interface
	namespace string
}

func (s *stage) node(i int) string { return fmt.Sprintf("%s-%03d", s.namespace, i) }

// agent returns the agent of the i-th node. It impersonates the node's identity, so that the Node authorizer and NodeRestriction treat it
// as a node that has joined.
func (s *stage) agent(i int) (*agent.Agent, error) {
	name := s.node(i)
	as := rest.CopyConfig(s.config)
	as.Impersonate = rest.ImpersonationConfig{UserName: "system:node:" + name, Groups: []string{"system:nodes", "system:authenticated"}}
	as.ContentType = "application/vnd.kubernetes.protobuf"
	as.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	log := slog.New(slog.DiscardHandler)
	if s.verbose {
		log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	kubelet := agent.DefaultConfiguration()
	off := false
	kubelet.EnableServer = &off
	deps := simulated.New(simulated.Config{Seed: uint64(i)}).Deps()
	deps.Client, deps.Log = as, log
	return agent.New(agent.Config{NodeName: name, Kubelet: kubelet}, deps)
}

// each calls f for the numbers 0 to n-1, at most 16 at a time, and returns all errors.
func each(n int, f func(i int) error) error {
	var (
		wg    sync.WaitGroup
		mu    sync.Mutex
		errs  []error
		slots = make(chan struct{}, 16)
	)
	for i := range n {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			if err := f(i); err != nil {
				mu.Lock()
				errs = append(errs, err)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

func (s *stage) createPods(ctx context.Context) error {
	_, err := s.admin.CoreV1().Namespaces().Create(ctx, &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.namespace}}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	// The API server refuses pods until the namespace has its default service account, which a controller creates a moment later.
	err = poll(ctx, nil, func() (bool, error) {
		_, err := s.admin.CoreV1().ServiceAccounts(s.namespace).Get(ctx, "default", metav1.GetOptions{})
		return err == nil, nil
	})
	if err != nil {
		return err
	}
	return each(s.nodes*s.pods, func(i int) error {
		grace := int64(1)
		_, err := s.admin.CoreV1().Pods(s.namespace).Create(ctx, &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("pod-%d", i)},
			Spec: v1.PodSpec{
				NodeName: s.node(i % s.nodes), TerminationGracePeriodSeconds: &grace,
				Containers: []v1.Container{{Name: "app", Image: "registry.example/app:1"}},
			},
		}, metav1.CreateOptions{})
		return err
	})
}

func (s *stage) waitNodes(ctx context.Context, failed <-chan error) error {
	return poll(ctx, failed, func() (bool, error) {
		list, err := s.admin.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		ready := map[string]bool{}
		for i := range list.Items {
			for _, c := range list.Items[i].Status.Conditions {
				if c.Type == v1.NodeReady && c.Status == v1.ConditionTrue {
					ready[list.Items[i].Name] = true
				}
			}
		}
		for i := range s.nodes {
			if !ready[s.node(i)] {
				return false, nil
			}
		}
		return true, nil
	})
}

func (s *stage) waitPods(ctx context.Context, failed <-chan error) error {
	return poll(ctx, failed, func() (bool, error) {
		list, err := s.admin.CoreV1().Pods(s.namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		running := 0
		for i := range list.Items {
			switch list.Items[i].Status.Phase {
			case v1.PodRunning:
				running++
			case v1.PodFailed:
				return false, fmt.Errorf("pod %s failed: %s: %s", list.Items[i].Name, list.Items[i].Status.Reason, list.Items[i].Status.Message)
			case v1.PodPending, v1.PodSucceeded, v1.PodUnknown:
			}
		}
		return running == s.nodes*s.pods, nil
	})
}

// clean deletes the pods, the namespace and the nodes. It deletes pods with grace period 0, because the agents have ended and none would
// confirm that a pod has stopped.
func (s *stage) clean() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	now := int64(0)
	err := each(s.nodes*s.pods, func(i int) error {
		return unlessGone(s.admin.CoreV1().Pods(s.namespace).Delete(ctx, fmt.Sprintf("pod-%d", i), metav1.DeleteOptions{GracePeriodSeconds: &now}))
	})
	err = errors.Join(err, unlessGone(s.admin.CoreV1().Namespaces().Delete(ctx, s.namespace, metav1.DeleteOptions{})))
	return errors.Join(err, each(s.nodes, func(i int) error {
		return unlessGone(s.admin.CoreV1().Nodes().Delete(ctx, s.node(i), metav1.DeleteOptions{}))
	}))
}

// unlessGone returns err, or nil if err says that the object does not exist.
func unlessGone(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// poll calls done again and again until it returns true or an error, until failed has an error, or until ctx ends.
func poll(ctx context.Context, failed <-chan error, done func() (bool, error)) error {
	t := time.NewTicker(200 * time.Millisecond)
	defer t.Stop()
	for {
		ok, err := done()
		if err != nil || ok {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("not ready in time: %w", ctx.Err())
		case err := <-failed:
			return err
		case <-t.C:
		}
	}
}

// settle waits five seconds, until the agents are idle: the measurement is about idle pods, not about starts.
func settle(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(5 * time.Second):
	}
}

// use is what the process uses: goroutines, and bytes of heap.
type use struct {
	goroutines int
	heap       int64
}

func usage() use {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return use{runtime.NumGoroutine(), int64(m.HeapAlloc)}
}

func (u use) since(v use) use { return use{u.goroutines - v.goroutines, u.heap - v.heap} }

func (u use) print(what string, n int) {
	fmt.Printf("%-24s %6.1f goroutines %8.1f KiB heap\n", what+":", float64(u.goroutines)/float64(n), float64(u.heap)/float64(n)/1024)
}
