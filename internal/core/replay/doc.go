// Package replay records the decision of one turn of a pod together with its input, so that the decision can be repeated elsewhere:
// for a bug report, for a test, or with another version of the agent.
//
// Contract: Of copies the input of a turn; later changes of the input do not change the copy. The copy has no secrets and nothing
// that the decision does not need: values of environment variables, commands and their arguments, headers, annotations, details of
// volumes, and the messages of containers are left out. If the version that wrote a Turn decides it again, the result has the same
// lines; a test checks this for every script of package decide. Parse limits the size of its input and validates all of it.
package replay
