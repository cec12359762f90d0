// Package pulse asks a loop whether it turns: for a watchdog, since a loop that stands still is mended by a restart only.
//
// Contract: the loop receives from Asked among its other work and calls Beat. Turns may be called by several goroutines at once.
package pulse
