package main

import (
	"bytes"
	"testing"
)

// A program of another module compiles with the public packages, and its node runs a pod.
func TestAnotherModuleRunsANode(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	if err := run(t.Context(), &out); err != nil {
		t.Fatal(err)
	}
	if got, want := out.String(), "web-n1 Running\n"; got != want {
		t.Errorf("printed %q, want %q", got, want)
	}
}
