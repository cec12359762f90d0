package view

import "time"

// Work is what the node's own work waits for: the gate for pods that start, and the scheduler for everything else.
type Work struct {
	// Slots is how many pods may start at once, Starting how many do.
	Slots    int `json:"slots"`
	Starting int `json:"starting"`
	// Limit is how many jobs of the node may run at once, Busy how many do.
	Limit int `json:"limit"`
	Busy  int `json:"busy"`
	// Held are the pods and jobs that wait, the one that is next first. More is how many further ones are not listed.
	Held []Held `json:"held"`
	More int    `json:"more,omitempty"`
}

// Held is a pod or a job that waits for its turn.
type Held struct {
	Class string    `json:"class"` // start, restart, or a class of package work
	Pod   string    `json:"pod,omitempty"`
	Since time.Time `json:"since,omitzero"`
}

// MaxHeld bounds the list of what waits.
const MaxHeld = 100

// Event is an event that the node recorded.
type Event struct {
	At      time.Time `json:"at"`
	Type    string    `json:"type"`
	Reason  string    `json:"reason"`
	Object  string    `json:"object"`
	Message string    `json:"message"`
	Count   int       `json:"count"`
}

// EventOf returns an event with bounded texts.
func EventOf(at time.Time, typ, reason, object, message string, count int) Event {
	return Event{At: at, Type: text(typ), Reason: text(reason), Object: text(object), Message: text(message), Count: count}
}

// Use is what the containers of the node use.
type Use struct {
	At time.Time `json:"at"`
	// Pods has the containers of each pod, by the UID of the pod.
	Pods map[string][]UnitUse `json:"pods"`
}

// UnitUse is what one container uses.
type UnitUse struct {
	Name   string `json:"name"`
	CPU    int64  `json:"cpu"`    // thousandths of a core
	Memory int64  `json:"memory"` // bytes of the working set
}
