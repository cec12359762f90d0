package admit

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/wherry-node/wherry/internal/core/pod"
)

// predicates makes the checks of kube-scheduler, except for resources, and returns the failed ones. Such a check can fail if
// kube-scheduler did not place the pod, or if the node has changed since.
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

// hostPort is a port of the host that a pod uses.
type hostPort struct {
	protocol v1.Protocol
	port     int32
	ip       string
}

// anyIP stands for every address of the host.
const anyIP = "0.0.0.0"

// portsTaken reports whether another pod already uses a host port that the pod wants. It looks the ports up in a map, because a pod may
// have very many.
func (in *Input) portsTaken() bool {
	want := hostPorts(in.Pod)
	if len(want) == 0 {
		return false
	}
	wanted := make(map[hostPort]bool, 2*len(want)) // has each port twice: as it is, and with the address ""
	for _, w := range want {
		wanted[w] = true
		w.ip = ""
		wanted[w] = true
	}
	for _, o := range in.Others {
		for _, used := range hostPorts(o) {
			same, atAny, atSome := used, used, used
			atAny.ip, atSome.ip = anyIP, ""
			if wanted[same] || wanted[atAny] || used.ip == anyIP && wanted[atSome] {
				return true
			}
		}
	}
	return false
}

// hostPorts returns the host ports of the containers that run as long as the pod runs. In a pod with hostNetwork, every container port is
// a host port.
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
				h.ip = anyIP
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
