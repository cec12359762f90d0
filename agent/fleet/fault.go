package fleet

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/wherry-node/wherry/agent/simulated"
)

// FaultKind is a kind of fault of a node.
type FaultKind string

// These are the kinds of faults that a fleet can inject.
const (
	// FaultCrash stops the machine: its agent and all its containers end at once. When the fault is healed, the machine boots and starts
	// its pods again.
	FaultCrash FaultKind = "crash"
	// FaultAgent ends the agent only. The containers run on, and the next agent finds them when the fault is healed.
	FaultAgent FaultKind = "agent"
	// FaultPartition cuts the node off from the API server.
	FaultPartition FaultKind = "partition"
	// FaultRuntime makes the container runtime misbehave, as Fault.Runtime says.
	FaultRuntime FaultKind = "runtime"
	// FaultSlowAPI delays each request of the node to the API server by Fault.Delay. Watches that are open go on.
	FaultSlowAPI FaultKind = "slow-api"
	// FaultLease keeps the node from renewing its lease. Everything else goes on.
	FaultLease FaultKind = "lease"
	// FaultPressure makes processes outside the pods use memory, disk space or process IDs, as Fault.Pressure says.
	FaultPressure FaultKind = "pressure"
	// FaultShutdown makes the machine begin to shut down. If the node has a shutdownGracePeriod, it becomes not ready, refuses pods and ends
	// its pods in the order of their priority; without one, nothing happens until somebody crashes the machine. When the fault is healed,
	// the shutdown is cancelled.
	FaultShutdown FaultKind = "shutdown"
	// FaultNotReady makes the container runtime say that the pods' network is not set up: the node is not Ready, its containers run on, and pods
	// that need that network do not start.
	FaultNotReady FaultKind = "not-ready"
	// FaultDevices makes devices of the node unhealthy, as Fault.Devices says. Pods that have devices keep them.
	FaultDevices FaultKind = "devices"
	// FaultClock makes the node's clock wrong, as Fault.Clock says: the times that the node writes into objects and logs, and its certificate's
	// renewal, follow it. When the fault is healed, the clock is right again at once.
	FaultClock FaultKind = "clock"
	// FaultExit ends running containers once, as Fault.Exit says. It does not last.
	FaultExit FaultKind = "exit"
)

// faultKinds are all kinds.
var faultKinds = []FaultKind{FaultCrash, FaultAgent, FaultPartition, FaultRuntime, FaultSlowAPI, FaultLease, FaultPressure, FaultShutdown, FaultNotReady, FaultDevices,
	FaultClock, FaultExit}

// Fault is something that goes wrong on nodes.
type Fault struct {
	Kind FaultKind `json:"kind"`
	// Runtime is for FaultRuntime.
	Runtime simulated.Fault `json:"runtime"`
	// Delay is for FaultSlowAPI.
	Delay time.Duration `json:"delay"`
	// Pressure is for FaultPressure.
	Pressure simulated.Pressure `json:"pressure"`
	// Devices is for FaultDevices.
	Devices simulated.DeviceFault `json:"devices"`
	// Clock is for FaultClock.
	Clock Skew `json:"clock"`
	// Exit is for FaultExit.
	Exit Exit `json:"exit"`
	// For is how long the fault lasts; 0: until Heal.
	For time.Duration `json:"for"`
}

// Injected says what InjectEach has done.
type Injected struct {
	// On are the names of the nodes that have the fault, or, for FaultExit, the containers that have ended, as NODE/NAMESPACE/POD/CONTAINER.
	On []string `json:"on,omitempty"`
	// LeftOut is how many of the chosen nodes cannot have the fault, and Why what is in the way at the first of them.
	LeftOut int    `json:"leftOut,omitempty"`
	Why     string `json:"why,omitempty"`
}

// Inject makes a fault happen on the chosen nodes, and returns Injected.On: see InjectEach.
func (f *Fleet) Inject(s Selector, fault Fault) ([]string, error) {
	in, err := f.InjectEach(s, fault)
	return in.On, err
}

// InjectEach makes a fault happen on each of the chosen nodes. A node can have several faults at once, each with its own duration. Nodes that
// cannot have the fault are left out: for example, the runtime of a machine that has crashed cannot misbehave. If that is true of all of them,
// or of one that Selector.Names names, InjectEach returns an error, and then no node has the fault.
func (f *Fleet) InjectEach(s Selector, fault Fault) (Injected, error) {
	if err := fault.Check(); err != nil {
		return Injected{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	nodes, err := f.choose(s)
	if err != nil {
		return Injected{}, err
	}
	if fault.Kind == FaultExit {
		return Injected{On: f.exit(nodes, fault.Exit, s.Seed)}, nil
	}
	f.injected++
	number := f.injected
	var in Injected
	var hit []*node
	for _, n := range nodes {
		if why := n.suffer(fault, number); why != nil {
			if in.LeftOut++; err == nil {
				err = why
			}
			continue
		}
		hit, in.On = append(hit, n), append(in.On, n.name)
	}
	if err != nil && (len(hit) == 0 || len(s.Names) > 0) {
		for _, n := range hit {
			n.heal(number)
		}
		return Injected{}, err
	}
	if err != nil {
		in.Why = err.Error()
	}
	if fault.For > 0 {
		time.AfterFunc(fault.For, func() { f.healAll(hit, number) })
	}
	f.cfg.Log.Info("a fault begins", "fault", fault.Kind, "nodes", len(in.On), "leftOut", in.LeftOut, "for", fault.For)
	return in, nil
}

// Check returns an error if the fault is not valid, or if it is for a CRI method that simulated runtimes do not have. The error is a
// *simulated.FieldError if a single field is wrong, or one of Runtime, Pressure, Devices, Clock and Exit as a whole.
func (fault *Fault) Check() error {
	if fault.For < 0 {
		return wrong("for", "%s: a fault cannot last for a negative time", fault.For)
	}
	if err := fault.check(); err != nil {
		return err
	}
	if fault.Kind == FaultRuntime && !fault.Runtime.LoseEvents {
		return simulated.CheckMethod(fault.Runtime.Method)
	}
	return nil
}

// check returns an error if the fault is not valid, as Check does. A method may be one of a real runtime.
func (fault *Fault) check() error {
	switch {
	case !slices.Contains(faultKinds, fault.Kind):
		return fmt.Errorf("fault %q: use one of %s", brief(string(fault.Kind)), listed(faultKinds))
	case fault.Kind == FaultRuntime:
		return simulated.Within("runtime", fault.Runtime.Check())
	case fault.Kind == FaultSlowAPI && fault.Delay <= 0:
		return wrong("delay", "fault %s needs a delay: how much longer a request takes", fault.Kind)
	case fault.Kind == FaultPressure:
		return simulated.Within("pressure", fault.Pressure.Check())
	case fault.Kind == FaultDevices:
		return simulated.Within("devices", fault.Devices.Check())
	case fault.Kind == FaultClock:
		return simulated.Within("clock", fault.Clock.check())
	case fault.Kind == FaultExit && fault.For > 0:
		return wrong("for", "fault %s happens once: it has no duration", fault.Kind)
	case fault.Kind == FaultExit:
		return simulated.Within("exit", fault.Exit.check())
	}
	return nil
}

// wrong returns an error about one field.
func wrong(field, format string, args ...any) error {
	return &simulated.FieldError{Field: field, Err: fmt.Errorf(format, args...)}
}

// listed returns words as text, separated by commas.
func listed[T ~string](words []T) string {
	var b strings.Builder
	for i, w := range words {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(string(w))
	}
	return b.String()
}

// Heal ends all faults of the chosen nodes, and returns their names.
func (f *Fleet) Heal(s Selector) ([]string, error) {
	f.mu.Lock()
	nodes, err := f.choose(s)
	f.mu.Unlock()
	if err != nil {
		return nil, err
	}
	f.healAll(nodes, everyFault)
	var names []string
	for _, n := range nodes {
		names = append(names, n.name)
	}
	return names, nil
}

// everyFault, in place of the number of one fault, means all faults of a node. Inject numbers the faults from 1.
const everyFault = 0

// healAll ends, on each of the nodes, the fault with this number; everyFault: all faults.
func (f *Fleet) healAll(nodes []*node, number int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, n := range nodes {
		n.heal(number)
	}
}

// activeFault is a fault that a node has now.
type activeFault struct {
	kind  FaultKind
	text  string // describes the fault, for people; "": its kind says everything
	since time.Time
	until time.Time // zero: until Heal
	end   func()    // ends the fault; nil: heal ends a fault of this kind itself
	skew  Skew      // of FaultClock
}

// suffer makes a fault active on the node, or returns why the node cannot have it. number identifies the fault for heal. The caller holds the
// fleet's lock.
func (n *node) suffer(fault Fault, number int) error {
	active := activeFault{kind: fault.Kind, since: time.Now()}
	if fault.For > 0 {
		active.until = active.since.Add(fault.For)
	}
	switch fault.Kind {
	case FaultCrash, FaultAgent:
		n.down = true
		if n.stop != nil {
			n.stop()
		}
		if fault.Kind == FaultCrash && n.sim != nil {
			n.sim.Close()
			n.sim = nil
			n.forgetFaultsOfMachine()
		}
	case FaultPartition:
		n.link.partition(true)
		if h := n.fleet.hub; h != nil {
			h.cut(n.link)
		}
	case FaultRuntime:
		if n.sim == nil {
			return n.off("its runtime does not run")
		}
		end, err := n.sim.Inject(fault.Runtime)
		if err != nil {
			return fmt.Errorf("node %s: %w", n.name, err)
		}
		active.end, active.text = end, describe(&fault.Runtime)
	case FaultSlowAPI:
		active.end, active.text = n.link.slow(fault.Delay), "requests take "+fault.Delay.String()+" longer"
	case FaultLease:
		n.link.keepLease(false)
	case FaultPressure:
		if n.sim == nil {
			return n.off("it has no memory and disk in use")
		}
		end, err := n.sim.Press(fault.Pressure)
		if err != nil {
			return fmt.Errorf("node %s: %w", n.name, err)
		}
		active.end, active.text = end, pressing(&fault.Pressure)
	case FaultDevices:
		if n.sim == nil {
			return n.off("it has no devices")
		}
		end, err := n.sim.Fail(fault.Devices)
		if err != nil {
			return fmt.Errorf("node %s: %w", n.name, err)
		}
		active.end, active.text = end, unhealthy(&fault.Devices)
	case FaultClock: // also of a machine that is off: its clock goes on
		active.skew, active.text = fault.Clock, fault.Clock.String()
	case FaultShutdown:
		if n.sim == nil {
			return n.off("it cannot shut down")
		}
		n.sim.SetShutdown(true)
	case FaultNotReady:
		if n.sim == nil {
			return n.off("its runtime does not run")
		}
		n.sim.SetNetwork(false)
	}
	if n.faults == nil {
		n.faults = map[int]activeFault{}
	}
	n.faults[number] = active
	if fault.Kind == FaultClock {
		n.setClock()
	}
	return nil
}

// off returns the error that the node cannot have a fault because its machine is off. so says what follows for this fault.
func (n *node) off(so string) error {
	if n.down {
		return fmt.Errorf("node %s has crashed: %s", n.name, so)
	}
	return fmt.Errorf("node %s has not started yet: %s", n.name, so)
}

// pressing returns a short text that says which resources a fault uses.
func pressing(p *simulated.Pressure) string {
	var what []string
	for _, r := range []struct {
		name    string
		percent float64
	}{{"memory", p.Memory}, {"disk", p.Disk}, {"processes", p.Processes}} {
		if r.percent > 0 {
			what = append(what, fmt.Sprintf("%s %g %%", r.name, r.percent))
		}
	}
	return strings.Join(what, ", ")
}

// unhealthy returns a short text that says which devices a fault makes unhealthy.
func unhealthy(d *simulated.DeviceFault) string {
	if d.Unhealthy == 0 {
		return "all of " + d.Resource
	}
	return fmt.Sprintf("%d of %s", d.Unhealthy, d.Resource)
}

// describe returns a short text that says how a fault makes the runtime misbehave.
func describe(r *simulated.Fault) string {
	var what []string
	for _, p := range []struct {
		is   bool
		text string
	}{{r.Hang, "hangs"}, {r.Error != "", "fails"}, {r.Delay > 0, "takes " + r.Delay.String() + " longer"}, {r.LoseEvents, "loses events"}, {r.LoseAnswer, "loses answers"}} {
		if p.is {
			what = append(what, p.text)
		}
	}
	text := strings.Join(what, ", ")
	if r.Method != "" {
		text = r.Method + " " + text
	}
	return text
}

// forgetFaultsOfMachine removes the node's faults of the kinds FaultRuntime, FaultPressure, FaultShutdown, FaultNotReady and FaultDevices, because
// the runtime, the processes, the shutdown and the state of the devices have ended in a crash of the machine. The caller holds the lock.
func (n *node) forgetFaultsOfMachine() {
	of := []FaultKind{FaultRuntime, FaultPressure, FaultShutdown, FaultNotReady, FaultDevices}
	maps.DeleteFunc(n.faults, func(_ int, a activeFault) bool { return slices.Contains(of, a.kind) })
}

// has reports whether the node has a fault of one of the kinds. The caller holds the lock.
func (n *node) has(kinds ...FaultKind) bool {
	for _, a := range n.faults {
		if slices.Contains(kinds, a.kind) {
			return true
		}
	}
	return false
}

// heal ends the fault with this number; everyFault: all faults. If the node has another fault of the same kind, that one continues. The
// caller holds the lock.
func (n *node) heal(number int) {
	clock := false
	for i, a := range n.faults {
		if number != everyFault && number != i {
			continue
		}
		clock = clock || a.kind == FaultClock
		if a.end != nil {
			a.end()
		}
		delete(n.faults, i)
	}
	if clock {
		n.setClock()
	}
	if n.link.partitioned() && !n.has(FaultPartition) {
		n.link.partition(false)
		if h := n.fleet.hub; h != nil {
			h.heal(n.link)
		}
	}
	if n.sim != nil && !n.has(FaultShutdown) {
		n.sim.SetShutdown(false)
	}
	if n.sim != nil && !n.has(FaultNotReady) {
		n.sim.SetNetwork(true)
	}
	if !n.has(FaultLease) {
		n.link.keepLease(true)
	}
	if n.down && !n.has(FaultCrash, FaultAgent) {
		n.down = false
		n.rounds.Wake()
	}
}
