// Package shutdown decides, when the machine is about to go down, which pods end together, in which order, and within which time.
//
// Contract: it is pure. A Policy is a list of periods by pod priority; Groups divides pods among the periods, lowest priority
// first. The sum of the periods (Policy.Whole) is how long the machine's shutdown has to be delayed.
//
// Source: https://kubernetes.io/docs/concepts/cluster-administration/node-shutdown/
package shutdown
