// Package nodeclock converts between instants and what the clock of a node shows, which may be wrong.
//
// Contract: all times inside the agent are instants of the process. A package converts a time where it leaves the agent (an object, a log line,
// an answer) with Clock.Shows, and a time that came from outside, where it is compared with an instant, with Clock.Instant. Package agent makes
// the Clock from its Deps; every other package has one in its configuration, and needs no default for it.
package nodeclock
