package cri

import (
	"context"
	"fmt"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// receiving is how many outputs of commands are received at the same time. Each may have maxMessage bytes and takes that much
// memory while it is received (three times as much for /run, which returns the whole output). Without this bound, containers
// could make the agent use gigabytes.
const receiving = 2

// receipts bounds the memory that outputs of commands take. It bounds neither the number of running commands nor the size of an output: a
// smaller message limit would lose the exit code, and a command that hangs would block the others if it had a slot while it runs. So a
// call waits for the header of the answer without a slot, and then for a slot. Meanwhile the answer stays in the runtime, except for the
// 64 KiB of the stream's window.
type receipts struct{ slots chan struct{} }

func newReceipts() receipts { return receipts{make(chan struct{}, receiving)} }

// intercept returns the grpc.UnaryClientInterceptor that takes a slot while it receives an output.
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
		return stream.RecvMsg(reply) // returns the status, which SendMsg does not return
	}
	// When the header arrives, the command has ended. Without a header the call failed, and RecvMsg returns the error.
	if header, _ := stream.Header(); header != nil {
		select {
		case r.slots <- struct{}{}:
			defer func() { <-r.slots }()
		case <-ctx.Done():
			return fmt.Errorf("receive the output of a command: %w", context.Cause(ctx))
		}
	}
	return stream.RecvMsg(reply)
}
