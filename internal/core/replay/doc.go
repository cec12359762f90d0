// Package replay writes down what a turn of a pod decided, and from what, so that the same decision can be made again elsewhere: for a bug
// report, for a test, for another version of the agent.
//
// Contract: Of copies the input of a turn; later changes of the input do not change the copy. The copy has nothing that is secret and nothing
// that the decision does not need: values of environment variables, commands and their arguments, headers, annotations, details of volumes,
// and the messages of containers are left out. A Turn decided again by the version that wrote it gives the same lines; a test compares them for
// every script of package decide. Parse bounds what it reads and trusts nothing of it.
package replay
