// Package plain makes texts of others safe for the terminal of the person who runs a command.
//
// Contract: whatever a container, a tenant, the cluster or the agent has written, the result neither moves the cursor nor looks like a line of
// its own. Ordinary characters of every language stay as they are.
package plain
