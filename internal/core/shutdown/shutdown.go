package shutdown

import (
	"cmp"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/core/inorder"
)

// Kubernetes uses the same texts for pods and nodes during a shutdown.
const (
	// ReasonTerminated and MessageTerminated are the status of a pod that ended because of a shutdown.
	ReasonTerminated  = "Terminated"
	MessageTerminated = "Pod was terminated in response to imminent node shutdown."
	// ReasonRefused and MessageRefused are the status of a pod that the node refused during a shutdown.
	ReasonRefused  = "NodeShutdown"
	MessageRefused = "Pod was rejected as the node is shutting down."
	// Problem is the reason why the node is not ready during a shutdown.
	Problem = "node is shutting down"
	// EventReason is the reason of the node's events; MessageBegan and MessageCancelled are their texts.
	EventReason      = "Shutdown"
	MessageBegan     = "Shutdown manager detected shutdown event"
	MessageCancelled = "Shutdown manager detected shutdown cancellation"
)

// systemCritical is the lowest priority of a critical pod, that of the class system-cluster-critical.
const systemCritical = 2_000_000_000

// Period is how much time the pods in a range of priorities have to end. The range begins with Priority and ends before the next
// Period's Priority.
type Period struct {
	Priority int32
	Grace    time.Duration
}

// Policy lists the periods by ascending priority. With an empty Policy, the machine's shutdown is not delayed.
type Policy []Period

// New returns the policy for shutdownGracePeriodByPodPriority or, if that is empty, for shutdownGracePeriod (whole) and
// shutdownGracePeriodCriticalPods (critical, the part of it for critical pods). Fractions of a second are dropped, as in
// upstream's kubelet.
func New(byPriority []Period, whole, critical time.Duration) Policy {
	if len(byPriority) > 0 {
		p := Policy(slices.Clone(byPriority))
		inorder.Sort(p, func(a, b Period) int { return cmp.Compare(a.Priority, b.Priority) })
		return p
	}
	if whole <= 0 || critical < 0 || critical > whole {
		return nil
	}
	return Policy{{0, (whole - critical).Truncate(time.Second)}, {systemCritical, critical.Truncate(time.Second)}}
}

// Whole returns how long the machine's shutdown has to be delayed, which is the sum of all periods.
func (p Policy) Whole() (sum time.Duration) {
	for _, period := range p {
		sum += period.Grace
	}
	return sum
}

// Group has the pods that end at the same time. After Wait, or when all pods of the group have ended, the next group begins.
type Group struct {
	Priority int32
	Wait     time.Duration
	Pods     []End
}

// End names a pod that has to end, and the grace period that its containers get.
type End struct {
	UID   types.UID
	Grace time.Duration
}

// Groups divides pods by priority, the lowest first. A pod whose priority is below all periods belongs to the first group. A
// group without pods is left out, so that nothing waits for it.
func (p Policy) Groups(pods []*v1.Pod) []Group {
	var groups []Group
	for i, period := range p {
		g := Group{Priority: period.Priority, Wait: period.Grace}
		for _, pod := range pods {
			if p.place(priority(pod)) == i {
				g.Pods = append(g.Pods, End{pod.UID, grace(pod, period.Grace)})
			}
		}
		if len(g.Pods) > 0 {
			groups = append(groups, g)
		}
	}
	return groups
}

// place returns the index of the period of a priority.
func (p Policy) place(priority int32) int {
	at := 0
	for i, period := range p {
		if period.Priority <= priority {
			at = i
		}
	}
	return at
}

func priority(p *v1.Pod) int32 {
	if p.Spec.Priority == nil {
		return 0
	}
	return *p.Spec.Priority
}

// grace returns the pod's own grace period, or the period of its group if that is shorter.
func grace(p *v1.Pod, period time.Duration) time.Duration {
	if s := p.Spec.TerminationGracePeriodSeconds; s != nil && *s >= 0 && *s <= int64(period/time.Second) {
		return time.Duration(*s) * time.Second
	}
	return period
}
