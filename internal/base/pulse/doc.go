// Package pulse checks for a watchdog whether a loop still works, because only a restart of the agent helps if a loop is stuck.
//
// Contract: the loop receives from Asked, besides its other channels, and calls Beat for each value. Turns may be called by several
// goroutines at once.
package pulse
