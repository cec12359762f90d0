// Package rounds runs a function again and again, without a goroutine between its calls. A process may have thousands of agents, and
// each agent has about ten parts that do something every few seconds, or when something has changed.
//
// Contract: calls of the function never overlap. After Wake a call begins that sees everything that happened before Wake. After the
// context has ended, no call begins; join waits for the one that runs.
package rounds
