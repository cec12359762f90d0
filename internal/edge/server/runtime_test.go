package server_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/wherry-node/wherry/internal/edge/server"
)

// criClient answers the streaming calls with a URL that repeats the request.
type criClient struct {
	runtimeapi.RuntimeServiceClient
}

func (criClient) Exec(ctx context.Context, r *runtimeapi.ExecRequest, _ ...grpc.CallOption) (*runtimeapi.ExecResponse, error) {
	if r.ContainerId == "gone" {
		return nil, status.Error(codes.NotFound, "no container gone")
	}
	if r.ContainerId == "hung" {
		<-ctx.Done()
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	return &runtimeapi.ExecResponse{Url: fmt.Sprintf("http://127.0.0.1:1/exec/%s/%s/%v%v%v%v", r.ContainerId, strings.Join(r.Cmd, "+"), r.Stdin, r.Stdout, r.Stderr, r.Tty)}, nil
}

func (criClient) Attach(context.Context, *runtimeapi.AttachRequest, ...grpc.CallOption) (*runtimeapi.AttachResponse, error) {
	return &runtimeapi.AttachResponse{Url: "/relative"}, nil
}

func (criClient) PortForward(_ context.Context, r *runtimeapi.PortForwardRequest, _ ...grpc.CallOption) (*runtimeapi.PortForwardResponse, error) {
	return &runtimeapi.PortForwardResponse{Url: fmt.Sprintf("http://127.0.0.1:1/pf/%s/%v", r.PodSandboxId, r.Port)}, nil
}

func (criClient) ExecSync(_ context.Context, r *runtimeapi.ExecSyncRequest, _ ...grpc.CallOption) (*runtimeapi.ExecSyncResponse, error) {
	return &runtimeapi.ExecSyncResponse{Stdout: []byte("out "), Stderr: []byte("err"), ExitCode: int32(len(r.Cmd) - 1)}, nil
}

// A call to a runtime that never answers ends after the timeout, so it does not hold up the user.
func TestARuntimeThatHangsIsGivenUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		_, err := server.CRI{Client: criClient{}, Timeout: 2 * time.Minute}.Exec(t.Context(), "hung", nil, server.Streams{})
		if status.Code(err) != codes.DeadlineExceeded || time.Since(began) != 2*time.Minute {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
	})
}

func TestCRI(t *testing.T) {
	t.Parallel()
	c, ctx := server.CRI{Client: criClient{}}, t.Context()
	u, err := c.Exec(ctx, "c1", []string{"a", "b"}, server.Streams{Stdin: true, TTY: true})
	must(t, err)
	if u.Path != "/exec/c1/a+b/truefalsefalsetrue" {
		t.Errorf("exec %s", u)
	}
	if _, err := c.Exec(ctx, "gone", nil, server.Streams{}); status.Code(err) != codes.NotFound {
		t.Errorf("the runtime's code is lost: %v", err)
	}
	if _, err := c.Attach(ctx, "c1", server.Streams{}); err == nil || !strings.Contains(err.Error(), "has no host") {
		t.Errorf("attach: %v", err)
	}
	u, err = c.PortForward(ctx, "s1", []int32{80})
	must(t, err)
	if u.Path != "/pf/s1/[80]" {
		t.Errorf("port-forward %s", u)
	}
	if out, err := c.ExecSync(ctx, "c1", []string{"ls"}); err != nil || string(out) != "out err" {
		t.Errorf("run: %q %v", out, err)
	}
	if _, err := c.ExecSync(ctx, "c1", []string{"a", "b"}); err == nil || err.Error() != "command '[a b]' exited with 1: out err" {
		t.Errorf("run: %v", err)
	}
}
