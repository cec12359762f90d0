// Package pulse lets a watchdog check whether a loop still works. If a loop is stuck, only a restart of the agent helps.
//
// Contract: the loop receives from Asked, besides its other channels, and calls Beat for each value. The watchdog calls Turns; several
// goroutines may call it at once.
package pulse
