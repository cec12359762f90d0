package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"regexp"
	"testing"
)

// An HTTP request to the lab stops the pod's sandbox. The PLEG finds this, and the lab prints ContainerDied.
func TestLab(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	out, in := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, in, l) }()
	resp, err := http.Get("http://" + l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(resp.Body)
	resp.Body.Close()
	if string(body) != "the pod's state has changed\n" {
		t.Errorf("answer %q", body)
	}
	line := make([]byte, 200)
	n, err := out.Read(line)
	if err != nil || !regexp.MustCompile(`^&\{ef14133d-c5af-482d-a514-e6fc98093553 ContainerDied [0-9a-f]+\}\n$`).Match(line[:n]) {
		t.Errorf("printed %q, %v", line[:n], err)
	}
	go func() { _, _ = io.Copy(io.Discard, out) }()
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
