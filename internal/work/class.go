package work

import "fmt"

// Class is a kind of the node's own work.
type Class uint8

// The classes. Start and People go at once, whatever else waits; the others wait for their turn under load. A question to the
// runtime of what a pod has is of none: it costs a millisecond, and all else waits for it.
const (
	// Start is what starts and stops pods.
	Start Class = iota
	// People is what somebody waits for at a terminal: exec, attach, logs.
	People
	// Vital are the liveness probes of critical pods.
	Vital
	// First are probes that a pod waits for to be started or ready.
	First
	// Periodic are the probes of what is up already, or has failed for long.
	Periodic
	// Removal is of what has ended.
	Removal
	// Statistics are read from the runtime.
	Statistics
	// Rotation is of container logs.
	Rotation
	Classes
)

// String is the class's name in metrics and settings.
func (c Class) String() string {
	switch c {
	case Start:
		return "start"
	case People:
		return "people"
	case Vital:
		return "vital"
	case First:
		return "first"
	case Periodic:
		return "periodic"
	case Removal:
		return "removal"
	case Statistics:
		return "statistics"
	case Rotation:
		return "rotation"
	case Classes:
	}
	return "invalid"
}

// Shares say how much each class that waits gets, beside the others that wait too. A class whose share is 0 gets what the
// others leave over: it may starve.
type Shares [Classes]float64

// DefaultShares prefers what a pod waits for to be Ready, and lets nothing starve.
func DefaultShares() Shares {
	return Shares{Vital: 8, First: 8, Periodic: 2, Removal: 2, Statistics: 1, Rotation: 1}
}

// ParseShares reads shares by the names of classes; those that are not named have the default.
func ParseShares(by map[string]float64) (Shares, error) {
	s := DefaultShares()
	known := map[string]Class{}
	for c := range Classes {
		known[c.String()] = c
	}
	for name, share := range by {
		c, ok := known[name]
		if !ok || share < 0 || share > 1e6 {
			return s, fmt.Errorf("%q: %v: no such class, or no such share", name, share)
		}
		s[c] = share
	}
	return s, nil
}
