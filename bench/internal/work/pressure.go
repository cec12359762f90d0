package work

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/wherry-node/wherry/bench/internal/rig"
)

// All pods together may use podsMemory. The agent has to evict a pod when less than leastMemory of it is available, and the kernel kills a
// process when nothing is.
const (
	podsMemory  = 400 << 20
	leastMemory = 128 << 20
)

// eaters is how many pods eat memory, one after another, at each speed.
const eaters = 5

// speeds are how fast a pod eats memory: after each pause it takes 10 MB more.
var speeds = []struct{ name, pause string }{{"30 MB/s", "0.3"}, {"100 MB/s", "0.1"}}

// pressure measures how an agent protects the memory of its pods: the time from the moment at which a pod has crossed the threshold until its
// memory is free, and how many pods the kernel had to kill.
func (s *Session) pressure(ctx context.Context) (err error) {
	all, err := rig.MemoryOfMachine()
	if err != nil {
		return err
	}
	if err := s.stop(ctx); err != nil {
		return err
	}
	s.Agent.Configure(fmt.Sprintf("evictionHard: {memory.available: \"%d\"}\nevictionPressureTransitionPeriod: 1s\nsystemReserved: {memory: \"%d\"}\n", leastMemory, all-podsMemory))
	defer func() {
		s.Agent.Configure("")
		err = errors.Join(err, s.anew(context.WithoutCancel(ctx)))
	}()
	if _, err := s.start(ctx, s.Rig.Socket); err != nil {
		return err
	}
	for _, speed := range speeds {
		killed := 0
		for i := range eaters {
			byKernel, err := s.eat(ctx, fmt.Sprintf("eats-%d-%s-%d", s.round, speed.pause[2:], i), speed.pause, "a pod eats "+speed.name)
			if err != nil {
				return fmt.Errorf("a pod that eats %s: %w", speed.name, err)
			}
			if byKernel {
				killed++
			}
		}
		s.Samples.add("a pod eats "+speed.name+", killed by the kernel, %", 100*float64(killed)/eaters)
	}
	return nil
}

// eat runs one pod that eats memory until it ends. It reports whether the kernel has killed it.
func (s *Session) eat(ctx context.Context, name, pause, what string) (byKernel bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	if err := s.create(ctx, name, func(p *v1.Pod) {
		p.Spec.RestartPolicy = v1.RestartPolicyNever
		c := &p.Spec.Containers[0]
		// tail keeps all that it reads, up to this number of bytes. If the kernel kills it, head cannot write any more, and the container ends.
		c.Command = []string{"sh", "-c", "while head -c 10000000 /dev/zero; do sleep " + pause + "; done | tail -c 2000000000"}
		// With a request the pod is not BestEffort, so the node accepts the next one although it was short of memory a moment ago.
		c.Resources.Requests = v1.ResourceList{v1.ResourceMemory: resource.MustParse("10Mi")}
	}); err != nil {
		return false, err
	}
	crossed, err := s.whenMemory(ctx, func(used int64) bool { return used > podsMemory-leastMemory })
	if err != nil {
		return false, fmt.Errorf("wait until it crosses the threshold: %w", err)
	}
	free, err := s.whenMemory(ctx, func(used int64) bool { return used < leastMemory })
	if err != nil {
		return false, fmt.Errorf("wait until its memory is free: %w", err)
	}
	s.Samples.took(what+", threshold to free", free.Sub(crossed))
	p, err := s.failed(ctx, name)
	if err != nil {
		return false, err
	}
	for i := range p.Status.ContainerStatuses {
		if end := p.Status.ContainerStatuses[i].State.Terminated; end != nil && (end.Reason == "OOMKilled" || p.Status.Reason != "Evicted") {
			byKernel = true
		}
	}
	if err := s.deleteNow(ctx, name); err != nil {
		return false, err
	}
	if _, err := s.watch.Gone(ctx, []string{name}); err != nil {
		return false, err
	}
	return byKernel, rig.Sleep(ctx, 3*time.Second) // the pressure ends
}

// whenMemory waits until is returns true for the memory that all pods use, and returns when that was.
func (s *Session) whenMemory(ctx context.Context, is func(used int64) bool) (time.Time, error) {
	for {
		used, err := s.Agent.PodsMemory()
		if err != nil {
			return time.Time{}, err
		}
		if is(used) {
			return time.Now(), nil
		}
		if err := rig.Sleep(ctx, 5*time.Millisecond); err != nil {
			return time.Time{}, fmt.Errorf("the pods use %d MiB: %w", used>>20, err)
		}
	}
}

// failed waits until a pod has Failed.
func (s *Session) failed(ctx context.Context, name string) (*v1.Pod, error) {
	for {
		p, err := s.Rig.Client.CoreV1().Pods(rig.Namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		if p.Status.Phase == v1.PodFailed {
			return p, nil
		}
		if err := rig.Sleep(ctx, 100*time.Millisecond); err != nil {
			return nil, fmt.Errorf("the pod %s is %s, not Failed: %w", name, p.Status.Phase, err)
		}
	}
}
