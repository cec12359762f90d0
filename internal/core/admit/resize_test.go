package admit

import (
	"reflect"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
)

func TestResize(t *testing.T) {
	t.Parallel()
	restarts := func(p *v1.Pod) {
		p.Spec.Containers[0].ResizePolicy = []v1.ContainerResizePolicy{{ResourceName: v1.ResourceMemory, RestartPolicy: v1.RestartContainer}}
	}
	overhead := func(p *v1.Pod) { p.Spec.Overhead = list("cpu=500m") }
	big := []*v1.Pod{newPod("o", "cpu=3")}
	for _, tc := range []struct {
		name string
		in   ResizeInput
		want ResizeResult
	}{
		{"it fits", ResizeInput{Pod: newPod("p", "cpu=2"), Allocated: newPod("p", "cpu=1"), Node: node("cpu=2")}, ResizeResult{OK: true}},
		{
			"beside others", ResizeInput{Pod: newPod("p", "cpu=2"), Allocated: newPod("p", "cpu=1"), Node: node("cpu=4"), Others: big},
			ResizeResult{Reason: "Deferred", Detail: "cpu", Message: "Node didn't have enough resource: cpu, requested: 2000, used: 3000, capacity: 4000"},
		},
		{
			"more than the node has", ResizeInput{Pod: newPod("p", "memory=200"), Allocated: newPod("p", "memory=50"), Node: node("cpu=4 memory=100")},
			ResizeResult{Reason: "Infeasible", Detail: "insufficient_node_allocatable", Message: "Node didn't have enough capacity: memory, requested: 200, capacity: 100"},
		},
		{
			"with its overhead", ResizeInput{Pod: newPod("p", "cpu=4", overhead), Allocated: newPod("p", "cpu=1", overhead), Node: node("cpu=4")},
			ResizeResult{Reason: "Infeasible", Detail: "insufficient_node_allocatable", Message: "Node didn't have enough capacity: cpu, requested: 4500, capacity: 4000"},
		},
		{
			"who asks for less gets it on a node that has too little",
			ResizeInput{Pod: newPod("p", "cpu=2"), Allocated: newPod("p", "cpu=3"), Node: node("cpu=1"), Others: big}, ResizeResult{OK: true},
		},
		{
			"more of one and less of the other: only what grows counts",
			ResizeInput{Pod: newPod("p", "cpu=1 memory=60"), Allocated: newPod("p", "cpu=2 memory=50"), Node: node("cpu=1 memory=100"), Others: big},
			ResizeResult{OK: true},
		},
		{
			"a static pod", ResizeInput{Pod: newPod("p", "cpu=2", static), Allocated: newPod("p", "cpu=1", static), Node: node("cpu=4")},
			ResizeResult{Reason: "Infeasible", Detail: "static_pod", Message: "In-place resize of static-pods is not supported"},
		},
		{
			"another class", ResizeInput{Pod: newPod("p", "cpu=2 memory=5", guaranteed), Allocated: newPod("p", "cpu=1"), Node: node("cpu=4 memory=10")},
			ResizeResult{Reason: "Infeasible", Detail: "qos_class", Message: "Pod QOS Class may not change as a result of resizing"},
		},
		{
			"swap", ResizeInput{Pod: newPod("p", "memory=5"), Allocated: newPod("p", "memory=4"), Node: node("memory=10"), LimitedSwap: true},
			ResizeResult{Reason: "Infeasible", Detail: "swap_limitation", Message: "In-place resize of containers with swap is not supported."},
		},
		{
			"swap, and the container restarts", ResizeInput{Pod: newPod("p", "memory=5", restarts), Allocated: newPod("p", "memory=4", restarts), Node: node("memory=10"), LimitedSwap: true},
			ResizeResult{OK: true},
		},
		{
			"pinned CPUs", ResizeInput{Pod: newPod("p", "cpu=2 memory=5", guaranteed), Allocated: newPod("p", "cpu=1 memory=5", guaranteed), Node: node("cpu=4 memory=10"), PinnedCPUs: true},
			ResizeResult{Reason: "Infeasible", Detail: "guaranteed_pod_cpu_manager_static_policy", Message: `Resize is infeasible for Guaranteed Pods alongside CPU Manager policy "static"`},
		},
		{
			"pinned memory", ResizeInput{Pod: newPod("p", "cpu=1 memory=6", guaranteed), Allocated: newPod("p", "cpu=1 memory=5", guaranteed), Node: node("cpu=4 memory=10"), PinnedMemory: true},
			ResizeResult{Reason: "Infeasible", Detail: "guaranteed_pod_memory_manager_static_policy", Message: `Resize is infeasible for Guaranteed Pods alongside Memory Manager policy "Static"`},
		},
		{
			"pinned CPUs, and only memory changes",
			ResizeInput{Pod: newPod("p", "cpu=1 memory=6", guaranteed), Allocated: newPod("p", "cpu=1 memory=5", guaranteed), Node: node("cpu=4 memory=10"), PinnedCPUs: true},
			ResizeResult{OK: true},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			if got := Resize(tc.in); !reflect.DeepEqual(got, tc.want) {
				t.Errorf("got  %+v\nwant %+v", got, tc.want)
			}
		})
	}
}

// After a resize of the pod-level resources, Resize must compare these with the resources that the node has left, and not those of the
// containers.
func TestResizeOfThePodItself(t *testing.T) {
	t.Parallel()
	whole := func(cpu string) func(*v1.Pod) {
		return func(p *v1.Pod) { p.Spec.Resources = &v1.ResourceRequirements{Requests: list("cpu=" + cpu)} }
	}
	in := ResizeInput{Pod: newPod("p", "cpu=1", whole("4")), Allocated: newPod("p", "cpu=1", whole("2")), Node: node("cpu=4"), Others: []*v1.Pod{newPod("o", "cpu=1")}}
	if got := Resize(in); got.Reason != "Deferred" || got.Message != "Node didn't have enough resource: cpu, requested: 4000, used: 1000, capacity: 4000" {
		t.Errorf("got %+v", got)
	}
	in.Others = nil
	if got := Resize(in); !got.OK {
		t.Errorf("got %+v", got)
	}
}

// A resize of a critical pod for which the node has too little preempts other pods, as the admission of a new critical pod does.
func TestResizeOfACriticalPod(t *testing.T) {
	t.Parallel()
	critical := func(p *v1.Pod) { p.Spec.Priority = new(int32(2000000000)) }
	small, big, other := newPod("small", "cpu=1"), newPod("big", "cpu=3"), newPod("other", "cpu=1", critical)
	resize := func(cpu string, o ...func(*v1.Pod)) ResizeResult {
		return Resize(ResizeInput{Pod: newPod("p", "cpu="+cpu, o...), Allocated: newPod("p", "cpu=1", o...), Node: node("cpu=6"), Others: []*v1.Pod{small, big, other}})
	}
	for name, c := range map[string]struct {
		got  ResizeResult
		want []*v1.Pod
	}{
		"of an ordinary one":           {resize("2"), nil},
		"for a little":                 {resize("2", critical), []*v1.Pod{small}},
		"for much":                     {resize("4", critical), []*v1.Pod{big}},
		"for more than the others are": {resize("6", critical), nil},
	} {
		if c.got.OK || c.got.Reason != v1.PodReasonDeferred || !reflect.DeepEqual(c.got.Preempt, c.want) {
			t.Errorf("%s: %+v", name, c.got)
		}
	}
}

// If a feature gate is off, resizes of its part of a pod (pod-level resources or init containers) are infeasible, and other resizes are
// not.
func TestResizeWithGatesOff(t *testing.T) {
	t.Parallel()
	sized := func(whole, first, sidecar string) *v1.Pod {
		return newPod("p", "cpu=1", func(p *v1.Pod) {
			p.Spec.Resources = &v1.ResourceRequirements{Requests: list("cpu=" + whole)}
			p.Spec.InitContainers = []v1.Container{
				{Name: "first", Resources: v1.ResourceRequirements{Requests: list("cpu=" + first)}},
				{Name: "side", RestartPolicy: ptr(v1.ContainerRestartPolicyAlways), Resources: v1.ResourceRequirements{Requests: list("cpu=" + sidecar)}},
			}
		})
	}
	podLevel, initContainers := ResizeGates{NoPodLevel: true}, ResizeGates{NoInitContainers: true}
	for name, tc := range map[string]struct {
		pod   *v1.Pod
		gates ResizeGates
		gate  string // the gate in the answer; "": the resize is granted
	}{
		"the whole pod, all on":            {sized("3", "1", "1"), ResizeGates{}, ""},
		"the whole pod, off":               {sized("3", "1", "1"), podLevel, "InPlacePodLevelResourcesVerticalScaling"},
		"the whole pod, the other off":     {sized("3", "1", "1"), initContainers, ""},
		"an init container, all on":        {sized("2", "2", "1"), ResizeGates{}, ""},
		"an init container, off":           {sized("2", "2", "1"), initContainers, "InPlacePodVerticalScalingInitContainers"},
		"an init container, the other off": {sized("2", "2", "1"), podLevel, ""},
		"a sidecar, off":                   {sized("2", "1", "2"), initContainers, ""},
	} {
		got := Resize(ResizeInput{Pod: tc.pod, Allocated: sized("2", "1", "1"), Node: node("cpu=8"), Gates: tc.gates})
		if tc.gate == "" && !got.OK || tc.gate != "" && (got.Reason != v1.PodReasonInfeasible || !strings.Contains(got.Message, tc.gate)) {
			t.Errorf("%s: got %+v", name, got)
		}
	}
}
