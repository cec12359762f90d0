// Package admit decides whether a node takes a pod: the checks that a kubelet makes once per pod, before anything
// of it is started.
//
// Contract: pure. Admit reads its Input and nothing else, and changes nothing in it. The caller asks once per pod
// (a pod that has a sandbox is never asked about again), in the order in which pods arrived, and counts an
// admitted pod among Others from then on.
//
// The checks and their order are those that users know from Kubernetes, with the same reasons and messages: the
// node's pressure, sysctls, operating system, supplemental groups policy, resources, node selector and affinity,
// node name, host ports, NoExecute taints, AppArmor. The first that fails is the one that is reported; all of the
// group from resources to taints are looked at, because a critical pod may be refused for any of them except
// resources: room is made for it instead (Result.Preempt).
package admit
