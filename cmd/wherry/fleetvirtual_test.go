package main

import (
	"runtime"
	"testing"
)

// The exit status of wherry fleet --virtual is 3 if an expectation does not hold, and 1 if an option cannot be used with it. The test is not parallel,
// because the command changes the number of processors.
func TestFleetVirtualStatus(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	for _, c := range []struct {
		want int
		args []string
	}{
		{0, []string{"--pods", "2", "--expect", "pods=running"}},
		{3, []string{"--expect", "pods=running"}},
		{3, []string{"--pods", "2", "--expect", "pods=finished", "--within", "30s"}},
		{1, []string{"--socket", "x"}},
		{1, []string{"--expect", "pods=happy"}},
	} {
		if got := run(append([]string{"wherry", "fleet", "--virtual", "1m", "--nodes", "1"}, c.args...)); got != c.want {
			t.Errorf("%v: exit status %d, want %d", c.args, got, c.want)
		}
	}
}
