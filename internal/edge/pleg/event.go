package pleg

import (
	"fmt"

	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/core/pod"
)

// EventType is the kind of a life-cycle event, as upstream's kubelet names it.
type EventType string

// The kinds of life-cycle events.
const (
	ContainerStarted EventType = "ContainerStarted"
	ContainerDied    EventType = "ContainerDied"
	ContainerRemoved EventType = "ContainerRemoved"
)

// Event is a change of one container or sandbox that the generator has found by a comparison of two successive inspections. It is
// information for people and tools; decisions use the inspections themselves.
type Event struct {
	ID   types.UID // UID of the pod
	Type EventType
	Data string // the container or sandbox ID
}

// String prints the event on one line: pod, type, ID.
func (e Event) String() string { return fmt.Sprintf("&{%s %s %s}", e.ID, e.Type, e.Data) }

// states returns the state of each sandbox and container by ID: 0 absent, 1 present but not running, 2 running.
func states(o *pod.Observed) map[string]int {
	m := make(map[string]int, len(o.Sandboxes)+len(o.Containers))
	for i := range o.Sandboxes {
		m[o.Sandboxes[i].ID] = 1
		if o.Sandboxes[i].Ready {
			m[o.Sandboxes[i].ID] = 2
		}
	}
	for i := range o.Containers {
		m[o.Containers[i].ID] = 1
		if o.Containers[i].Alive() {
			m[o.Containers[i].ID] = 2
		}
	}
	return m
}

// diff lists the events between two inspections: first starts and ends, in the order of the newer inspection, then removals.
func diff(old, cur *pod.Observed) []Event {
	was, is := states(old), states(cur)
	var out []Event
	add := func(id string, t EventType) { out = append(out, Event{ID: cur.Ref.UID, Type: t, Data: id}) }
	each := func(o *pod.Observed, f func(id string)) {
		for i := range o.Sandboxes {
			f(o.Sandboxes[i].ID)
		}
		for i := range o.Containers {
			f(o.Containers[i].ID)
		}
	}
	each(cur, func(id string) {
		switch {
		case was[id] != 2 && is[id] == 2:
			add(id, ContainerStarted)
		case was[id] == 2 && is[id] == 1:
			add(id, ContainerDied)
		}
	})
	each(old, func(id string) {
		if is[id] != 0 {
			return
		}
		if was[id] == 2 {
			add(id, ContainerDied)
		}
		add(id, ContainerRemoved)
	})
	return out
}
