package view

import "time"

// Work describes two queues of the node: pods that wait because only a limited number may start at the same time, and jobs (pieces of
// the agent's own work) that wait for the scheduler of package work.
type Work struct {
	// Slots is how many pods may start at the same time. Starting is how many are starting now.
	Slots    int `json:"slots"`
	Starting int `json:"starting"`
	// Limit is how many jobs of the node may run at the same time. Busy is how many run now.
	Limit int `json:"limit"`
	Busy  int `json:"busy"`
	// Held lists the waiting pods and jobs, in the order in which they will start. More is the number of waiting ones that are not
	// listed.
	Held []Held `json:"held"`
	More int    `json:"more,omitempty"`
}

// Held is a pod or a job that waits in a queue.
type Held struct {
	Class string    `json:"class"` // start, restart, or a class of package work
	Pod   string    `json:"pod,omitempty"`
	Since time.Time `json:"since,omitzero"`
}

// MaxHeld limits the length of Work.Held.
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

// Use is the measured resource usage of all containers on the node.
type Use struct {
	At time.Time `json:"at"`
	// Pods has the containers of each pod, by the UID of the pod.
	Pods map[string][]UnitUse `json:"pods"`
}

// UnitUse is the measured usage of one container.
type UnitUse struct {
	Name   string `json:"name"`
	CPU    int64  `json:"cpu"`    // thousandths of a core
	Memory int64  `json:"memory"` // bytes of the working set
}
