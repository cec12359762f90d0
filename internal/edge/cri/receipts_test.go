package cri

import (
	"bytes"
	"context"
	"errors"
	"net"
	"path/filepath"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// shouter is a runtime whose commands write large outputs, fail, or hang.
type shouter struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	ended chan string
}

func (s *shouter) Version(context.Context, *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{RuntimeName: "shouter"}, nil
}

func (s *shouter) ExecSync(ctx context.Context, r *runtimeapi.ExecSyncRequest) (*runtimeapi.ExecSyncResponse, error) {
	switch r.GetCmd()[0] {
	case "hang":
		<-ctx.Done()
		return nil, ctx.Err()
	case "fail":
		return nil, status.Error(codes.NotFound, "no such container")
	}
	s.ended <- r.GetCmd()[0]
	return &runtimeapi.ExecSyncResponse{Stderr: bytes.Repeat([]byte("x"), 15<<20), ExitCode: 7}, nil
}

// The agent receives the outputs of at most two commands at a time; a third output waits for a slot. Commands that hang take no slot, and
// calls other than ExecSync do not wait for one.
func TestOutputsOfCommandsAreReceivedOneAfterAnother(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "s")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	rt := &shouter{ended: make(chan string, 10)}
	server := grpc.NewServer()
	runtimeapi.RegisterRuntimeServiceServer(server, rt)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	held := newReceipts()
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithUnaryInterceptor(held.intercept), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	c := New(Config{Runtime: runtimeapi.NewRuntimeServiceClient(conn)})
	ctx, cancel := context.WithCancel(t.Context())
	hung := make(chan error, 10)
	for range cap(hung) {
		go func() { _, _, _, err := c.ExecSync(ctx, "c", []string{"hang"}, 0); hung <- err }()
	}
	if _, stderr, code, err := c.ExecSync(ctx, "c", []string{"shout"}, 0); err != nil || code != 7 || len(stderr) != execOutput {
		t.Errorf("%d bytes, code %d, %v; want the first %d and the code", len(stderr), code, err, execOutput)
	}
	<-rt.ended
	for range receiving { // fill both slots
		held.slots <- struct{}{}
	}
	done := make(chan error, 1)
	go func() { _, _, _, err := c.ExecSync(ctx, "c", []string{"shout"}, 0); done <- err }()
	<-rt.ended
	if _, err := c.Version(ctx); err != nil {
		t.Errorf("another call waits: %v", err)
	}
	if _, _, _, err := c.ExecSync(ctx, "c", []string{"fail"}, 0); status.Code(errors.Unwrap(err)) != codes.NotFound {
		t.Errorf("an error waited for a slot, or lost its code: %v", err)
	}
	select {
	case err := <-done:
		t.Errorf("the output was received without a slot: %v", err)
	default:
	}
	<-held.slots
	if err := <-done; err != nil {
		t.Error(err)
	}
	cancel()
	for range cap(hung) {
		if err := <-hung; status.Code(errors.Unwrap(err)) != codes.Canceled {
			t.Errorf("canceling a command that hangs: %v", err)
		}
	}
}
