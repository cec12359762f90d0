package replay

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/internal/core/decide"
	"github.com/wherry-node/wherry/internal/core/pod"
)

// Schema is the version of the file format. It changes when a file of an earlier version no longer gives Decide the same values
// that the exported turn had.
const Schema = 1

// Kind is the value of the field "kind" in the file of a turn.
const Kind = "WherryTurn"

// MaxBytes is the largest size of a file that Parse accepts.
const MaxBytes = 8 << 20

// Turn is the content of a file that records one decision about a pod: the input of the decision, and the resulting plan.
type Turn struct {
	Kind   string `json:"kind"`
	Schema int    `json:"schema"`
	// Agent is the version of the agent that decided. Whoever writes the file sets it.
	Agent     string `json:"agent,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
	UID       string `json:"uid"`
	// Wrong says what went wrong, if the agent recorded the turn for that reason. It is empty if a user exported the turn.
	Wrong string `json:"wrong,omitempty"`
	Input input  `json:"input"`
	// Plan is what the turn decided, as Lines writes it.
	Plan []string `json:"plan"`
}

// input is a decide.Input in a form that can be written to a file.
type input struct {
	Pod       *v1.Pod             `json:"pod,omitempty"`
	LastGrace *int64              `json:"lastGrace,omitempty"`
	Observed  *pod.Observed       `json:"observed"`
	Memory    memory              `json:"memory"`
	Probed    decide.ProbeResults `json:"probed,omitempty"`
	InFlight  []pod.Action        `json:"inFlight,omitempty"`
	Stale     bool                `json:"stale,omitempty"`
	Hashes    map[string]string   `json:"hashes,omitempty"`
	Sizes     []pod.NamedSize     `json:"sizes,omitempty"`
	Node      decide.Node         `json:"node"`
	Policy    decide.Policy       `json:"policy"`
	Now       time.Time           `json:"now"`
}

// memory is a decide.Memory with the parts that a checkpoint leaves out.
type memory struct {
	decide.Memory
	Tries          decide.PodTries         `json:"tries"`
	ContainerTries []decide.ContainerTries `json:"containerTries,omitempty"` // in the order of Memory.Containers
}

// Of returns a Turn with a copy of the input of a decision, without secrets. Call Decided to add the plan.
func Of(ref pod.Ref, in *decide.Input) *Turn {
	t := &Turn{Kind: Kind, Schema: Schema, Namespace: ref.Namespace, Name: ref.Name, UID: string(ref.UID)}
	t.Input = input{
		Pod: bare(in.Pod), LastGrace: in.LastGrace, Observed: silent(in.Observed), Memory: memoryOf(in.Memory),
		Probed: append(decide.ProbeResults(nil), in.Probed...), InFlight: append([]pod.Action(nil), in.InFlight...), Stale: in.Stale,
		Hashes: copied(in.Hashes), Sizes: append([]pod.NamedSize(nil), in.Sizes...), Node: in.Node, Policy: *in.Policy, Now: in.Now,
	}
	t.Input.Node.Excess = append([]string(nil), in.Node.Excess...)
	return t
}

func copied(m map[string]string) map[string]string {
	if m == nil {
		return nil
	}
	out := make(map[string]string, len(m))
	for k, v := range m {
		out[k] = v
	}
	return out
}

// memoryOf returns a copy of a pod's memory without the messages of failures, which may contain secrets.
func memoryOf(m *decide.Memory) memory {
	out := memory{Memory: m.Clone()}
	if out.Stop != nil {
		out.Stop.Message, out.Stop.Disruption = "", ""
	}
	out.Resize.PendingMessage, out.Resize.Error = "", mark(out.Resize.Error)
	out.Tries = out.PodTries
	for i := range out.Tries.Retry {
		out.Tries.Retry[i].Message = ""
	}
	for i := range out.Containers {
		tries := out.Containers[i].ContainerTries
		tries.WaitingMessage = ""
		out.ContainerTries = append(out.ContainerTries, tries)
	}
	return out
}

// mark returns leftOut for any text that is not empty, and "" for the empty text, because some decisions depend on whether a text is empty.
func mark(text string) string {
	if text == "" {
		return ""
	}
	return leftOut
}

// restored returns the complete memory, including the parts that a checkpoint leaves out.
func (m *memory) restored() decide.Memory {
	out := m.Memory
	out.PodTries = m.Tries
	for i := range out.Containers {
		if i < len(m.ContainerTries) {
			out.Containers[i].ContainerTries = m.ContainerTries[i]
		}
	}
	return out
}

// Decided adds the plan that the turn decided.
func (t *Turn) Decided(p *decide.Plan) { t.Plan = Lines(p, t.Input.Now) }

// Restore returns the input of the turn for decide.Decide. It shares values with the turn.
func (t *Turn) Restore() *decide.Input {
	in, mem := &t.Input, t.Input.Memory.restored()
	policy := in.Policy
	return &decide.Input{
		Pod: in.Pod, LastGrace: in.LastGrace, Observed: in.Observed, Memory: &mem, Probed: in.Probed, InFlight: in.InFlight, Stale: in.Stale,
		Hashes: in.Hashes, Sizes: in.Sizes, Node: in.Node, Policy: &policy, Now: in.Now,
	}
}

// Again decides the turn again with this version of the agent, and returns the plan as Lines writes it.
func (t *Turn) Again() []string {
	plan := decide.Decide(t.Restore())
	return Lines(&plan, t.Input.Now)
}

// Steps decides the turn again with this version of the agent, and returns what each rule saw and decided.
func (t *Turn) Steps() []decide.Step {
	_, steps := decide.Steps(t.Restore())
	return steps
}

// Encode returns the content of a file that holds the turn, as indented JSON. Parse reads it.
func (t *Turn) Encode() ([]byte, error) {
	data, err := json.MarshalIndent(t, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode the turn: %w", err)
	}
	return append(data, '\n'), nil
}

// Parse parses and validates the file of an exported turn. name is the name of the file in errors.
func Parse(name string, data []byte) (*Turn, error) {
	if len(data) > MaxBytes {
		return nil, fmt.Errorf("%s: the file has more than %d bytes", name, MaxBytes)
	}
	var head struct {
		Kind   string
		Schema int
		Agent  string
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return nil, fmt.Errorf("%s: this is not a turn that was exported (wherry explain POD --export writes one): %w", name, err)
	}
	switch {
	case head.Kind != Kind:
		return nil, fmt.Errorf("%s: kind %q: a turn that was exported has the kind %s", name, head.Kind, Kind)
	case head.Schema != Schema:
		return nil, fmt.Errorf("%s: the file has schema %d, of an agent of version %q; this program reads schema %d: %s; decide it with a program of that version",
			name, head.Schema, head.Agent, Schema, differs(data))
	}
	t := &Turn{}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(t); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if t.Input.Observed == nil {
		return nil, fmt.Errorf("%s: input.observed: %w", name, errMissing)
	}
	return t, nil
}

var errMissing = errors.New("the field is missing")
