package resizes

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/core/admit"
	"github.com/wherry-node/wherry/internal/core/pod"
)

// node is a Node and a Meter that keeps what it is asked. A resize fits if fits has the pod.
type node struct {
	fits   map[types.UID]bool
	result admit.ResizeResult // of a resize that does not fit
	asked  []string           // the pods that Fits was called for, in this order
	looked []string
	met    []string
}

func (n *node) Fits(p, _ *v1.Pod) admit.ResizeResult {
	n.asked = append(n.asked, p.Name)
	if n.fits[p.UID] {
		return admit.ResizeResult{OK: true}
	}
	return n.result
}
func (n *node) MakeRoom([]*v1.Pod, string)    {}
func (n *node) Look(uid types.UID)            { n.looked = append(n.looked, string(uid)) }
func (n *node) ResizeInfeasible(why string)   { n.met = append(n.met, "infeasible "+why) }
func (n *node) ResizeAccepted(trigger string) { n.met = append(n.met, "accepted "+trigger) }

func deferred() admit.ResizeResult { return admit.ResizeResult{Reason: v1.PodReasonDeferred} }

// cpu returns a pod whose container requests this much CPU.
func cpu(name, request string, options ...func(*v1.Pod)) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}, Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c"}}}}
	p.Spec.Containers[0].Resources.Requests = v1.ResourceList{v1.ResourceCPU: resource.MustParse(request)}
	for _, o := range options {
		o(p)
	}
	return p
}

func priority(n int32) func(*v1.Pod) { return func(p *v1.Pod) { p.Spec.Priority = &n } }

func guaranteed(p *v1.Pod) {
	r := &p.Spec.Containers[0].Resources
	r.Requests[v1.ResourceMemory] = resource.MustParse("1Gi")
	r.Limits = r.Requests.DeepCopy()
}

// The order in which the node decides does not depend on the order in which the pods ask, except between two pods that are equal otherwise.
func TestResizesAreDecidedInOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := &node{result: deferred()}
		q := New(n, nil)
		for _, p := range []*v1.Pod{
			cpu("second", "2"), cpu("shrinks", "500m", priority(-1)), cpu("guaranteed", "2", guaranteed), cpu("important", "2", priority(5)), cpu("last", "2"),
		} {
			q.Ask(p, pod.AllocationOf(cpu(p.Name, "1")))
			time.Sleep(time.Second)
		}
		q.Ask(cpu("second", "3"), pod.AllocationOf(cpu("second", "1"))) // a new spec of a pod keeps the time of the pod's first request
		n.asked = nil
		q.Again(TriggerPeriodic)
		if want := "shrinks important guaranteed second last"; strings.Join(n.asked, " ") != want {
			t.Errorf("decided in the order %q, want %q", n.asked, want)
		}
	})
}

// A resize that is granted later counts as allocated at once. The pod's worker looks again, gets the granted result although nothing fits
// any more, and the queue forgets the resize.
func TestAResizeThatIsGrantedLater(t *testing.T) {
	t.Parallel()
	n := &node{result: deferred()}
	q := New(n, n)
	p, allocated := cpu("web", "2"), pod.AllocationOf(cpu("web", "1"))
	if r := q.Ask(p, allocated); r.OK || q.Pending("web") != v1.PodReasonDeferred || !q.Waiting() || q.Granted("web") != nil {
		t.Fatalf("first: %+v, pending %q, waiting %t", r, q.Pending("web"), q.Waiting())
	}
	n.fits = map[types.UID]bool{"web": true}
	q.Again(TriggerEnded)
	if q.Granted("web") != p || q.Pending("web") != "" || q.Waiting() || !slices.Equal(n.looked, []string{"web"}) || !slices.Equal(n.met, []string{"accepted " + TriggerEnded}) {
		t.Errorf("granted %v, pending %q, looked %q, counted %q", q.Granted("web"), q.Pending("web"), n.looked, n.met)
	}
	n.fits = nil
	if r := q.Ask(p, allocated); !r.OK {
		t.Errorf("the worker asks again and gets %+v", r)
	}
	if q.Drop("web"); q.Granted("web") != nil || q.of != nil {
		t.Errorf("after the worker took the resources: %v", q.of)
	}
}

// A resize that never fits is counted once for each spec, however often the node decides about it.
func TestInfeasibleResizesAreCountedOnce(t *testing.T) {
	t.Parallel()
	n := &node{result: admit.ResizeResult{Reason: v1.PodReasonInfeasible, Detail: "too big"}}
	q := New(n, n)
	allocated := pod.AllocationOf(cpu("web", "1"))
	for generation := range int64(2) {
		p := cpu("web", "200")
		p.Generation = generation
		q.Ask(p, allocated)
		q.Again(TriggerPeriodic)
		q.Ask(p, allocated)
		if len(n.met) != int(generation)+1 {
			t.Errorf("generation %d: counted %q", generation, n.met)
		}
	}
	if len(n.looked) != 0 {
		t.Errorf("workers whose result did not change look again: %q", n.looked)
	}
}
