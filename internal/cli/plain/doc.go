// Package plain makes texts that others have written safe for the terminal of the person who runs a command.
//
// Contract: whatever a container, a tenant, the cluster or the agent has written, the result cannot move the cursor, and cannot look like a
// separate line of the output. Ordinary characters of every language stay as they are.
package plain
