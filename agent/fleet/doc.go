// Package fleet runs many simulated nodes in one process. Each is a whole agent (package agent) over a container runtime in memory
// (package simulated), joined to a cluster. `wherry fleet` uses nothing else.
//
//	f, err := fleet.New(fleet.Config{Name: "dev", Client: restConfig, Groups: []fleet.Group{{Count: 100}}, Log: log})
//	err = f.Run(ctx) // joins the nodes; removes them when ctx ends
//
// The nodes share what can be shared without a change in what they do: one transport, one wheel that renews all leases, and, without
// Config.OwnWatches, one watch of all pods, one of all Nodes, and one of each object that their pods refer to. Nodes join at the pace that the API server bears: a new one begins when joins do not get slower
// and the leases of the others are renewed in time.
//
// Every Node has the label wherry.dev/fleet with the name of its fleet. Clean finds by it what a killed process left. A fleet never takes over
// a Node without this label.
//
// Contract: New does no IO and starts nothing. Run blocks, and joins all that it started. The other methods may be called concurrently,
// also before and after Run.
package fleet
