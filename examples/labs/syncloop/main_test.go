package main

import (
	"bufio"
	"context"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// The node decides about the pod because of a source, an outcome, the runtime and a probe. The first cause that the lab prints is the
// source.
func TestLab(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	read, write := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := run(ctx, write, l)
		write.CloseWithError(io.EOF)
		ended <- err
	}()
	missing := map[string]bool{"source": true, "outcome": true, "runtime": true, "probe": true}
	first := true
	for in := bufio.NewScanner(read); in.Scan(); {
		cause, _, _ := strings.Cut(in.Text(), ": ")
		if cause = strings.TrimSuffix(strings.TrimSpace(cause), ":"); first && cause != "source" {
			t.Errorf("the first cause is %q, want source", cause)
		}
		first = false
		cause, _, _ = strings.Cut(cause, " of ") // the order of outcomes varies, because set-up and pull-image run at the same time
		delete(missing, cause)
		if len(missing) == 0 {
			cancel()
		}
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if len(missing) > 0 {
		t.Errorf("never seen: %v", missing)
	}
}
