// Package handtools does by hand what nodes and their clusters do by themselves: bootstrap tokens, and the renewal of
// another node's lease. (A certificate by hand is identity.ByHand, beside the code that a node uses for the same.)
//
// Contract: every function takes a client and a context, blocks, and starts nothing that outlives it. What a person
// should read goes to an io.Writer; errors say what to do.
package handtools
