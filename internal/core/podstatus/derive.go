package podstatus

import (
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	quantity "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/resource"

	"github.com/wherry-node/wherry/internal/core/crispec"
	"github.com/wherry-node/wherry/internal/core/decide"
	"github.com/wherry-node/wherry/internal/core/nodeclock"
	"github.com/wherry-node/wherry/internal/core/pod"
)

// Input contains everything that a status depends on. Derive does not change it.
type Input struct {
	// Pod is the desired pod, with the status that the API last showed.
	Pod *v1.Pod
	// Old is the status that was derived last; nil in an agent's first turn, when the status in the API is used.
	Old *v1.PodStatus
	// Observed, Memory, Plan and Probed are those of the turn that this status reports. Memory already contains the changes by Note and
	// Remember.
	Observed *pod.Observed
	Memory   *decide.Memory
	Plan     *decide.Plan
	Probed   decide.ProbeResults
	// RuntimeName is the prefix of container IDs, for example containerd.
	RuntimeName string
	// HostIPs are the node's addresses, the primary one first, at most one per family.
	HostIPs []string
	// RecursiveReadOnly: the pod's runtime handler supports recursive read-only mounts.
	RecursiveReadOnly bool
	Omit              Omit
	Now               time.Time
	// Clock is the node's clock: the times in statuses are those that it shows, all others are instants.
	Clock nodeclock.Clock
}

// Omit says which parts of a status are left out because their feature gates are off. By default none is left out.
type Omit struct {
	// ReadyToStart leaves out the condition PodReadyToStartContainers (gate PodReadyToStartContainersCondition).
	ReadyToStart bool
	// PodResources leaves out the resources of the whole pod (gate InPlacePodLevelResourcesVerticalScaling).
	PodResources bool
}

// Derive computes the whole status of a pod.
func Derive(in Input) v1.PodStatus {
	d := derivation{Input: in}
	if d.Old == nil {
		d.Old = &in.Pod.Status
	}
	if d.Plan == nil {
		d.Plan = &decide.Plan{}
	}
	d.initialized = d.wasInitialized()
	s := v1.PodStatus{
		ObservedGeneration: max(in.Pod.Generation, d.Old.ObservedGeneration),
		QOSClass:           crispec.QOS(in.Pod),
		StartTime:          d.startTime(),
	}
	if q := in.Pod.Status.QOSClass; q != "" { // the QoS class of a pod never changes
		s.QOSClass = q
	}
	if d.rejected() {
		s.Phase, s.Reason = v1.PodFailed, in.Memory.Stop.Reason
		s.Message = "Pod was rejected: " + in.Memory.Stop.Message
		boundTexts(&s)
		return s
	}
	d.addresses(&s)
	if !d.Omit.PodResources {
		d.resources(&s)
	}
	d.containers(&s)
	d.phase(&s)
	d.conditions(&s)
	boundTexts(&s)
	return s
}

// boundTexts cuts long reasons and messages, which may come from runtimes, containers and probes, so that the status is not too large for
// the API server. It also removes control characters, which a terminal would obey.
func boundTexts(s *v1.PodStatus) {
	s.Reason, s.Message = pod.Text(s.Reason), pod.Text(s.Message)
	for i := range s.Conditions {
		c := &s.Conditions[i]
		c.Reason, c.Message = pod.Text(c.Reason), pod.Text(c.Message)
	}
	for c := range pod.Statuses(s) {
		for _, st := range [...]*v1.ContainerState{&c.State, &c.LastTerminationState} {
			if w := st.Waiting; w != nil {
				w.Reason, w.Message = pod.Text(w.Reason), pod.Text(w.Message)
			}
			if t := st.Terminated; t != nil {
				t.Reason, t.Message = pod.Text(t.Reason), pod.Text(t.Message)
			}
		}
	}
}

// derivation holds the state of one call of Derive.
type derivation struct {
	Input
	initialized bool // the init containers had completed at some time
	// outcome is the phase of the pod. It may already be terminal while the status does not show this yet, because the pod still uses
	// resources of the node.
	outcome v1.PodPhase
}

// rejected reports whether the node never admitted the pod, and nothing of it has run.
func (d *derivation) rejected() bool {
	return d.Memory.Stop != nil && d.Memory.Stop.Rejected && d.Observed.Empty()
}

// startTime returns when the node first saw the pod.
func (d *derivation) startTime() *metav1.Time {
	for _, st := range []*metav1.Time{d.Old.StartTime, d.Pod.Status.StartTime} {
		if st != nil && !st.IsZero() {
			return new(metav1.NewTime(st.Truncate(time.Second)))
		}
	}
	at := d.Memory.StartTime
	if at.IsZero() {
		at = d.Now
	}
	t := d.stamp(at)
	return &t
}

// stamp returns what the node's clock shows at an instant, in whole seconds, as the API stores it.
func (d *derivation) stamp(t time.Time) metav1.Time {
	if t.IsZero() {
		return metav1.Time{}
	}
	return metav1.NewTime(d.Clock.Shows(t).Truncate(time.Second))
}

// addresses sets the addresses of the node and of the pod. The pod has the addresses of its sandbox; the one of the same family as the
// node's primary address comes first. A pod whose sandbox is gone keeps its last addresses.
func (d *derivation) addresses(s *v1.PodStatus) {
	for i, ip := range d.HostIPs {
		if i == 0 {
			s.HostIP = ip
		}
		s.HostIPs = append(s.HostIPs, v1.HostIP{IP: ip})
	}
	var ips []string
	if d.Pod.Spec.HostNetwork {
		ips = d.hostNetworkIPs()
	} else {
		ips = d.sandboxIPs()
	}
	for i, ip := range ips {
		if i == 0 {
			s.PodIP = ip
		}
		s.PodIPs = append(s.PodIPs, v1.PodIP{IP: ip})
	}
}

// hostNetworkIPs returns the addresses of a pod on the host's network: the node's, once the pod has a sandbox. They do not change
// later, but a second family may be added.
func (d *derivation) hostNetworkIPs() []string {
	ips := oldIPs(d.Old)
	if len(ips) == 0 {
		return d.HostIPs
	}
	if len(ips) == 1 && len(d.HostIPs) == 2 && isV6(ips[0]) != isV6(d.HostIPs[1]) {
		ips = append(ips, d.HostIPs[1])
	}
	return ips
}

func (d *derivation) sandboxIPs() []string {
	sb := d.Observed.NewestSandbox()
	if sb == nil || len(sb.IPs) == 0 {
		if sb != nil && sb.Ready {
			return nil
		}
		return oldIPs(d.Old)
	}
	return pod.Addresses(sb.IPs, d.HostIPs)
}

func oldIPs(s *v1.PodStatus) []string {
	var ips []string
	for _, ip := range s.PodIPs {
		ips = append(ips, ip.IP)
	}
	return ips
}

func isV6(ip string) bool { return strings.Contains(ip, ":") }

// resources sets the resources of the whole pod: the allocated ones, and those that its cgroup really has if they differ.
func (d *derivation) resources(s *v1.PodStatus) {
	if !sized(d.Pod) { // the empty lists of pods without resources were 4 % of a fleet's processor time while pods end
		return
	}
	requests := resource.PodRequests(d.Pod, resource.PodResourcesOptions{})
	limits := resource.PodLimits(d.Pod, resource.PodResourcesOptions{})
	s.AllocatedResources = requests
	s.Resources = &v1.ResourceRequirements{Requests: requests.DeepCopy(), Limits: limits}
	if m := d.Memory; m.GroupSized && !d.Plan.Ended {
		if want := crispec.PodSize(d.Pod); want != m.GroupSize {
			overlay(s.Resources, want, m.GroupSize)
		}
	}
}

// sized reports whether a pod, or any container of it, requests or limits a resource.
func sized(p *v1.Pod) bool {
	some := func(c v1.Container) bool { return len(c.Resources.Requests)+len(c.Resources.Limits) > 0 }
	return p.Spec.Resources != nil || len(p.Spec.Overhead) > 0 || slices.ContainsFunc(p.Spec.Containers, some) || slices.ContainsFunc(p.Spec.InitContainers, some)
}

// overlay replaces the resources of a spec by the actual ones where these differ. Memory requests always come from the spec.
func overlay(r *v1.ResourceRequirements, want, actual pod.Size) {
	set := func(list v1.ResourceList, name v1.ResourceName, want, actual int64) {
		if want == actual || actual == 0 || list == nil {
			return
		}
		if name == v1.ResourceCPU {
			list[name] = *quantity.NewMilliQuantity(actual, quantity.DecimalSI)
		} else {
			list[name] = *quantity.NewQuantity(actual, quantity.BinarySI)
		}
	}
	set(r.Requests, v1.ResourceCPU, want.CPURequest, actual.CPURequest)
	set(r.Limits, v1.ResourceCPU, want.CPULimit, actual.CPULimit)
	set(r.Limits, v1.ResourceMemory, want.MemoryLimit, actual.MemoryLimit)
}
