package fleets

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// Arm makes nodes appear and runs their pods.
type Arm interface {
	Name() string
	// Start makes n nodes appear in the cluster. It may return before they are Ready.
	Start(ctx context.Context, n int) error
	// Node returns the name of the i-th node.
	Node(i int) string
	// PID returns the process that simulates the nodes; 0: this process.
	PID() int
	// Created and Deleted are called after a pod was created, and after its deletion was requested.
	Created(ctx context.Context, p *v1.Pod) error
	Deleted(ctx context.Context, p *v1.Pod) error
	// Owes returns how many events the arm has still to write.
	Owes(ctx context.Context) (int, error)
	// Stop ends the nodes. What it leaves in the API is removed by its caller.
	Stop()
}

// Program is an Arm that is a program.
type Program struct {
	Arm string
	// Args are the program and its arguments for n nodes.
	Args func(n int) []string
	// Format makes the name of a node from its number, which counts from First. It has one verb.
	Format string
	First  int
	// Make, when set, creates the Node objects, for a program that does not create them itself.
	Make func(ctx context.Context, n int) error
	Log  string // file for the output of the program
	// Waits, when set, returns how many events wait in the program.
	Waits func(ctx context.Context) (int, error)

	cmd  *exec.Cmd
	done chan struct{}
}

// Name returns the name of the arm.
func (p *Program) Name() string { return p.Arm }

// Node returns the name of the i-th node.
func (p *Program) Node(i int) string { return fmt.Sprintf(p.Format, p.First+i) }

// PID returns the process ID of the program.
func (p *Program) PID() int { return p.cmd.Process.Pid }

// Created does nothing: the program sees the pod.
func (p *Program) Created(context.Context, *v1.Pod) error { return nil }

// Deleted does nothing: the program sees the deletion.
func (p *Program) Deleted(context.Context, *v1.Pod) error { return nil }

// Owes returns how many events wait in the program.
func (p *Program) Owes(ctx context.Context) (int, error) {
	if p.Waits == nil {
		return 0, nil
	}
	return p.Waits(ctx)
}

// Start starts the program and creates the Node objects.
func (p *Program) Start(ctx context.Context, n int) error {
	log, err := os.OpenFile(p.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	args := p.Args(n)
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return err
	}
	done := make(chan struct{})
	p.cmd, p.done = cmd, done
	go func() {
		defer close(done)
		_ = cmd.Wait() // the error only says that a signal ended the process
	}()
	if p.Make == nil {
		return nil
	}
	return p.Make(ctx, n)
}

// Stop ends the program.
func (p *Program) Stop() {
	if p.cmd == nil {
		return
	}
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(5 * time.Minute): // a fleet removes its nodes and pods first
		_ = p.cmd.Process.Kill()
		<-p.done
	}
	p.cmd = nil
}

// KwokVersion is the version of KWOK that is measured.
const KwokVersion = "v0.8.0"

// BuildKwok builds KWOK from its Go module into a directory, and returns the arguments with which it runs: the program, and the stages that
// its documentation recommends for many nodes (pods become ready and end at once, nodes have leases).
func BuildKwok(ctx context.Context, bin string) ([]string, error) {
	const module = "sigs.k8s.io/kwok@" + KwokVersion
	out, err := exec.CommandContext(ctx, "go", "mod", "download", "-json", module).Output()
	if err != nil {
		return nil, fmt.Errorf("download %s: %w", module, err)
	}
	var at struct{ Dir string }
	if err := json.Unmarshal(out, &at); err != nil {
		return nil, err
	}
	install := exec.CommandContext(ctx, "go", "install", "sigs.k8s.io/kwok/cmd/kwok@"+KwokVersion)
	install.Env = append(os.Environ(), "GOBIN="+bin, "CGO_ENABLED=0", "GOFLAGS=")
	if out, err := install.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build KWOK: %w\n%s", err, out)
	}
	args := []string{filepath.Join(bin, "kwok")}
	for _, stage := range []string{
		"node/fast/node-initialize.yaml", "node/heartbeat-with-lease/node-heartbeat-with-lease.yaml",
		"pod/fast/pod-ready.yaml", "pod/fast/pod-complete.yaml", "pod/fast/pod-delete.yaml",
	} {
		args = append(args, "--config", filepath.Join(at.Dir, "kustomize", "stage", stage))
	}
	return args, nil
}

// Kwok returns the arm of KWOK. args come from BuildKwok.
func Kwok(args []string, kubeconfig, log string, client kubernetes.Interface) *Program {
	p := &Program{Arm: "KWOK " + KwokVersion, Format: "kwok-%d", Log: log}
	p.Args = func(int) []string {
		return append(args[:len(args):len(args)], "--kubeconfig", kubeconfig, "--manage-all-nodes=true", "--node-lease-duration-seconds=40", "--server-address=127.0.0.1:0")
	}
	p.Make = func(ctx context.Context, n int) error {
		return each(ctx, n, func(i int) error {
			node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: p.Node(i), Annotations: map[string]string{"kwok.x-k8s.io/node": "fake"}}, Status: v1.NodeStatus{Capacity: size(), Allocatable: size()}}
			_, err := client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
			return err
		})
	}
	return p
}

// Wherry returns the arm of wherry fleet. more are additional flags.
func Wherry(program, kubeconfig, log string, more []string) *Program {
	return &Program{Arm: "wherry fleet", Format: "bench-node-%d", First: 1, Log: log, Args: func(n int) []string {
		return append([]string{program, "fleet", "--kubeconfig", kubeconfig, "--yes", "--no-taint", "--name", "bench", "--nodes", strconv.Itoa(n)}, more...)
	}, Waits: func(ctx context.Context) (int, error) {
		out, err := exec.CommandContext(ctx, program, "fleet", "get", "--name", "bench", "-o", "json").Output()
		if err != nil {
			return 0, fmt.Errorf("wherry fleet get: %w", err)
		}
		var state struct {
			Requests struct{ EventsWaiting int }
		}
		if err := json.Unmarshal(out, &state); err != nil {
			return 0, fmt.Errorf("wherry fleet get: %w", err)
		}
		return state.Requests.EventsWaiting, nil
	}}
}

func size() v1.ResourceList {
	return v1.ResourceList{v1.ResourceCPU: resource.MustParse("100"), v1.ResourceMemory: resource.MustParse("256Gi"), v1.ResourcePods: resource.MustParse("1000")}
}

// Writer is an Arm that only writes what any simulator has to write: a Node and its lease, one status of each pod, and its end.
type Writer struct {
	Client kubernetes.Interface

	wg     sync.WaitGroup
	cancel context.CancelFunc
}

// Name returns the name of the arm.
func (w *Writer) Name() string { return "only what must be written" }

// Node returns the name of the i-th node.
func (w *Writer) Node(i int) string { return fmt.Sprintf("writer-%d", i) }

// PID returns 0: the nodes are in this process.
func (w *Writer) PID() int { return 0 }

// Owes returns 0: the client writes no events.
func (w *Writer) Owes(context.Context) (int, error) { return 0, nil }

// Start creates the Nodes and their leases, and renews the leases until Stop is called.
func (w *Writer) Start(ctx context.Context, n int) error {
	leases := w.Client.CoordinationV1().Leases(v1.NamespaceNodeLease)
	err := each(ctx, n, func(i int) error {
		now := metav1.Now()
		node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: w.Node(i)}, Status: v1.NodeStatus{
			Capacity: size(), Allocatable: size(),
			Conditions: []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue, Reason: "KubeletReady", LastHeartbeatTime: now, LastTransitionTime: now}},
		}}
		if _, err := w.Client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); err != nil {
			return err
		}
		_, err := leases.Create(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: w.Node(i)}, Spec: coordinationv1.LeaseSpec{
			HolderIdentity: new(w.Node(i)), LeaseDurationSeconds: new(int32(40)), RenewTime: &metav1.MicroTime{Time: time.Now()},
		}}, metav1.CreateOptions{})
		return err
	})
	if err != nil {
		return err
	}
	ctx, w.cancel = context.WithCancel(context.WithoutCancel(ctx))
	w.wg.Go(func() {
		for next := time.Now(); ; {
			next = next.Add(renewEvery)
			select {
			case <-ctx.Done():
				return
			case <-time.After(time.Until(next)):
			}
			_ = each(ctx, n, func(i int) error { // a lease that is not renewed shows as one that is late
				patch := fmt.Sprintf(`{"spec":{"renewTime":%q}}`, time.Now().UTC().Format(metav1.RFC3339Micro))
				_, err := leases.Patch(ctx, w.Node(i), types.MergePatchType, []byte(patch), metav1.PatchOptions{})
				return err
			})
		}
	})
	return nil
}

// Stop ends the renewals.
func (w *Writer) Stop() {
	if w.cancel != nil {
		w.cancel()
		w.wg.Wait()
	}
}

// Created writes the one status that says that a pod runs.
func (w *Writer) Created(ctx context.Context, p *v1.Pod) error {
	now := metav1.Now()
	status := v1.PodStatus{Phase: v1.PodRunning, StartTime: &now, PodIP: "10.0.0.1", PodIPs: []v1.PodIP{{IP: "10.0.0.1"}}}
	for _, t := range []v1.PodConditionType{v1.PodScheduled, v1.PodInitialized, v1.ContainersReady, v1.PodReady} {
		status.Conditions = append(status.Conditions, v1.PodCondition{Type: t, Status: v1.ConditionTrue, LastTransitionTime: now})
	}
	for _, c := range p.Spec.Containers {
		status.ContainerStatuses = append(status.ContainerStatuses, v1.ContainerStatus{
			Name: c.Name, Image: c.Image, Ready: true, Started: new(true), State: v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: now}},
		})
	}
	patch, err := json.Marshal(map[string]any{"status": status})
	if err != nil {
		return err
	}
	_, err = w.Client.CoreV1().Pods(Namespace).Patch(ctx, p.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	return err
}

// Deleted removes a pod that is being deleted.
func (w *Writer) Deleted(ctx context.Context, p *v1.Pod) error {
	err := w.Client.CoreV1().Pods(Namespace).Delete(ctx, p.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// workers is how many requests this package sends at the same time.
const workers = 16

// each calls do for the numbers below n, workers at a time, until one call fails. It returns the errors.
func each(ctx context.Context, n int, do func(i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	next := make(chan int)
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for i := range next {
				if err := do(i); err != nil {
					cancel(err)
				}
			}
		})
	}
	for i := 0; i < n && ctx.Err() == nil; i++ {
		select {
		case next <- i:
		case <-ctx.Done():
		}
	}
	close(next)
	wg.Wait()
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		return cause
	}
	return ctx.Err()
}
