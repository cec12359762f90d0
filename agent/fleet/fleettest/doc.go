// Package fleettest gives tests of schedulers, operators and controllers a cluster of simulated nodes, in one call:
//
//	c := fleettest.Start(t, 100)
//	client := kubernetes.NewForConfigOrDie(c.Client)
//
// The nodes are whole agents (package agent). Their API server is one in memory, with the parts that nodes and their tests use: pods, nodes,
// leases, events, config maps, secrets, services. It has no scheduler and no controllers, so a test sets spec.nodeName. It works in virtual
// time (testing/synctest). With a Config.Client the nodes join that cluster instead.
//
// Contract: Start returns when all nodes are Ready, and fails the test if they are not. All that it started ends with the test.
package fleettest
