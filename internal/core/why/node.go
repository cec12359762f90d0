package why

import (
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/internal/core/nodestatus"
	"github.com/wherry-node/wherry/internal/core/pressure"
)

// NodeInput is what NodeChanges reads.
type NodeInput struct {
	Node *v1.Node
	// Thresholds are the eviction thresholds, Signals the newest readings, and Pressure is what was decided from the last regular readings.
	Thresholds []pressure.Threshold
	Signals    pressure.Signals
	Pressure   pressure.Result
	// Transition is how long a pressure condition remains after its last threshold was met (evictionPressureTransitionPeriod).
	Transition time.Duration

	Runtime  nodestatus.Runtime
	Endpoint string // of the runtime
	// Inspections is why the inspections of pods make the node not ready; "": they do not.
	Inspections string
	Down        bool // the machine shuts down
}

// Change says what would change a condition of a node. Its JSON form is stable: fields are added, never renamed.
type Change struct {
	Condition v1.NodeConditionType `json:"condition"`
	Status    v1.ConditionStatus   `json:"status"` // the present status
	// Line says what has to happen. At is when the status changes if nothing else happens; zero: it depends on an event.
	Line string    `json:"line"`
	At   time.Time `json:"at,omitzero"`
	// Do is what a person can do.
	Do []string `json:"do,omitempty"`
}

// NodeChanges says for each condition of the node what would change it, in the order of the conditions. It leaves out Ready if that is True.
func NodeChanges(in *NodeInput) []Change {
	out := []Change{}
	for i := range in.Node.Status.Conditions {
		c := &in.Node.Status.Conditions[i]
		ch := Change{Condition: c.Type, Status: c.Status}
		switch c.Type {
		case v1.NodeMemoryPressure, v1.NodeDiskPressure, v1.NodePIDPressure:
			in.pressure(&ch)
		case v1.NodeReady:
			if c.Status == v1.ConditionTrue {
				continue
			}
			in.ready(&ch)
		default:
			ch.Line = "another component sets this condition; this node only shows it"
		}
		out = append(out, ch)
	}
	return out
}

// pressure fills the change of a pressure condition.
func (in *NodeInput) pressure(ch *Change) {
	var below, above, unread []string
	for _, t := range in.Thresholds {
		if t.Signal.Condition() != ch.Condition {
			continue
		}
		o, ok := in.Signals.Read(t.Signal)
		if !ok {
			unread = append(unread, string(t.Signal))
			continue
		}
		limit := in.Pressure.State.Limit(t, o.Capacity)
		is, wants := t.Signal.Amount(o.Available), t.Signal.Amount(limit)
		switch {
		case o.Available < limit && ch.Status == v1.ConditionTrue:
			below = append(below, fmt.Sprintf("%s is %s and has to reach %s, so %s more have to become free", t.Signal, is, wants, t.Signal.Amount(limit-o.Available)))
		case o.Available < limit:
			below = append(below, fmt.Sprintf("%s is %s, already below %s", t.Signal, is, wants))
		default:
			above = append(above, fmt.Sprintf("%s is %s, with the threshold %s", t.Signal, is, wants))
		}
	}
	seen := in.Pressure.State.Seen(ch.Condition)
	switch {
	case len(below)+len(above)+len(unread) == 0:
		ch.Line = "nothing: no eviction threshold is configured for it"
	case len(below)+len(above) == 0:
		ch.Line = "it is known as soon as one of these can be measured: " + strings.Join(unread, ", ")
	case ch.Status != v1.ConditionTrue && len(below) > 0:
		ch.Line = "it becomes True at once: " + strings.Join(below, "; ")
	case ch.Status != v1.ConditionTrue:
		ch.Line = "it becomes True below a threshold: " + strings.Join(above, "; ")
	case len(below) > 0:
		ch.Line = fmt.Sprintf("%s; it ends %s after that", strings.Join(below, "; "), in.Transition)
	default:
		ch.Line = "it ends if this stays so: " + strings.Join(above, "; ")
		if !seen.IsZero() {
			ch.At = seen.Add(in.Transition)
		}
	}
}

// networkAdvice is what a person can do about a pod network that is not ready.
const networkAdvice = "install or mend the network plugin: the runtime wants a configuration in /etc/cni/net.d and programs in /opt/cni/bin"

// ready fills the change of the condition Ready of a node that is not ready.
func (in *NodeInput) ready(ch *Change) {
	var has []string
	need := func(what, do string) {
		has = append(has, what)
		if do != "" {
			ch.Do = append(ch.Do, do)
		}
	}
	away := in.Runtime.Err != "" || in.Runtime.Status == nil
	if away {
		need("the runtime answers at "+in.Endpoint, "see why it does not answer: systemctl status containerd; crictl --runtime-endpoint "+in.Endpoint+" info")
	}
	if !away && !nodestatus.RuntimeReady(in.Runtime.Status) {
		need("the runtime reports that it is ready", "see the runtime's log: journalctl -u containerd")
	}
	if network, _ := nodestatus.NetworkReady(in.Runtime.Status); !away && !network {
		need("the runtime reports that its network is ready", networkAdvice)
	}
	if in.Inspections != "" {
		need("the runtime answers the inspections of pods ("+in.Inspections+")", "")
	}
	if in.Down {
		need("the machine has started again, because it shuts down now", "")
	}
	if len(has) == 0 {
		has = []string{"the problems in its message have ended"}
	}
	ch.Line = "it becomes True as soon as " + strings.Join(has, ", and ")
}
