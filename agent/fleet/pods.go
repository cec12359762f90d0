package fleet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// creations is how many objects are created at the same time.
const creations = 16

// accountWait bounds the wait for the service account of a namespace, which a controller creates after the namespace.
const accountWait = 30 * time.Second

// MaxPods bounds how many pods CreatePods and PlacePods create.
const MaxPods = 1_000_000

// CreatePods creates count pods that only the fleet's nodes can run. The scheduler chooses the nodes. The pods are named FLEET-pod-N. They
// have the labels app=FLEET and wherry.dev/fleet, and one container that runs until it is stopped. The namespace must exist. Pods that
// exist already are counted as created. Without Config.Keep, Run removes the pods when it ends.
func (f *Fleet) CreatePods(ctx context.Context, namespace string, count int) error {
	if err := checkCount(count); err != nil {
		return err
	}
	if err := f.awaitAccount(ctx, namespace); err != nil {
		return err
	}
	return f.createAll(ctx, count, func(i int) error {
		if _, err := f.api.Pods(namespace).Create(ctx, f.pod(namespace, i+1), metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("create pod %d of %d: %w", i+1, count, err)
		}
		return nil
	})
}

// PlacePods creates count pods as CreatePods does, and then the others, one after another. It places them itself: on the fleet's nodes in turn, in the
// order of their groups and numbers, unless a pod names a node. It is for a cluster without a scheduler.
func (f *Fleet) PlacePods(ctx context.Context, namespace string, count int, others ...*v1.Pod) error {
	if err := checkCount(count); err != nil {
		return err
	}
	f.mu.Lock()
	want := slices.Clone(f.want)
	f.mu.Unlock()
	var nodes []string
	for i := range f.cfg.Groups {
		for index := range want[i] {
			nodes = append(nodes, f.cfg.Groups[i].nodeName(f.cfg.Name, index+1))
		}
	}
	if len(nodes) == 0 {
		return errors.New("create pods: the fleet has no node")
	}
	next := 0
	for i := range count + len(others) {
		var p *v1.Pod
		if i < count {
			p = f.pod(namespace, i+1)
		} else {
			p = others[i-count].DeepCopy()
		}
		if p.Namespace == "" {
			p.Namespace = namespace
		}
		if p.Spec.NodeName == "" {
			p.Spec.NodeName = nodes[next%len(nodes)]
			next++
		}
		if _, err := f.api.Pods(p.Namespace).Create(ctx, p, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("create pod %s/%s: %w", p.Namespace, p.Name, err)
		}
	}
	return nil
}

// checkCount returns an error if nobody can mean this number of pods.
func checkCount(count int) error {
	if count < 0 || count > MaxPods {
		return fmt.Errorf("create %d pods: use 0 to %d", count, MaxPods)
	}
	return nil
}

// createAll calls create with the numbers from 0 to count-1, several at a time. The error that an object exists already counts as success.
// After another error, createAll makes no more calls. Creation says how far it is.
func (f *Fleet) createAll(ctx context.Context, count int, create func(i int) error) error {
	var (
		mu   sync.Mutex
		errs []error
	)
	failed := func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(errs) > 0
	}
	f.made.done.Store(0)
	f.made.all.Store(int64(count))
	numbers := make([]int, count)
	for i := range numbers {
		numbers[i] = i
	}
	limited(numbers, creations, func(i int) {
		if failed() || ctx.Err() != nil {
			return
		}
		if err := create(i); err != nil && !apierrors.IsAlreadyExists(err) {
			mu.Lock()
			defer mu.Unlock()
			errs = append(errs, err)
			return
		}
		f.made.done.Add(1)
	})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return errors.Join(errs...)
}

// tally says how many of the objects that are to be created exist.
type tally struct{ done, all atomic.Int64 }

// Creation returns how many objects CreatePods or CreateWorkloads has created, and how many it creates in all. It may be called while they run.
func (f *Fleet) Creation() (done, all int) { return int(f.made.done.Load()), int(f.made.all.Load()) }

// awaitAccount waits until the default service account of the namespace exists, which pods need.
func (f *Fleet) awaitAccount(ctx context.Context, namespace string) error {
	ctx, cancel := context.WithTimeout(ctx, accountWait)
	defer cancel()
	for {
		_, err := f.api.ServiceAccounts(namespace).Get(ctx, "default", metav1.GetOptions{})
		if err == nil {
			return nil
		}
		if !apierrors.IsNotFound(err) || !pause(ctx, 100*time.Millisecond) {
			return fmt.Errorf("find the service account default of namespace %s: %w", namespace, err)
		}
	}
}

func (f *Fleet) pod(namespace string, i int) *v1.Pod {
	grace := int64(1)
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: fmt.Sprintf("%s-pod-%d", f.cfg.Name, i), Labels: map[string]string{"app": f.cfg.Name, LabelFleet: f.cfg.Name},
		},
		Spec: v1.PodSpec{
			NodeSelector:                  map[string]string{LabelFleet: f.cfg.Name},
			Tolerations:                   []v1.Toleration{{Key: TaintSimulated, Operator: v1.TolerationOpExists}},
			TerminationGracePeriodSeconds: &grace,
			AutomountServiceAccountToken:  new(false), // nothing in a simulated container uses a token, and the API server signs each one
			Containers:                    []v1.Container{{Name: "app", Image: "registry.example/app:1"}},
		},
	}
}
