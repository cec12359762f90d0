package agent

import (
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/internal/core/admit"
	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/core/podstatus"
	"github.com/wherry-node/wherry/internal/edge/config"
	"github.com/wherry-node/wherry/internal/edge/source"
)

// podGates are the feature gates that guard fields of a pod. If a gate is off, drop removes the fields of its feature before a pod
// reaches the set of desired pods. So no later code needs to check these gates.
var podGates = []struct {
	gate string
	drop func(p *v1.Pod)
}{
	{"ContainerRestartRules", func(p *v1.Pod) {
		eachContainer(p, func(c *v1.Container, sidecar bool) {
			c.RestartPolicyRules = nil
			if !sidecar {
				c.RestartPolicy = nil
			}
		})
	}},
	{"RestartAllContainersOnContainerExits", func(p *v1.Pod) {
		eachContainer(p, func(c *v1.Container, _ bool) {
			c.RestartPolicyRules = slices.DeleteFunc(c.RestartPolicyRules, func(r v1.ContainerRestartRule) bool {
				return r.Action == v1.ContainerRestartRuleActionRestartAllContainers
			})
		})
	}},
	{"EnvFiles", func(p *v1.Pod) {
		eachContainer(p, func(c *v1.Container, _ bool) {
			for i := range c.Env {
				if from := c.Env[i].ValueFrom; from != nil && from.FileKeyRef != nil {
					c.Env[i].ValueFrom = nil
				}
			}
		})
	}},
	{"HostnameOverride", func(p *v1.Pod) { p.Spec.HostnameOverride = nil }},
	{"PodLevelResources", func(p *v1.Pod) { p.Spec.Resources = nil }},
}

func eachContainer(p *v1.Pod, do func(c *v1.Container, sidecar bool)) {
	for i := range p.Spec.InitContainers {
		c := &p.Spec.InitContainers[i]
		do(c, pod.IsSidecar(c))
	}
	for i := range p.Spec.Containers {
		do(&p.Spec.Containers[i], false)
	}
}

// gates returns the feature gates of a node.
func gates(cfg *Config) config.Gates {
	g, _ := config.NewGates(cfg.Kubelet.FeatureGates) // checked when the configuration was read
	return g
}

// omitted returns the parts of a pod's status that belong to features whose gates are off.
func omitted(cfg *Config) podstatus.Omit {
	g := gates(cfg)
	return podstatus.Omit{ReadyToStart: !g.Enabled("PodReadyToStartContainersCondition"), PodResources: !g.Enabled("InPlacePodLevelResourcesVerticalScaling")}
}

// resizeGates returns the kinds of resizes that are forbidden because their feature gates are off.
func resizeGates(cfg *Config) admit.ResizeGates {
	g := gates(cfg)
	return admit.ResizeGates{NoPodLevel: !g.Enabled("InPlacePodLevelResourcesVerticalScaling"), NoInitContainers: !g.Enabled("InPlacePodVerticalScalingInitContainers")}
}

// target returns the receiver of the pods from all sources: the set of desired pods, behind gatedPods if a gate is off.
func (a *Agent) target() source.Target {
	gates := gates(&a.cfg)
	t := gatedPods{Target: a.pods}
	for _, g := range podGates {
		if !gates.Enabled(g.gate) {
			t.drops = append(t.drops, g.drop)
		}
	}
	if t.drops == nil {
		return a.pods
	}
	return t
}

// gatedPods removes the fields of features whose gates are off, and passes the pods on. It changes copies, not the sources'
// pods.
type gatedPods struct {
	source.Target
	drops []func(p *v1.Pod)
}

// Replace replaces all pods of the source.
func (g gatedPods) Replace(src pod.Source, pods []*v1.Pod) {
	out := make([]*v1.Pod, len(pods))
	for i, p := range pods {
		out[i] = g.without(p)
	}
	g.Target.Replace(src, out)
}

// Upsert adds or replaces one pod.
func (g gatedPods) Upsert(src pod.Source, p *v1.Pod) { g.Target.Upsert(src, g.without(p)) }

func (g gatedPods) without(p *v1.Pod) *v1.Pod {
	p = p.DeepCopy()
	for _, drop := range g.drops {
		drop(p)
	}
	return p
}
