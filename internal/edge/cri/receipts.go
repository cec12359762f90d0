package cri

import (
	"context"
	"fmt"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// receiving is how many outputs of commands are received at once. Each may have maxMessage, and takes as much memory while it is
// received (three times as much for /run, which returns the whole output). Without this bound containers could make the agent take
// gigabytes.
const receiving = 2

// receipts bounds the memory that outputs of commands take. It does not bound how many commands run, which may be long, nor
// how much each may say: with a smaller bound of the message the exit code would be lost, and with places that are held while
// a command runs one that hangs would hold up the others. So the answer's header is waited for without a place; until
// one is free the answer itself waits in the runtime, but for the 64 KiB of its stream's window.
type receipts struct{ places chan struct{} }

func newReceipts() receipts { return receipts{make(chan struct{}, receiving)} }

// intercept is a grpc.UnaryClientInterceptor.
func (r receipts) intercept(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	if method != runtimeapi.RuntimeService_ExecSync_FullMethodName {
		return invoke(ctx, method, req, reply, conn, opts...)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{StreamName: "ExecSync"}, method, opts...)
	if err != nil {
		return err
	}
	if err := stream.SendMsg(req); err != nil {
		return stream.RecvMsg(reply) // has the status that SendMsg has not
	}
	// The command has ended when the header comes. An error has none: RecvMsg tells it.
	if header, _ := stream.Header(); header != nil {
		select {
		case r.places <- struct{}{}:
			defer func() { <-r.places }()
		case <-ctx.Done():
			return fmt.Errorf("receive the output of a command: %w", context.Cause(ctx))
		}
	}
	return stream.RecvMsg(reply)
}
