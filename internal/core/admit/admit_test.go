package admit

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func ptr[T any](v T) *T { return &v }

func list(s string) v1.ResourceList {
	out := v1.ResourceList{}
	for _, f := range strings.Fields(s) {
		name, q, _ := strings.Cut(f, "=")
		out[v1.ResourceName(name)] = resource.MustParse(q)
	}
	return out
}

func newPod(name, requests string, changes ...func(*v1.Pod)) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "ns"}}
	p.Spec.Containers = []v1.Container{{Name: "c", Resources: v1.ResourceRequirements{Requests: list(requests)}}}
	for _, change := range changes {
		change(p)
	}
	return p
}

func node(allocatable string, changes ...func(*v1.Node)) *v1.Node {
	n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{"zone": "a"}}}
	n.Status.Allocatable = list("pods=10 " + allocatable)
	for _, change := range changes {
		change(n)
	}
	return n
}

func critical(p *v1.Pod) { p.Spec.Priority = ptr(int32(2000000000)) }

func guaranteed(p *v1.Pod) {
	p.Spec.Containers[0].Resources.Limits = p.Spec.Containers[0].Resources.Requests
}

func static(p *v1.Pod) { p.Annotations = map[string]string{"kubernetes.io/config.source": "file"} }

func selector(p *v1.Pod) { p.Spec.NodeSelector = map[string]string{"zone": "b"} }

func port(number int32, ip string) func(*v1.Pod) {
	return func(p *v1.Pod) {
		p.Spec.Containers[0].Ports = append(p.Spec.Containers[0].Ports, v1.ContainerPort{ContainerPort: 80, HostPort: number, HostIP: ip})
	}
}

func sysctls(names ...string) func(*v1.Pod) {
	return func(p *v1.Pod) {
		p.Spec.SecurityContext = &v1.PodSecurityContext{}
		for _, n := range names {
			p.Spec.SecurityContext.Sysctls = append(p.Spec.SecurityContext.Sysctls, v1.Sysctl{Name: n, Value: "1"})
		}
	}
}

func taint(n *v1.Node) {
	n.Spec.Taints = []v1.Taint{{Key: "k", Effect: v1.TaintEffectNoSchedule}, {Key: "gone", Effect: v1.TaintEffectNoExecute}}
}

// answer prints a result in one line.
func answer(r Result) string {
	if r.OK {
		return "ok"
	}
	s := r.Reason + ": " + r.Message
	if len(r.Preempt) > 0 {
		s += " ->"
		for _, p := range r.Preempt {
			s += " " + p.Name
		}
	}
	return s
}

func TestAdmit(t *testing.T) {
	t.Parallel()
	many := func(n int) (out []*v1.Pod) {
		for i := range n {
			out = append(out, newPod(fmt.Sprint("o", i), "cpu=100m"))
		}
		return out
	}
	const osLabel = "PodOSSelectorNodeLabelDoesNotMatch: Failed to admit pod as the `kubernetes.io/os` label doesn't match node label"
	for _, tc := range []struct {
		name string
		in   Input
		want string
	}{
		{"fits", Input{Pod: newPod("p", "cpu=500m memory=1Gi"), Node: node("cpu=1 memory=1Gi"), Others: many(5)}, "ok"},
		{
			"cpu", Input{Pod: newPod("p", "cpu=1"), Node: node("cpu=500m")},
			"OutOfcpu: Node didn't have enough resource: cpu, requested: 1000, used: 0, capacity: 500",
		},
		{
			"memory, with overhead", Input{
				Pod:  newPod("p", "memory=60", func(p *v1.Pod) { p.Spec.Overhead = list("memory=50") }),
				Node: node("cpu=1 memory=100"),
			},
			"OutOfmemory: Node didn't have enough resource: memory, requested: 110, used: 0, capacity: 100",
		},
		{
			"cpu is named before memory", Input{Pod: newPod("p", "cpu=1 memory=200"), Node: node("cpu=500m memory=100")},
			"OutOfcpu: Node didn't have enough resource: cpu, requested: 1000, used: 0, capacity: 500",
		},
		{
			"what others use", Input{Pod: newPod("p", "cpu=1"), Node: node("cpu=1"), Others: many(1)},
			"OutOfcpu: Node didn't have enough resource: cpu, requested: 1000, used: 100, capacity: 1000",
		},
		{
			"ephemeral storage", Input{Pod: newPod("p", "ephemeral-storage=2Gi"), Node: node("ephemeral-storage=1Gi")},
			"OutOfephemeral-storage: Node didn't have enough resource: ephemeral-storage, requested: 2147483648, used: 0, capacity: 1073741824",
		},
		{
			"number of pods", Input{Pod: newPod("p", ""), Node: node("cpu=9"), Others: many(10)},
			"OutOfpods: Node didn't have enough resource: pods, requested: 1, used: 10, capacity: 10",
		},
		{
			"extended resource", Input{Pod: newPod("p", "example.com/gpu=2"), Node: node("example.com/gpu=1")},
			"OutOfexample.com/gpu: Node didn't have enough resource: example.com/gpu, requested: 2, used: 0, capacity: 1",
		},
		{"extended resource that is the cluster's", Input{Pod: newPod("p", "example.com/gpu=2"), Node: node("")}, "ok"},
		{
			"huge pages", Input{Pod: newPod("p", "hugepages-2Mi=4Mi"), Node: node("")},
			"OutOfhugepages-2Mi: Node didn't have enough resource: hugepages-2Mi, requested: 4194304, used: 0, capacity: 0",
		},
		{
			"the pod's own resources", Input{
				Pod:  newPod("p", "cpu=1m", func(p *v1.Pod) { p.Spec.Resources = &v1.ResourceRequirements{Requests: list("cpu=2")} }),
				Node: node("cpu=1"),
			},
			"OutOfcpu: Node didn't have enough resource: cpu, requested: 2000, used: 0, capacity: 1000",
		},
		{"no node", Input{Pod: newPod("p", "")}, "InvalidNodeInfo: Kubelet cannot get node info."},
		{
			"selector", Input{Pod: newPod("p", "", selector), Node: node("")},
			"NodeAffinity: Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector",
		},
		{
			"affinity", Input{Node: node(""), Pod: newPod("p", "", func(p *v1.Pod) {
				p.Spec.Affinity = &v1.Affinity{NodeAffinity: &v1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &v1.NodeSelector{
					NodeSelectorTerms: []v1.NodeSelectorTerm{{MatchExpressions: []v1.NodeSelectorRequirement{
						{Key: "zone", Operator: v1.NodeSelectorOpIn, Values: []string{"a", "c"}},
					}}},
				}}}
			})}, "ok",
		},
		{
			"node name", Input{Pod: newPod("p", "", func(p *v1.Pod) { p.Spec.NodeName = "n2" }), Node: node("")},
			"NodeName: Predicate NodeName failed: node(s) didn't match the requested node name",
		},
		{
			"host port", Input{Pod: newPod("p", "", port(80, "")), Node: node(""), Others: []*v1.Pod{newPod("o", "", port(80, "127.0.0.1"))}},
			"NodePorts: Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports",
		},
		{
			"host ports of different addresses",
			Input{Pod: newPod("p", "", port(80, "127.0.0.1")), Node: node(""), Others: []*v1.Pod{newPod("o", "", port(80, "127.0.0.2"))}}, "ok",
		},
		{
			"port of a pod on the host's network", Input{
				Pod: newPod("p", "", port(0, ""), func(p *v1.Pod) { p.Spec.HostNetwork = true }), Node: node(""),
				Others: []*v1.Pod{newPod("o", "", port(80, ""))},
			},
			"NodePorts: Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports",
		},
		{
			"resources before selector", Input{Pod: newPod("p", "cpu=1", selector), Node: node("cpu=500m")},
			"OutOfcpu: Node didn't have enough resource: cpu, requested: 1000, used: 0, capacity: 500",
		},
		{
			"NoExecute taint", Input{Pod: newPod("p", ""), Node: node("", taint)},
			"TaintToleration: Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate",
		},
		{"a static pod does not care for taints", Input{Pod: newPod("p", "", static), Node: node("", taint)}, "ok"},
		{
			"a taint that is tolerated", Input{Node: node("", taint), Pod: newPod("p", "", func(p *v1.Pod) {
				p.Spec.Tolerations = []v1.Toleration{{Key: "gone", Operator: v1.TolerationOpExists}}
			})}, "ok",
		},
		{
			"os label", Input{OS: "linux", Node: node(""), Pod: newPod("p", "", func(p *v1.Pod) {
				p.Labels = map[string]string{v1.LabelOSStable: "windows"}
			})}, osLabel,
		},
		{
			"os field", Input{OS: "linux", Node: node(""), Pod: newPod("p", "", func(p *v1.Pod) { p.Spec.OS = &v1.PodOS{Name: v1.Windows} })},
			"PodOSNotSupported: Failed to admit pod as the OS field doesn't match node OS",
		},
		{
			"strict supplemental groups", Input{Node: node(""), Pod: newPod("p", "", func(p *v1.Pod) {
				p.Spec.SecurityContext = &v1.PodSecurityContext{SupplementalGroupsPolicy: ptr(v1.SupplementalGroupsPolicyStrict)}
			})}, "SupplementalGroupsPolicyNotSupported: SupplementalGroupsPolicy=Strict is not supported in this node",
		},
		{
			"disk pressure", Input{Pod: newPod("p", "cpu=1"), Node: node("cpu=2"), Pressure: []v1.NodeConditionType{v1.NodeDiskPressure}},
			"Evicted: The node had condition: [DiskPressure]. ",
		},
		{"disk pressure, critical", Input{Pod: newPod("p", "", critical), Node: node(""), Pressure: []v1.NodeConditionType{v1.NodeDiskPressure}}, "ok"},
		{"memory pressure, with a request", Input{Pod: newPod("p", "cpu=1"), Node: node("cpu=2"), Pressure: []v1.NodeConditionType{v1.NodeMemoryPressure}}, "ok"},
		{
			"memory pressure, best effort", Input{Pod: newPod("p", ""), Node: node(""), Pressure: []v1.NodeConditionType{v1.NodeMemoryPressure}},
			"Evicted: The node had condition: [MemoryPressure]. ",
		},
		{
			"AppArmor is absent", Input{Node: node(""), Pod: newPod("p", "", func(p *v1.Pod) {
				p.Spec.Containers[0].SecurityContext = &v1.SecurityContext{AppArmorProfile: &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeRuntimeDefault}}
			})}, "AppArmor: Cannot enforce AppArmor: AppArmor is not enabled on the host",
		},
		{
			"AppArmor is absent and not wanted", Input{Node: node(""), Pod: newPod("p", "", func(p *v1.Pod) {
				p.Spec.SecurityContext = &v1.PodSecurityContext{AppArmorProfile: &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeUnconfined}}
			})}, "ok",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tc.want, answer(Admit(tc.in))); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// TestSysctls checks which sysctls a pod may set. Kubernetes documents: "All safe sysctls are enabled by default. All unsafe sysctls
// are disabled by default."
// A refusal whose message has upstream's words says in its detail which label, which taint, or which port of which pod it is about.
func TestRefusalsHaveDetails(t *testing.T) {
	t.Parallel()
	here := func(changes ...func(*v1.Node)) *v1.Node { return node("cpu=10", changes...) }
	unlabeled := func(n *v1.Node) { n.Labels = nil }
	for _, tt := range []struct {
		name   string
		in     Input
		reason string
		detail string
	}{
		{"a label that the node does not have", Input{Pod: newPod("p", "cpu=1", selector), Node: here(unlabeled)}, ReasonNodeAffinity,
			"the pod wants a node with the label zone=b, and this node has no label of that name"},
		{"a label with another value", Input{Pod: newPod("p", "cpu=1", selector), Node: here()}, ReasonNodeAffinity,
			"the pod wants a node with the label zone=b, and this node has zone=a"},
		{"a taint", Input{Pod: newPod("p", "cpu=1"), Node: here(taint)}, ReasonTaint, "the node has the taint gone:NoExecute"},
		{"a port", Input{Pod: newPod("p", "cpu=1", port(80, "")), Others: []*v1.Pod{newPod("free", "cpu=1"), newPod("other", "cpu=1", port(80, "10.0.0.1"))}, Node: here()},
			ReasonNodePorts, "port 80/TCP of the host is used by pod " + newPod("other", "").Namespace + "/other"},
		{"another node", Input{Pod: newPod("p", "cpu=1", func(p *v1.Pod) { p.Spec.NodeName = "there" }), Node: here()}, ReasonNodeName,
			fmt.Sprintf("the pod names the node \"there\", and this is %q", here().Name)},
	} {
		if r := Admit(tt.in); r.OK || r.Reason != tt.reason || r.Detail != tt.detail {
			t.Errorf("%s: %s, detail %q; want %s, %q", tt.name, r.Reason, r.Detail, tt.reason, tt.detail)
		}
	}
}

func TestSysctls(t *testing.T) {
	t.Parallel()
	host := func(p *v1.Pod) { p.Spec.HostNetwork, p.Spec.HostIPC = true, true }
	for _, tc := range []struct {
		name    string
		p       *v1.Pod
		kernel  string
		allowed []string
		want    string
	}{
		{"safe", newPod("p", "", sysctls("net.ipv4.tcp_syncookies", "kernel/shm_rmid_forced")), "", nil, "ok"},
		{"safe on this kernel", newPod("p", "", sysctls("net.ipv4.tcp_rmem")), "6.1.0-18-amd64", nil, "ok"},
		{
			"not yet safe on that kernel", newPod("p", "", sysctls("net.ipv4.tcp_rmem")), "4.14.2", nil,
			`SysctlForbidden: forbidden sysctl: "net.ipv4.tcp_rmem" not allowlisted`,
		},
		{
			"unsafe", newPod("p", "", sysctls("net.core.somaxconn")), "6.1", nil,
			`SysctlForbidden: forbidden sysctl: "net.core.somaxconn" not allowlisted`,
		},
		{"unsafe, allowed", newPod("p", "", sysctls("net.core.somaxconn")), "6.1", []string{"net.core.somaxconn"}, "ok"},
		{"unsafe, allowed by a pattern", newPod("p", "", sysctls("kernel.msgmax", "net/core/rmem_max")), "6.1", []string{"kernel.msg*", "net.core.*"}, "ok"},
		{
			"of the host's network", newPod("p", "", sysctls("net.ipv4.tcp_syncookies"), host), "6.1", nil,
			`SysctlForbidden: forbidden sysctl: "net.ipv4.tcp_syncookies" not allowed with host Net enabled`,
		},
		{
			"of the host's IPC", newPod("p", "", sysctls("kernel.shm_rmid_forced"), host), "6.1", nil,
			`SysctlForbidden: forbidden sysctl: "kernel.shm_rmid_forced" not allowed with host IPC enabled`,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			got := answer(Admit(Input{Pod: tc.p, Node: node(""), Kernel: tc.kernel, AllowedUnsafeSysctls: tc.allowed}))
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// TestTolerated checks which tolerations match a taint. Kubernetes documents: "A toleration matches a taint if the keys are the same
// and the effects are the same, and: the operator is Exists, or the operator is Equal and the values should be equal. An empty key with
// operator Exists matches all."
func TestTolerated(t *testing.T) {
	t.Parallel()
	taint := &v1.Taint{Key: "k", Value: "v", Effect: v1.TaintEffectNoExecute}
	for want, tolerations := range map[bool][]v1.Toleration{
		true: {
			{Operator: v1.TolerationOpExists},
			{Key: "k", Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoExecute},
			{Key: "k", Operator: v1.TolerationOpEqual, Value: "v"},
			{Key: "k", Value: "v", Effect: v1.TaintEffectNoExecute},
		},
		false: {
			{Key: "other", Operator: v1.TolerationOpExists},
			{Key: "k", Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoSchedule},
			{Key: "k", Value: "w"},
			{Key: "k"},
			{Key: "k", Operator: v1.TolerationOpGt, Value: "v"},
		},
	} {
		for _, one := range tolerations {
			p := newPod("p", "", func(p *v1.Pod) { p.Spec.Tolerations = []v1.Toleration{one} })
			if got := tolerated(p, taint); got != want {
				t.Errorf("%+v: got %v", one, got)
			}
		}
	}
}

func TestCheckSysctlPatterns(t *testing.T) {
	t.Parallel()
	if err := CheckSysctlPatterns([]string{"kernel.msg*", "kernel.shmall", "net.*", "fs.mqueue.queues_max"}); err != nil {
		t.Error(err)
	}
	for _, bad := range []string{"", "*", "vm.swappiness", "net.*.x", "kernel.panic*"} {
		err := CheckSysctlPatterns([]string{"net.*", bad})
		if err == nil || !strings.Contains(err.Error(), "allowedUnsafeSysctls[1]") {
			t.Errorf("%q: got %v, want an error that names it", bad, err)
		}
	}
}

func TestPreemption(t *testing.T) {
	t.Parallel()
	priority := func(n int32) func(*v1.Pod) { return func(p *v1.Pod) { p.Spec.Priority = &n } }
	const (
		cpu  = "OutOfcpu: Node didn't have enough resource: cpu, requested: 1000, used: 1000, capacity: 1000"
		none = "UnexpectedAdmissionError: Unexpected error while attempting to recover from admission failure: " +
			"preemption: error finding a set of pods to preempt: no set of running pods found to reclaim resources: [(res: cpu, q: 1000), ]"
	)
	for _, tc := range []struct {
		name   string
		p      *v1.Pod
		others []*v1.Pod
		node   *v1.Node
		want   string
	}{
		{
			"a pod that is not critical makes no room", newPod("p", "cpu=1"), []*v1.Pod{newPod("a", "cpu=1")}, node("cpu=1"), cpu,
		},
		{
			"fewest pods, the smaller of equals", newPod("p", "cpu=1", critical),
			[]*v1.Pod{newPod("many1", "cpu=300m"), newPod("big", "cpu=1 memory=2Gi"), newPod("fit", "cpu=1 memory=1Gi"), newPod("many2", "cpu=700m")},
			node("cpu=3 memory=9Gi"),
			"OutOfcpu: Node didn't have enough resource: cpu, requested: 1000, used: 3000, capacity: 3000 -> fit",
		},
		{
			"burstable before guaranteed", newPod("p", "cpu=1", static),
			[]*v1.Pod{newPod("g", "cpu=500m memory=1", guaranteed), newPod("b1", "cpu=250m"), newPod("b2", "cpu=250m")}, node("cpu=1 memory=9"),
			cpu + " -> b2 b1 g",
		},
		{
			"a static pod without priority is not ended", newPod("p", "cpu=1", critical), []*v1.Pod{newPod("s", "cpu=1", static)}, node("cpu=1"), none,
		},
		{
			"a critical pod of lower priority is", newPod("p", "cpu=1", priority(2000001000)), []*v1.Pod{newPod("s", "cpu=1", critical)}, node("cpu=1"),
			cpu + " -> s",
		},
		{"nobody to end", newPod("p", "cpu=2", critical), nil, node("cpu=1"), none},
		{
			"other reasons come first", newPod("p", "cpu=1", critical, selector), []*v1.Pod{newPod("a", "cpu=1")}, node("cpu=1"),
			"NodeAffinity: Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector",
		},
		{
			"best-effort pods go for the number of pods", newPod("p", "", critical), []*v1.Pod{newPod("b", "cpu=1"), newPod("e", "")},
			node("cpu=1", func(n *v1.Node) { n.Status.Allocatable["pods"] = resource.MustParse("2") }),
			"OutOfpods: Node didn't have enough resource: pods, requested: 1, used: 2, capacity: 2 -> e",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tc.want, answer(Admit(Input{Pod: tc.p, Others: tc.others, Node: tc.node}))); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// TestPreemptionMakesRoom checks with random pods that a critical pod fits after the pods in Preempt have ended, and that no answer both
// admits the pod and refuses it.
func TestPreemptionMakesRoom(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	made := 0
	for range 2000 {
		requests := func() string { return fmt.Sprintf("cpu=%dm memory=%d", r.IntN(4)*250, r.IntN(4)*100) }
		var others []*v1.Pod
		for i := range r.IntN(8) {
			p := newPod(fmt.Sprint("o", i), requests())
			if r.IntN(3) == 0 {
				guaranteed(p)
			}
			if r.IntN(6) == 0 {
				static(p)
			}
			others = append(others, p)
		}
		in := Input{Pod: newPod("p", requests(), critical), Others: others, Node: node("cpu=1 memory=500")}
		in.Node.Status.Allocatable["pods"] = *resource.NewQuantity(int64(1+r.IntN(8)), resource.DecimalSI)
		got := Admit(in)
		if got.OK != (got.Reason == "") || (got.OK && len(got.Preempt) > 0) {
			t.Fatalf("ambiguous answer: %s", answer(got))
		}
		if len(got.Preempt) == 0 {
			continue
		}
		made++
		in.Others = slices.DeleteFunc(slices.Clone(others), func(p *v1.Pod) bool { return slices.Contains(got.Preempt, p) })
		if after := Admit(in); !after.OK {
			t.Fatalf("after %s: still %s", answer(got), answer(after))
		}
		for i := range got.Preempt { // if Preempt has a single pod, the critical pod must not fit while that pod runs
			in.Others = slices.DeleteFunc(slices.Clone(others), func(p *v1.Pod) bool {
				j := slices.Index(got.Preempt, p)
				return j >= 0 && j != i
			})
			if len(got.Preempt) == 1 && Admit(in).OK {
				t.Fatalf("%s: nobody had to end", answer(got))
			}
		}
	}
	if made < 100 {
		t.Errorf("room was made only %d times: the test checks nothing", made)
	}
}

// A pod that no API server has validated, for example one from a file, may contain anything. TestStrangePods checks that Admit does not
// panic with such a pod and does not change its input.
func TestStrangePods(t *testing.T) {
	t.Parallel()
	for _, p := range []*v1.Pod{
		{},
		newPod("p", "cpu=-1 memory=7Ei example.com/x=1e30"),
		newPod("p", "", func(p *v1.Pod) { p.Spec.Containers = nil }),
		newPod("p", "", func(p *v1.Pod) { p.Spec.NodeSelector = map[string]string{"": "\x00"} }),
		newPod("p", "", func(p *v1.Pod) {
			p.Spec.Affinity = &v1.Affinity{NodeAffinity: &v1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &v1.NodeSelector{
				NodeSelectorTerms: []v1.NodeSelectorTerm{{MatchExpressions: []v1.NodeSelectorRequirement{{Key: "a", Operator: "Magic"}}}},
			}}}
		}),
		newPod("p", "", sysctls("", "/", "...")),
		newPod("p", "", func(p *v1.Pod) { p.Spec.Tolerations = []v1.Toleration{{Operator: "Magic"}} }),
	} {
		before := p.DeepCopy()
		Admit(Input{Pod: p, Node: node("cpu=1", taint), Others: []*v1.Pod{p, {}}, AllowedUnsafeSysctls: []string{"", "*"}})
		critical(p)
		Admit(Input{Pod: p, Node: &v1.Node{}, Others: []*v1.Pod{{}, p}})
		p.Spec.Priority = before.Spec.Priority
		if diff := cmp.Diff(before, p); diff != "" {
			t.Errorf("the pod was changed:\n%s", diff)
		}
	}
}
