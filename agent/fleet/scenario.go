package fleet

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/wherry-node/wherry/agent/simulated"
	"github.com/wherry-node/wherry/internal/core/yamldoc"
)

// ScenarioKind is the kind of a file with a Scenario.
const ScenarioKind = "FleetScenario"

// maxEvents is the largest number of events in a scenario. maxTimes is how often one event may happen at most.
const (
	maxEvents = 1000
	maxTimes  = 100_000
)

// Scenario is a plan of faults. With the same nodes and containers, each run of a scenario chooses the same nodes and containers for its
// faults.
type Scenario struct {
	// Name is what Status calls the scenario. ParseScenario sets it to the name of the file.
	Name string
	// Seed is the seed of all random choices: the nodes, the containers, and the jitter.
	Seed   uint64
	Events []Event

	where func(path string) string // returns file and line of a field; nil: the scenario is from no file
}

// Event is a fault that happens once or several times in a scenario.
type Event struct {
	Name string
	// When is the condition that must be true before the event begins.
	When Condition
	// After is the wait between the moment when the condition is true and the first fault. Every is the wait between two faults. Each wait
	// is changed by a random time between -Jitter and +Jitter.
	After, Every, Jitter time.Duration
	// Times is how often the fault happens.
	Times int
	Nodes Selector
	Fault Fault
}

// Condition is a state of the fleet that an event waits for. With the zero value, the event waits until all nodes have joined: each has been
// Ready once, or has not become Ready within two minutes.
type Condition struct {
	NodesReady, PodsRunning int // the smallest numbers for which the condition is true
}

// scenarioFile is the content of a scenario file.
type scenarioFile struct {
	APIVersion string      `json:"apiVersion"`
	Kind       string      `json:"kind"`
	Seed       uint64      `json:"seed"`
	Events     []eventFile `json:"events"`
}

// eventFile is an Event in a file.
type eventFile struct {
	Name string `json:"name"`
	When struct {
		NodesReady  int `json:"nodesReady"`
		PodsRunning int `json:"podsRunning"`
	} `json:"when"`
	After  metav1.Duration `json:"after"`
	Every  metav1.Duration `json:"every"`
	Jitter metav1.Duration `json:"jitter"`
	Times  int             `json:"times"`
	For    metav1.Duration `json:"for"`
	Nodes  *nodesFile      `json:"nodes"`
	Fault  FaultKind       `json:"fault"`
	// Only the field for the event's kind of fault may be set.
	Runtime  *runtimeFile           `json:"runtime"`
	Delay    *metav1.Duration       `json:"delay"`
	Pressure *simulated.Pressure    `json:"pressure"`
	Devices  *simulated.DeviceFault `json:"devices"`
	Exit     *Exit                  `json:"exit"`
	Clock    *skewFile              `json:"clock"`
}

type nodesFile struct {
	Names   []string `json:"names"`
	Group   string   `json:"group"`
	Labels  string   `json:"labels"`
	Count   int      `json:"count"`
	Percent float64  `json:"percent"`
}

type runtimeFile struct {
	Method     string          `json:"method"`
	Delay      metav1.Duration `json:"delay"`
	Error      string          `json:"error"`
	Hang       bool            `json:"hang"`
	LoseEvents bool            `json:"loseEvents"`
	LoseAnswer bool            `json:"loseAnswer"`
	Code       string          `json:"code"`
	Chance     float64         `json:"chance"`
}

// skewFile is a Skew in a file.
type skewFile struct {
	Offset metav1.Duration `json:"offset"`
	Drift  metav1.Duration `json:"drift"`
}

// ParseScenario reads a scenario from data in YAML or JSON. name is the file's name for error messages. The error joins all problems,
// each with file, line and field. ParseScenario cannot check groups, nodes and devices that the scenario names; Fleet.Check does.
func ParseScenario(name string, data []byte) (*Scenario, error) {
	return parseScenario(name, data, func(f *eventFile, bad func(field, text string)) { f.checkMethod(simulated.CheckMethod, bad) })
}

// ParseRuntimeScenario reads a scenario for the container runtime of one real node, as ParseScenario reads one for a fleet. All its faults
// are of the kind FaultRuntime, and it says nothing about nodes. method returns an error for the name of a CRI method that does not exist.
func ParseRuntimeScenario(name string, data []byte, method func(string) error) (*Scenario, error) {
	return parseScenario(name, data, func(f *eventFile, bad func(field, text string)) {
		if f.Fault != FaultRuntime {
			bad("fault", fmt.Sprintf("the runtime of a real node can only have the fault %s, not %q", FaultRuntime, f.Fault))
		}
		if f.Nodes != nil {
			bad("nodes", "the runtime of a real node belongs to one node: leave the field out")
		}
		if f.When.NodesReady != 0 {
			bad("when.nodesReady", "a runtime does not know which nodes are ready: use podsRunning, which counts the pods of this node")
		}
		f.checkMethod(method, bad)
	})
}

// checkMethod calls bad if the event is for a CRI method that does not exist. method returns an error for such a name.
func (f *eventFile) checkMethod(method func(string) error, bad func(field, text string)) {
	if f.Runtime == nil || f.Runtime.LoseEvents {
		return
	}
	if err := method(f.Runtime.Method); err != nil {
		bad("runtime.method", err.Error())
	}
}

// parseScenario does the work of ParseScenario. also calls bad for more fields of an event that are not valid.
func parseScenario(name string, data []byte, also func(f *eventFile, bad func(field, text string))) (*Scenario, error) {
	if len(data) > MaxTemplate {
		return nil, fmt.Errorf("%s: the scenario has %d bytes, more than %d", name, len(data), MaxTemplate)
	}
	if len(bytes.TrimSpace(data)) == 0 {
		return nil, fmt.Errorf("%s: the scenario is empty: write apiVersion: %s, kind: %s and events", name, TemplateAPIVersion, ScenarioKind)
	}
	d := yamldoc.Document{Name: name}
	var file scenarioFile
	if err := d.Decode(data, TemplateAPIVersion, ScenarioKind, &file); err != nil {
		return nil, err
	}
	switch n := len(file.Events); {
	case n == 0:
		d.Bad("events", "a scenario needs at least one event: write events: [{fault: crash, nodes: {count: 1}, for: 1m}]")
	case n > maxEvents:
		d.Bad("events", fmt.Sprintf("%d events: use at most %d", n, maxEvents))
		file.Events = nil
	}
	s := &Scenario{Name: name, Seed: file.Seed}
	for i := range file.Events {
		at := fmt.Sprintf("events[%d].", i)
		bad := func(field, text string) { d.Bad(at+field, text) }
		s.Events = append(s.Events, file.Events[i].event(i, bad))
		also(&file.Events[i], bad)
	}
	if len(d.Errs) > 0 {
		return nil, errors.Join(d.Errs...)
	}
	var one sync.Mutex // several goroutines may check the scenario, and a Document is for one
	s.where = func(path string) string {
		one.Lock()
		defer one.Unlock()
		return d.At(path)
	}
	return s, nil
}

// event converts the event of a file, and calls bad for each field that is not valid. i is the index of the event.
func (f *eventFile) event(i int, bad func(field, text string)) Event {
	e := Event{
		Name: f.Name, When: Condition{f.When.NodesReady, f.When.PodsRunning}, After: f.After.Duration, Every: f.Every.Duration, Jitter: f.Jitter.Duration, Times: max(1, f.Times),
		Nodes: Selector{All: true}, Fault: Fault{Kind: f.Fault, For: f.For.Duration},
	}
	if e.Name == "" {
		e.Name = fmt.Sprintf("%s %d", f.Fault, i+1)
	}
	if n := f.Nodes; n != nil {
		e.Nodes = Selector{Names: n.Names, Group: n.Group, Labels: n.Labels, Count: n.Count, Percent: n.Percent}
		e.Nodes.All = len(n.Names) == 0 && n.Count == 0 && n.Percent == 0
		if err := e.Nodes.Check(); err != nil {
			badField("nodes", simulated.Within("nodes", err), bad)
		}
	}
	if f.Runtime != nil {
		r := f.Runtime
		e.Fault.Runtime = simulated.Fault{
			Method: r.Method, Delay: r.Delay.Duration, Error: r.Error, Hang: r.Hang, LoseEvents: r.LoseEvents, LoseAnswer: r.LoseAnswer, Code: r.Code, Chance: r.Chance,
		}
	}
	if f.Delay != nil {
		e.Fault.Delay = f.Delay.Duration
	}
	if f.Pressure != nil {
		e.Fault.Pressure = *f.Pressure
	}
	if f.Devices != nil {
		e.Fault.Devices = *f.Devices
	}
	if f.Exit != nil {
		e.Fault.Exit = *f.Exit
	}
	if f.Clock != nil {
		e.Fault.Clock = Skew{Offset: f.Clock.Offset.Duration, Drift: f.Clock.Drift.Duration}
	}
	f.check(&e, bad)
	return e
}

// badField calls bad for the field that an error names, or for otherwise if it names none.
func badField(otherwise string, err error, bad func(field, text string)) {
	if f, ok := errors.AsType[*simulated.FieldError](err); ok {
		otherwise, err = f.Field, f.Err
	}
	bad(otherwise, err.Error())
}

// check calls bad for each field of the event that is not valid.
func (f *eventFile) check(e *Event, bad func(field, text string)) {
	for _, part := range []struct {
		field string
		kind  FaultKind
		set   bool
	}{
		{"runtime", FaultRuntime, f.Runtime != nil}, {"delay", FaultSlowAPI, f.Delay != nil}, {"pressure", FaultPressure, f.Pressure != nil},
		{"devices", FaultDevices, f.Devices != nil}, {"exit", FaultExit, f.Exit != nil},
		{"clock", FaultClock, f.Clock != nil},
	} {
		if part.set && f.Fault != part.kind {
			bad(part.field, fmt.Sprintf("only the fault %s has this field", part.kind))
		}
	}
	if err := e.Fault.check(); err != nil {
		badField("fault", err, bad)
	}
	for _, d := range []struct {
		field string
		d     time.Duration
	}{{"after", e.After}, {"every", e.Every}, {"jitter", e.Jitter}, {"for", e.Fault.For}} {
		if d.d < 0 || d.d > 365*24*time.Hour {
			bad(d.field, "use a time of at most a year, such as 30s")
		}
	}
	switch {
	case f.Times < 0 || f.Times > maxTimes:
		bad("times", fmt.Sprintf("use 1 to %d", maxTimes))
	case f.Times > 1 && e.Every == 0:
		bad("times", "a fault that happens several times needs every")
	case f.Times < 2 && e.Every > 0:
		bad("every", "set times to say how often the fault happens")
	}
	if f.When.NodesReady < 0 || f.When.PodsRunning < 0 {
		bad("when", "use numbers from 0 on")
	}
}
