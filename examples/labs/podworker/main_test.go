package main

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"testing"
)

// The worker starts nothing until a request sets the pod's entry in the pod cache.
func TestLab(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	read, write := io.Pipe()
	out := &tee{w: write}
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, out, l) }()
	set := func(id string) {
		t.Helper()
		resp, err := http.Get("http://" + l.Addr().String() + "/setcache?id=" + id)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
	}
	set("another")
	if out.begun() {
		t.Error("something was started before the pod's own entry was there")
	}
	set("59367ef6-1bb2-4057-ba10-e71328a2c94e")
	in := bufio.NewReader(read)
	for _, want := range []string{"a makeshift syncPod function\n", "the pod to be handled is nginx-kubelet\n"} {
		if got, err := in.ReadString('\n'); got != want {
			t.Errorf("printed %q, want %q: %v", got, want, err)
		}
	}
	go func() { _, _ = io.Copy(io.Discard, in) }()
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
