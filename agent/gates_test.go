package agent

import (
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kubelet "k8s.io/kubelet/config/v1beta1"
	"k8s.io/utils/ptr"

	"github.com/wherry-node/wherry/internal/core/admit"
	"github.com/wherry-node/wherry/internal/core/crispec"
	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/core/podstatus"
	"github.com/wherry-node/wherry/internal/edge/podset"
	"github.com/wherry-node/wherry/internal/edge/source"
	"github.com/wherry-node/wherry/internal/sim/simcri"
)

// taken is a target for pods that records what it received last.
type taken struct {
	source.Target
	pods []*v1.Pod
}

func (t *taken) Replace(_ pod.Source, pods []*v1.Pod) { t.pods = pods }
func (t *taken) Upsert(_ pod.Source, p *v1.Pod)       { t.pods = []*v1.Pod{p} }

// A feature whose gate is off has no effect: its fields are removed from pods. The source's own pod is not modified. With all
// gates on, pods pass unchanged.
func TestGatesTakeFieldsOut(t *testing.T) {
	t.Parallel()
	rules := []v1.ContainerRestartRule{{Action: v1.ContainerRestartRuleActionRestart}, {Action: v1.ContainerRestartRuleActionRestartAllContainers}}
	whole := &v1.Pod{Spec: v1.PodSpec{
		HostnameOverride: ptr.To("other"), Resources: &v1.ResourceRequirements{},
		InitContainers: []v1.Container{{Name: "sidecar", RestartPolicy: ptr.To(v1.ContainerRestartPolicyAlways)}},
		Containers: []v1.Container{{
			Name: "c", RestartPolicy: ptr.To(v1.ContainerRestartPolicyNever), RestartPolicyRules: rules,
			Env: []v1.EnvVar{{Name: "A", ValueFrom: &v1.EnvVarSource{FileKeyRef: &v1.FileKeySelector{Key: "k"}}}, {Name: "B", Value: "b"}},
		}},
	}}
	for gate, edit := range map[string]func(p *v1.Pod){
		"ContainerRestartRules": func(p *v1.Pod) {
			p.Spec.Containers[0].RestartPolicy, p.Spec.Containers[0].RestartPolicyRules = nil, nil
		},
		"RestartAllContainersOnContainerExits": func(p *v1.Pod) { p.Spec.Containers[0].RestartPolicyRules = rules[:1] },
		"EnvFiles":                             func(p *v1.Pod) { p.Spec.Containers[0].Env[0].ValueFrom = nil },
		"HostnameOverride":                     func(p *v1.Pod) { p.Spec.HostnameOverride = nil },
		"PodLevelResources":                    func(p *v1.Pod) { p.Spec.Resources = nil },
	} {
		a := &Agent{pods: &podset.Set{}}
		if _, plain := a.target().(*podset.Set); !plain {
			t.Error("the default gates must not filter pods")
		}
		a.cfg.Kubelet.FeatureGates = map[string]bool{gate: false}
		g, gated := a.target().(gatedPods)
		if !gated {
			t.Fatalf("%s off: nothing removes fields", gate)
		}
		to := &taken{}
		g.Target = to
		want, given := whole.DeepCopy(), whole.DeepCopy()
		edit(want)
		g.Upsert(pod.SourceAPI, given)
		if diff := cmp.Diff(want, to.pods[0]); diff != "" {
			t.Errorf("%s off, one pod (-want +got):\n%s", gate, diff)
		}
		g.Replace(pod.SourceAPI, []*v1.Pod{given})
		if diff := cmp.Diff(want, to.pods[0]); diff != "" {
			t.Errorf("%s off, all pods (-want +got):\n%s", gate, diff)
		}
		if diff := cmp.Diff(whole, given); diff != "" {
			t.Errorf("%s off: the source's own pod is changed (-was +is):\n%s", gate, diff)
		}
	}
}

// A feature gate that is off removes its part of pod statuses, or forbids its kind of resize. The node then no longer declares the
// feature.
func TestGatesReachTheirParts(t *testing.T) {
	t.Parallel()
	type parts struct {
		omit     podstatus.Omit
		resize   admit.ResizeGates
		declared bool // true: while the gate is on, the node declares the feature
	}
	of := func(set map[string]bool, gate string) parts {
		cfg := &Config{Kubelet: DefaultConfiguration()}
		cfg.Kubelet.FeatureGates = set
		return parts{omitted(cfg), resizeGates(cfg), slices.Contains(declaredFeatures(cfg), gate)}
	}
	for gate, want := range map[string]parts{
		"PodReadyToStartContainersCondition":      {omit: podstatus.Omit{ReadyToStart: true}},
		"InPlacePodLevelResourcesVerticalScaling": {omit: podstatus.Omit{PodResources: true}, resize: admit.ResizeGates{NoPodLevel: true}},
		"InPlacePodVerticalScalingInitContainers": {resize: admit.ResizeGates{NoInitContainers: true}},
	} {
		if got := of(map[string]bool{gate: false}, gate); got != want {
			t.Errorf("%s off: %+v, want %+v", gate, got, want)
		}
		on := parts{declared: strings.HasPrefix(gate, "InPlace")}
		if got := of(nil, gate); got != on {
			t.Errorf("%s on: %+v, want %+v", gate, got, on)
		}
	}
}

// Without the gate MemoryQoS no container is throttled. With it, containers are throttled by the configured factor, and memory is kept for
// them if the configuration says so.
func TestMemoryQoSNeedsItsGate(t *testing.T) {
	t.Parallel()
	node := &v1.Node{Status: v1.NodeStatus{Allocatable: v1.ResourceList{v1.ResourceMemory: resource.MustParse("8Gi")}}}
	for _, tt := range []struct {
		gate   bool
		policy kubelet.MemoryReservationPolicy
		want   crispec.Policy
	}{
		{false, kubelet.NoneMemoryReservationPolicy, crispec.Policy{}},
		{true, kubelet.NoneMemoryReservationPolicy, crispec.Policy{MemoryThrottling: 0.9, MemoryAllocatable: 8 << 30}},
		{true, kubelet.TieredReservationMemoryReservationPolicy, crispec.Policy{MemoryThrottling: 0.9, MemoryReservation: true, MemoryAllocatable: 8 << 30}},
	} {
		r := simcri.New(simcri.Config{})
		defer r.Close()
		cfg := Config{NodeName: "n", RootDir: t.TempDir(), Kubelet: DefaultConfiguration()}
		cfg.Kubelet.FeatureGates, cfg.Kubelet.MemoryReservationPolicy = map[string]bool{"MemoryQoS": tt.gate}, tt.policy
		deps := Deps{Machine: RealMachine(), Log: slog.New(slog.DiscardHandler)}
		deps.Runtime, deps.Images = r.Clients()
		a, err := New(cfg, deps)
		if err != nil {
			t.Fatal(err)
		}
		if err := a.build(); err != nil {
			t.Fatal(err)
		}
		p := a.specPolicy(node)
		got := crispec.Policy{MemoryThrottling: p.MemoryThrottling, MemoryReservation: p.MemoryReservation, MemoryAllocatable: p.MemoryAllocatable}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("gate %v, policy %s (-want +got):\n%s", tt.gate, tt.policy, diff)
		}
	}
}
