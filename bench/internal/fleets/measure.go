package fleets

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/wherry-node/wherry/bench/internal/rig"
)

// Load says how much work an arm gets.
type Load struct {
	Nodes, Pods int
	Rest        time.Duration // how long the nodes are watched at rest
	Patience    time.Duration // how long one of the steps may take
	Log         func(format string, args ...any)
}

// Result is what was measured of one arm. Durations are in seconds, sizes in bytes.
type Result struct {
	Arm         string
	Nodes, Pods int
	// NodesReady is from the begin until all nodes were Ready, PodsReady from the first pod's creation until all were Ready, and PodsGone from the
	// first deletion until the API had none.
	NodesReady, PodsReady, PodsGone float64
	// EventsLate is how long after PodsReady no event of the arm waited any more.
	EventsLate float64
	// Memory is the resident memory of the process with all nodes and pods at rest; 0: there is no such process.
	Memory int64
	// CPU is the processor time of the process at rest, in percent of a core.
	CPU float64
	// Requests are those to the API server at rest, per node and minute. They include those of the control plane's own components.
	Requests float64
	// LateP50 and LateP99 say how late leases were renewed at rest: the time since the renewal before, less 10 s. Renewals is their number.
	LateP50, LateP99 float64
	Renewals         int
	// Lost is how often a node that was Ready was no longer, before the end.
	Lost int
}

// Measure runs the load with an arm. The cluster must have no nodes and no pods in Namespace; after Measure it has none again.
func Measure(ctx context.Context, c *Cluster, a Arm, l Load) (r Result, err error) {
	r = Result{Arm: a.Name(), Nodes: l.Nodes, Pods: l.Pods}
	defer func() { err = errors.Join(err, removeAll(context.WithoutCancel(ctx), c, a, l)) }()
	began := time.Now()
	if err := a.Start(ctx, l.Nodes); err != nil {
		return r, fmt.Errorf("start: %w", err)
	}
	at, err := rig.Within(ctx, l.Patience, func(ctx context.Context) (time.Time, error) { return c.Nodes(ctx, l.Nodes) })
	if err != nil {
		return r, err
	}
	r.NodesReady = at.Sub(began).Seconds()
	l.Log("  %s: %d nodes Ready in %.1f s", a.Name(), l.Nodes, r.NodesReady)
	if err := c.Has(l.Nodes, a.Node); err != nil {
		return r, err
	}

	pods := make([]*v1.Pod, l.Pods)
	began = time.Now()
	if err := each(ctx, l.Pods, func(i int) (err error) {
		if pods[i], err = c.Client.CoreV1().Pods(Namespace).Create(ctx, pod(i, a.Node(i%l.Nodes)), metav1.CreateOptions{}); err != nil {
			return err
		}
		return a.Created(ctx, pods[i])
	}); err != nil {
		return r, fmt.Errorf("create pods: %w", err)
	}
	if at, err = rig.Within(ctx, l.Patience, func(ctx context.Context) (time.Time, error) { return c.Pods(ctx, l.Pods) }); err != nil {
		return r, err
	}
	r.PodsReady = at.Sub(began).Seconds()
	l.Log("  %s: %d pods Ready in %.1f s", a.Name(), l.Pods, r.PodsReady)
	for owes := 1; owes > 0; {
		if owes, err = a.Owes(ctx); err != nil {
			return r, err
		}
		r.EventsLate = time.Since(at).Seconds()
		if owes > 0 {
			if err := rig.Sleep(ctx, time.Second); err != nil {
				return r, err
			}
		}
	}
	l.Log("  %s: no event waits %.1f s later", a.Name(), r.EventsLate)
	if err := rest(ctx, c, a, l, &r); err != nil {
		return r, err
	}
	began = time.Now()
	if err := each(ctx, l.Pods, func(i int) error {
		if err := c.Client.CoreV1().Pods(Namespace).Delete(ctx, pods[i].Name, metav1.DeleteOptions{}); err != nil {
			return err
		}
		return a.Deleted(ctx, pods[i])
	}); err != nil {
		return r, fmt.Errorf("delete pods: %w", err)
	}
	if at, err = rig.Within(ctx, l.Patience, func(ctx context.Context) (time.Time, error) { return c.Pods(ctx, 0) }); err != nil {
		return r, err
	}
	r.PodsGone = at.Sub(began).Seconds()
	l.Log("  %s: %d pods gone in %.1f s", a.Name(), l.Pods, r.PodsGone)
	_, lost := c.TakeLate()
	r.Lost += lost
	return r, nil
}

// rest measures the nodes while nothing happens. Before that it waits a moment, so that the work of the start has ended.
func rest(ctx context.Context, c *Cluster, a Arm, l Load, r *Result) error {
	if err := rig.Sleep(ctx, 2*renewEvery); err != nil {
		return err
	}
	_, r.Lost = c.TakeLate()
	pid := a.PID()
	used := func() (time.Duration, error) {
		if pid == 0 {
			return 0, nil
		}
		return rig.CPUOf(pid)
	}
	requests, err1 := c.Requests(ctx)
	cpu, err2 := used()
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	began := time.Now()
	if err := rig.Sleep(ctx, l.Rest); err != nil {
		return err
	}
	took := time.Since(began)
	after, err1 := used()
	requestsAfter, err2 := c.Requests(ctx)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	r.CPU = 100 * (after - cpu).Seconds() / took.Seconds()
	r.Requests = (requestsAfter - requests) / took.Minutes() / float64(l.Nodes)
	late, lost := c.TakeLate()
	r.Renewals, r.Lost = len(late), r.Lost+lost
	if len(late) > 0 {
		r.LateP50, r.LateP99 = late[len(late)/2].Seconds(), late[len(late)*99/100].Seconds()
	}
	if pid != 0 {
		m, err := rig.MemoryOf(pid)
		if err != nil {
			return err
		}
		r.Memory = m.RSS
	}
	return nil
}

// removeAll ends the arm, and removes the nodes, their leases and the pods that are left.
func removeAll(ctx context.Context, c *Cluster, a Arm, l Load) error {
	a.Stop()
	ctx, cancel := context.WithTimeout(ctx, l.Patience)
	defer cancel()
	now := metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}
	if err := errors.Join(
		c.Client.CoreV1().Pods(Namespace).DeleteCollection(ctx, now, metav1.ListOptions{}),
		c.Client.CoreV1().Nodes().DeleteCollection(ctx, now, metav1.ListOptions{}),
		c.Client.CoordinationV1().Leases(v1.NamespaceNodeLease).DeleteCollection(ctx, now, metav1.ListOptions{}),
	); err != nil {
		return fmt.Errorf("remove what %s left: %w", a.Name(), err)
	}
	_, err1 := c.Pods(ctx, 0)
	_, err2 := c.Nodes(ctx, 0)
	c.TakeLate()
	return errors.Join(err1, err2)
}

// pod returns the i-th pod. Its containers end at once when they are asked to.
func pod(i int, node string) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("pod-%d", i), Namespace: Namespace, Labels: map[string]string{"app": "bench"}},
		Spec: v1.PodSpec{
			NodeName: node, TerminationGracePeriodSeconds: new(int64(1)), EnableServiceLinks: new(bool), AutomountServiceAccountToken: new(bool),
			Containers: []v1.Container{{Name: "main", Image: "registry.example/app:1", ImagePullPolicy: v1.PullIfNotPresent}},
		},
	}
}
