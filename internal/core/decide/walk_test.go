package decide_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// FuzzPod makes a whole pod out of the fuzzer's bytes, with every kind of container, probe, hook, rule and resource. The bytes also
// choose the events that happen to the pod. The invariants of the search must hold in every state. If no more trouble happens after the
// last event, the pod must finally run, have stopped, or be gone, as its sources want it.
func FuzzPod(f *testing.F) {
	for i := range walkSeeds {
		f.Add(walkSeed(i))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		s := &bytesSource{data: data}
		n := node{world: s.world()}
		for i := range n.left {
			n.left[i] = 2
		}
		n.settleTurn()
		for step := 0; step < 80 && len(s.data) > 0 && len(n.broken) == 0; step++ {
			next := n.environment()
			if len(next) == 0 {
				break
			}
			n = next[s.n(len(next))]
			if n.status != nil {
				checkContainers(t, n.status)
			}
		}
		if len(n.broken) == 0 {
			search := newSearch()
			if search.rest(n); len(search.found) > 0 {
				t.Fatalf("%s\n%s", strings.Join(search.found, "\n"), describe(n.last))
			}
			return
		}
		for _, b := range n.broken {
			t.Errorf("%s: %s", b.inv, b.text)
		}
		t.Fatalf("after:\n  %s\n%s", n.path, describe(n.last))
	})
}

// walkSeeds is the number of seeds of FuzzPod, which an ordinary test run checks.
const walkSeeds = 200

func walkSeed(i int) []byte {
	seed := make([]byte, 200)
	x := uint32(i)*2654435761 + 1
	for j := range seed { // the xorshift generator gives the same bytes on every machine
		x ^= x << 13
		x ^= x >> 17
		x ^= x << 5
		seed[j] = byte(x >> 11)
	}
	return seed
}

func describe(p *v1.Pod) string {
	var b strings.Builder
	fmt.Fprintf(&b, "pod %s", p.Spec.RestartPolicy)
	for _, list := range [][]v1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range list {
			c := &list[i]
			fmt.Fprintf(&b, "\n%s", c.Name)
			if c.RestartPolicy != nil {
				fmt.Fprintf(&b, " %s %v", *c.RestartPolicy, c.RestartPolicyRules)
			}
			fmt.Fprintf(&b, " %v startup=%v liveness=%v readiness=%v resources=%v", c.Lifecycle, c.StartupProbe, c.LivenessProbe, c.ReadinessProbe, c.Resources)
		}
	}
	return b.String()
}

// checkContainers checks that each container is in exactly one state, and started only while it runs.
func checkContainers(t *testing.T, st *v1.PodStatus) {
	for _, c := range slices.Concat(st.InitContainerStatuses, st.ContainerStatuses, st.EphemeralContainerStatuses) {
		n := 0
		for _, set := range []bool{c.State.Waiting != nil, c.State.Running != nil, c.State.Terminated != nil} {
			if set {
				n++
			}
		}
		if n != 1 {
			t.Errorf("container %s has %d states", c.Name, n)
		}
		if c.Started != nil && *c.Started && c.State.Running == nil {
			t.Errorf("container %s is started and does not run", c.Name)
		}
	}
}

// world returns a world whose pod is made out of the bytes, before the first turn.
func (s *bytesSource) world() *world {
	w := newWorld()
	w.strict, w.brain = true, realBrain()
	w.pol = searchPolicy()
	w.pod = s.wholePod()
	for _, list := range [][]v1.Container{w.pod.Spec.InitContainers, w.pod.Spec.Containers} {
		for i := range list {
			w.hashes[list[i].Name] = specHash(list[i].Image)
			w.sized = w.sized || len(list[i].Resources.Limits)+len(list[i].Resources.Requests) > 0
		}
	}
	w.mem.Admitted = !s.rare()
	w.want, w.last = w.pod, w.pod
	w.saved = w.mem.Kept()
	w.inspect()
	w.noInspect = s.bool()
	return w
}

func (s *bytesSource) wholePod() *v1.Pod {
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "n", UID: "u"},
		Spec: v1.PodSpec{
			RestartPolicy: []v1.RestartPolicy{v1.RestartPolicyAlways, v1.RestartPolicyOnFailure, v1.RestartPolicyNever}[s.n(3)],
			HostNetwork:   s.rare(),
		},
	}
	if s.bool() {
		p.Spec.TerminationGracePeriodSeconds = new([]int64{0, 1, 5, 30, 90}[s.n(5)])
	}
	if s.rare() {
		p.Spec.ActiveDeadlineSeconds = new(int64(20))
	}
	if s.rare() {
		p.Spec.ReadinessGates = []v1.PodReadinessGate{{ConditionType: "example.com/gate"}}
	}
	if s.rare() {
		p.Spec.Overhead = s.resources()
	}
	for i := range s.n(4) {
		c := s.wholeContainer(fmt.Sprintf("init%d", i))
		if s.bool() {
			c.RestartPolicy = new(v1.ContainerRestartPolicyAlways)
		} else { // the API allows these fields only in sidecars
			c.Lifecycle, c.StartupProbe, c.LivenessProbe, c.ReadinessProbe, c.ResizePolicy = nil, nil, nil, nil, nil
		}
		p.Spec.InitContainers = append(p.Spec.InitContainers, c)
	}
	for i := range 1 + s.n(3) {
		p.Spec.Containers = append(p.Spec.Containers, s.wholeContainer(fmt.Sprintf("main%d", i)))
	}
	for i := range s.n(3) {
		p.Spec.EphemeralContainers = append(p.Spec.EphemeralContainers, v1.EphemeralContainer{
			EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: fmt.Sprintf("debug%d", i), Image: "d"},
		})
	}
	return p
}

func (s *bytesSource) wholeContainer(name string) v1.Container {
	c := v1.Container{Name: name, Image: "img"}
	for _, hook := range []func(*v1.Lifecycle, *v1.LifecycleHandler){
		func(l *v1.Lifecycle, h *v1.LifecycleHandler) { l.PostStart = h },
		func(l *v1.Lifecycle, h *v1.LifecycleHandler) { l.PreStop = h },
	} {
		if s.n(4) == 0 {
			hook(lifecycle(&c), s.hook())
		}
	}
	for _, probe := range []**v1.Probe{&c.StartupProbe, &c.LivenessProbe, &c.ReadinessProbe} {
		if s.n(4) == 0 {
			*probe = &v1.Probe{}
			if probe != &c.ReadinessProbe && s.bool() {
				(*probe).TerminationGracePeriodSeconds = new([]int64{1, 7, 60}[s.n(3)])
			}
		}
	}
	if s.rare() {
		c.Resources.Requests = s.resources()
	}
	if s.rare() {
		c.Resources.Limits = s.resources()
	}
	if s.rare() {
		restartsForMemory(&c)
	}
	if s.rare() {
		c.RestartPolicy = new([]v1.ContainerRestartPolicy{v1.ContainerRestartPolicyNever, v1.ContainerRestartPolicyOnFailure}[s.n(2)])
		for code := range int32(s.n(3)) { // each rule has another exit code: 1, then 42
			c.RestartPolicyRules = append(c.RestartPolicyRules, v1.ContainerRestartRule{
				Action: []v1.ContainerRestartRuleAction{"Restart", "RestartAllContainers"}[s.n(2)],
				ExitCodes: &v1.ContainerRestartRuleOnExitCodes{
					Operator: v1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{1 + 41*code},
				},
			})
		}
	}
	return c
}

func (s *bytesSource) hook() *v1.LifecycleHandler {
	switch s.n(3) {
	case 0:
		return &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{"true"}}}
	case 1:
		return &v1.LifecycleHandler{HTTPGet: &v1.HTTPGetAction{Path: "/"}}
	}
	return &v1.LifecycleHandler{Sleep: &v1.SleepAction{Seconds: 5}}
}

func (s *bytesSource) resources() v1.ResourceList {
	list := v1.ResourceList{}
	if s.bool() {
		list[v1.ResourceCPU] = resource.MustParse([]string{"0", "1m", "500m", "2"}[s.n(4)])
	}
	if s.bool() {
		list[v1.ResourceMemory] = resource.MustParse([]string{"0", "64Mi", "1Gi", "3Gi"}[s.n(4)])
	}
	return list
}
