package cri_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/wherry-node/wherry/internal/edge/cri"
)

// cuts is a runtime that ends the stream of a call after some time.
type cuts struct {
	runtimeapi.RuntimeServiceClient
	after time.Duration
	code  codes.Code // as which gRPC tells it: if the deadline is over, as DeadlineExceeded
}

func (c cuts) CreateContainer(ctx context.Context, _ *runtimeapi.CreateContainerRequest, _ ...grpc.CallOption) (*runtimeapi.CreateContainerResponse, error) {
	time.Sleep(c.after)
	return nil, status.Error(c.code, "stream terminated by RST_STREAM with error code: CANCEL")
}

// If the runtime ends a call at the call's deadline, the error says that the deadline is over. Before the deadline, and if the agent itself ends
// the call, the error is the runtime's.
func TestACallThatTheRuntimeCutsOffAtItsDeadline(t *testing.T) {
	t.Parallel()
	const over = "context deadline exceeded"
	for _, c := range []struct {
		after time.Duration
		code  codes.Code
		ends  bool
		want  string
	}{
		{time.Minute, codes.DeadlineExceeded, false, over},
		{time.Minute, codes.Canceled, false, over},
		{30 * time.Second, codes.Canceled, false, "stream terminated by RST_STREAM with error code: CANCEL"},
		{time.Minute, codes.Canceled, true, "stream terminated by RST_STREAM with error code: CANCEL"},
	} {
		synctest.Test(t, func(t *testing.T) {
			var told error
			runtime, _ := cri.Metered(cuts{after: c.after, code: c.code}, nil, func(_ string, _ time.Duration, err error) { told = err }, nil)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if c.ends {
				time.AfterFunc(time.Second, cancel)
			}
			_, err := runtime.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{})
			if status.Convert(err).Message() != c.want || !errors.Is(told, err) {
				t.Errorf("after %s: %v (told %v), want %s", c.after, err, told, c.want)
			}
		})
	}
}
