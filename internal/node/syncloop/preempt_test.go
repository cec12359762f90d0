package syncloop

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/wherry-node/wherry/internal/core/admit"
	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/edge/podset"
)

// A critical pod needs 4 CPUs, which a pod with 3 CPUs and one with 2 CPUs have to leave. While the one with 3 CPUs takes its time to end and the
// other has ended already, the node does not end a third pod that has the 2 CPUs which are still short. This holds for a new pod and for a
// resize.
func TestPreemptionEndsNoMoreThanItNeeds(t *testing.T) {
	t.Parallel()
	critical := func(cpu string) *v1.Pod {
		p := running("critical", cpu)
		p.Spec.Priority = new(int32(2000000000))
		return p
	}
	for name, c := range map[string]struct {
		capacity string
		before   []*v1.Pod
		asks     *v1.Pod
		want     string
	}{
		"a new pod": {"7", nil, critical("4"), "set-up critical"},
		"a resize":  {"8", []*v1.Pod{critical("1")}, critical("5"), "resize critical"},
	} {
		node := &v1.Node{Status: v1.NodeStatus{Allocatable: v1.ResourceList{v1.ResourceCPU: resource.MustParse(c.capacity), v1.ResourcePods: resource.MustParse("110")}}}
		b := &bare{node: true}
		b.fits = func(p *v1.Pod, others []*v1.Pod) admit.Result {
			return admit.Admit(admit.Input{Pod: p, Others: others, Node: node, OS: "linux"})
		}
		b.grows = func(p, allocated *v1.Pod, others []*v1.Pod) admit.ResizeResult {
			return admit.Resize(admit.ResizeInput{Pod: p, Allocated: allocated, Others: others, Node: node})
		}
		b.fails = func(job pod.Job) error {
			if job.Action.Op == pod.OpTearDown && job.Ref.Name == "slow" {
				time.Sleep(30 * time.Second)
			}
			return nil
		}
		run(t, b, func(set *podset.Set) {
			set.Replace(pod.SourceAPI, append([]*v1.Pod{running("slow", "3"), running("two-a", "2"), running("two-b", "2")}, c.before...))
			time.Sleep(time.Second)
			set.Upsert(pod.SourceAPI, c.asks)
			time.Sleep(10 * time.Second)
			if b.count(&b.done, "tear-down two-b") != 1 || b.count(&b.done, c.want) != 0 {
				t.Errorf("%s: after 10 s: done %q", name, b.done)
			}
			time.Sleep(time.Minute)
			for victim, n := range map[string]int{"slow": 1, "two-a": 0, "two-b": 1} {
				if got := b.count(&b.events, admit.ReasonPreempting+" "+victim); got != n {
					t.Errorf("%s: %s was preempted %d times, want %d", name, victim, got, n)
				}
			}
			if b.count(&b.done, c.want) == 0 {
				t.Errorf("%s: the critical pod did not get its room: done %q", name, b.done)
			}
		})
	}
}
