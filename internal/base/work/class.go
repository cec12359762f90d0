package work

import "fmt"

// Class is a kind of the node's own work.
type Class uint8

// These are the classes. Jobs of the classes Start and People begin at once; under load, jobs of other classes wait. Inspections of pods
// have no class, because they take only about a millisecond and everything else depends on them.
const (
	// Start has the jobs that start and stop pods.
	Start Class = iota
	// People has the jobs for which a user waits at a terminal: exec, attach, logs.
	People
	// Vital has the liveness probes of critical pods.
	Vital
	// First has the probes that a container must pass before it is started or ready.
	First
	// Periodic has the probes of containers that are ready already, or whose probes have failed for a long time.
	Periodic
	// Removal has the removals of containers and sandboxes that have ended.
	Removal
	// Statistics has the reads of statistics from the runtime.
	Statistics
	// Rotation has the rotations of container logs.
	Rotation
	Classes
)

// String returns the class's name in metrics and settings.
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

// Shares are the weights by which the waiting classes share the machine. A class with share 0 runs only when no class with a
// share waits, so it may starve.
type Shares [Classes]float64

// DefaultShares prefers the probes that make pods ready, and lets no class starve.
func DefaultShares() Shares {
	return Shares{Vital: 8, First: 8, Periodic: 2, Removal: 2, Statistics: 1, Rotation: 1}
}

// ParseShares reads shares by the names of classes. A class that is not named gets its default share.
func ParseShares(by map[string]float64) (Shares, error) {
	s := DefaultShares()
	known := map[string]Class{}
	for c := range Classes {
		known[c.String()] = c
	}
	for name, share := range by {
		c, ok := known[name]
		if !ok || share < 0 || share > 1e6 {
			return s, fmt.Errorf("%q: %v: the class is unknown, or the share is not between 0 and 1e6", name, share)
		}
		s[c] = share
	}
	return s, nil
}
