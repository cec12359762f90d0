package admit

import (
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/wherry-node/wherry/internal/core/pod"
)

// predicates makes the checks of kube-scheduler, except for resources, and returns the failed ones. Such a check can fail if
// kube-scheduler did not place the pod, or if the node has changed since.
func (in *Input) predicates() []Result {
	var failed []Result
	fail := func(reason, description, detail string) {
		r := refuse(reason, messagePredicate, reason, description)
		r.Detail = detail
		failed = append(failed, r)
	}
	// A selector that cannot be parsed matches nothing. Selectors and taints do not apply to a static pod, because
	// somebody placed it on this node.
	if ok, err := nodeaffinity.GetRequiredNodeAffinity(in.Pod).Match(in.Node); (err != nil || !ok) && !pod.IsStatic(in.Pod) {
		fail(ReasonNodeAffinity, descriptionAffinity, in.unmatchedLabel())
	}
	if n := in.Pod.Spec.NodeName; n != "" && n != in.Node.Name {
		fail(ReasonNodeName, descriptionName, fmt.Sprintf("the pod names the node %q, and this is %q", n, in.Node.Name))
	}
	if p, by := in.portTaken(); by != nil {
		fail(ReasonNodePorts, descriptionPorts, fmt.Sprintf("port %d/%s of the host is used by pod %s/%s", p.port, p.protocol, by.Namespace, by.Name))
	}
	if !pod.IsStatic(in.Pod) {
		for i := range in.Node.Spec.Taints {
			t := &in.Node.Spec.Taints[i]
			if t.Effect == v1.TaintEffectNoExecute && !tolerated(in.Pod, t) {
				fail(ReasonTaint, descriptionTaint, "the node has the taint "+t.ToString())
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

// unmatchedLabel describes the first label, by name, of the pod's nodeSelector that the node does not have. It returns "" if the node has
// them all, so that only the pod's affinity does not match.
func (in *Input) unmatchedLabel() string {
	for _, name := range slices.Sorted(maps.Keys(in.Pod.Spec.NodeSelector)) {
		want := in.Pod.Spec.NodeSelector[name]
		switch has, ok := in.Node.Labels[name]; {
		case !ok:
			return fmt.Sprintf("the pod wants a node with the label %s=%s, and this node has no label of that name", name, want)
		case has != want:
			return fmt.Sprintf("the pod wants a node with the label %s=%s, and this node has %s=%s", name, want, name, has)
		}
	}
	return ""
}

// portTaken returns a host port that the pod wants and that another pod already uses, with that pod. The pod is nil if all ports are
// free. It looks the ports up in a map, because a pod may have very many.
func (in *Input) portTaken() (hostPort, *v1.Pod) {
	want := hostPorts(in.Pod)
	if len(want) == 0 {
		return hostPort{}, nil
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
				return used, o
			}
		}
	}
	return hostPort{}, nil
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
