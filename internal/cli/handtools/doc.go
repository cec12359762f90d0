// Package handtools performs by hand the steps that nodes and clusters normally perform by themselves: bootstrap tokens, and
// the renewal of another node's lease. (For a certificate by hand see identity.ByHand, beside the code that a node uses.)
//
// Contract: every function takes a client and a context, blocks, and starts nothing that outlives it. Text for the user goes to
// an io.Writer. Errors say what to do.
package handtools
