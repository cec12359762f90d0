package admit

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/wherry-node/wherry/internal/core/pod"
)

// predicates makes the checks that a scheduler makes, too, except for resources. They matter for pods that no scheduler placed,
// and if the node has changed since.
func (in *Input) predicates() []Result {
	var failed []Result
	fail := func(reason, description string) {
		failed = append(failed, refuse(reason, messagePredicate, reason, description))
	}
	// A selector that cannot be parsed matches nothing. Selectors and taints do not apply to a static pod, because
	// somebody placed it on this node.
	if ok, err := nodeaffinity.GetRequiredNodeAffinity(in.Pod).Match(in.Node); (err != nil || !ok) && !pod.IsStatic(in.Pod) {
		fail(ReasonNodeAffinity, descriptionAffinity)
	}
	if n := in.Pod.Spec.NodeName; n != "" && n != in.Node.Name {
		fail(ReasonNodeName, descriptionName)
	}
	if in.portsTaken() {
		fail(ReasonNodePorts, descriptionPorts)
	}
	if !pod.IsStatic(in.Pod) {
		for i := range in.Node.Spec.Taints {
			t := &in.Node.Spec.Taints[i]
			if t.Effect == v1.TaintEffectNoExecute && !tolerated(in.Pod, t) {
				fail(ReasonTaint, descriptionTaint)
				break
			}
		}
	}
	return failed
}

// hostPort is one used port of the host. The address "" or 0.0.0.0 means every address.
type hostPort struct {
	protocol v1.Protocol
	port     int32
	ip       string
}

func (in *Input) portsTaken() bool {
	want := hostPorts(in.Pod)
	if len(want) == 0 {
		return false
	}
	for _, o := range in.Others {
		for _, used := range hostPorts(o) {
			for _, w := range want {
				if w.port == used.port && w.protocol == used.protocol &&
					(w.ip == used.ip || w.ip == "0.0.0.0" || used.ip == "0.0.0.0") {
					return true
				}
			}
		}
	}
	return false
}

// hostPorts returns the host ports of the containers that run as long as the pod. On the host's network, a container's
// port is a host port.
func hostPorts(p *v1.Pod) []hostPort {
	var out []hostPort
	add := func(c *v1.Container) {
		for _, port := range c.Ports {
			h := hostPort{protocol: port.Protocol, port: port.HostPort, ip: port.HostIP}
			if h.port == 0 && p.Spec.HostNetwork {
				h.port = port.ContainerPort
			}
			if h.port <= 0 {
				continue
			}
			if h.protocol == "" {
				h.protocol = v1.ProtocolTCP
			}
			if h.ip == "" {
				h.ip = "0.0.0.0"
			}
			out = append(out, h)
		}
	}
	for i := range p.Spec.InitContainers {
		c := &p.Spec.InitContainers[i]
		if pod.IsSidecar(c) {
			add(c)
		}
	}
	for i := range p.Spec.Containers {
		add(&p.Spec.Containers[i])
	}
	return out
}
