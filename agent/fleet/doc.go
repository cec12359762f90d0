// Package fleet runs many simulated nodes in one process. Each is a whole agent (package agent) over a container runtime in memory
// (package simulated), joined to a cluster. `wherry fleet` uses nothing else.
//
//	f, err := fleet.New(fleet.Config{Name: "dev", Client: restConfig, Groups: []fleet.Group{{Count: 100}}, Log: log})
//	err = f.Run(ctx) // joins the nodes; removes them when ctx ends
//
// The nodes share what they can share without a change in behaviour: one transport (not with the Identity Certificate: then each node has its
// own), one timer that renews all leases, and, without Config.OwnWatches, one watch of all pods, one of all Nodes, and one of each object
// that their pods refer to. Nodes join as fast as the API server allows: the fleet lets the next node join while joins do not get slower and
// the leases of the other nodes are renewed in time.
//
// With Config.Shard several processes share the nodes of one fleet. The nodes are divided into slices, each with a Lease; a process runs the nodes
// of a slice only while it holds the Lease (claims), and crew decides who should hold which. No node runs in two processes: the nodes of a slice end,
// and their requests are refused, well before another process may take its Lease.
//
// Every Node has the label wherry.dev/fleet with the name of its fleet. Clean uses the label to find what a killed process left. A fleet
// never takes over a Node without this label.
//
// Contract: New does no IO and starts nothing. Run blocks until everything that it started has ended. The other methods may be called
// concurrently, also before and after Run.
package fleet
