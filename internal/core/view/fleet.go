package view

import "time"

// Fleet is the summary of a fleet: many agents in one process.
type Fleet struct {
	Name    string    `json:"name"`
	Began   time.Time `json:"began,omitzero"`
	Want    int       `json:"want"`
	Ready   int       `json:"ready"`
	Pods    FleetPods `json:"pods"`
	Overdue float64   `json:"overdue"` // how many seconds the most overdue lease renewal is late
	Faults  []Fault   `json:"faults"`
}

// FleetPods counts the pods of a fleet.
type FleetPods struct {
	Pending         int     `json:"pending"`
	Running         int     `json:"running"`
	Succeeded       int     `json:"succeeded"`
	Failed          int     `json:"failed"`
	Ready           int     `json:"ready"`
	StartsPerSecond float64 `json:"startsPerSecond"`
}

// Fault is an injected fault that is active now.
type Fault struct {
	Kind  string    `json:"kind"`
	Text  string    `json:"text,omitempty"`
	Since time.Time `json:"since"`
	Until time.Time `json:"until,omitzero"` // zero: until a user ends the fault
	Nodes int       `json:"nodes"`
}

// Cell is one node in the console's heat map of a fleet.
type Cell struct {
	Name   string   `json:"name"`
	Group  string   `json:"group"`
	State  string   `json:"state"` // joining, ready, notReady, crashed, partitioned, failed or leaving
	Reason string   `json:"reason,omitempty"`
	Pods   int      `json:"pods"`
	Ready  int      `json:"ready"` // pods that are ready
	Faults []string `json:"faults,omitempty"`
}
