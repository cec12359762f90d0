// Package fleets measures programs that simulate many nodes on a control plane: how soon the nodes are Ready and pods run and end, what the
// program and each node cost, and whether the nodes renew their leases in time. The same pods are created for each arm (a program, or the
// Writer, which only writes what must be written and so shows what the API server can take).
package fleets
