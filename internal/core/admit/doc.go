// Package admit decides whether a node takes a pod. A kubelet makes these checks once per pod, before it starts
// anything of the pod.
//
// Contract: pure. Admit reads only its Input and changes nothing in it. The caller asks once per pod (never for a pod
// that has a sandbox), in the order in which pods arrived, and counts an admitted pod among Others from then on.
//
// Checks, order, reasons and messages are those that users know from Kubernetes: the node's pressure, sysctls, operating system,
// supplemental groups policy, resources, node selector and affinity, node name, host ports, NoExecute taints, AppArmor. The first failed
// check is reported. If resources do not suffice for a critical pod, the node makes room for it (Result.Preempt) unless one of the later
// checks, up to the taints, fails too: ending other pods would not help then.
package admit
