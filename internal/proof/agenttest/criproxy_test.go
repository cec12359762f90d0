package agenttest

import (
	"context"
	"log/slog"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/wherry-node/wherry/internal/edge/criproxy"
	"github.com/wherry-node/wherry/internal/sim/simcri"
)

// runBehindProxy runs f with an agent that has no API server and calls its runtime over gRPC, through a CRI proxy.
func runBehindProxy(t *testing.T, f func(l *lone, p *criproxy.Proxy)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := simcri.New(simcri.Config{})
		defer r.Close()
		behind, before := bufconn.Listen(1<<16), bufconn.Listen(1<<16)
		server := grpc.NewServer()
		runtimeapi.RegisterRuntimeServiceServer(server, r)
		runtimeapi.RegisterImageServiceServer(server, r)
		go func() { _ = server.Serve(behind) }()
		defer server.Stop()
		p, err := criproxy.New(criproxy.Config{Dial: behind.DialContext, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		served := make(chan error, 1)
		go func() { served <- p.Serve(ctx, before) }()
		conn, err := grpc.NewClient("passthrough:///proxy", grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return before.DialContext(ctx) }))
		if err != nil {
			t.Fatal(err)
		}
		runAloneOn(t, r, runtimeapi.NewRuntimeServiceClient(conn), runtimeapi.NewImageServiceClient(conn), func(l *lone) { f(l, p) })
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
		_ = conn.Close()
	})
}

// An agent behind a CRI proxy runs a pod. While the proxy has a fault, the pod waits with a reason, or starts late; afterwards it runs, with
// one container.
func TestAgentBehindACRIProxy(t *testing.T) {
	t.Parallel()
	full := status.Error(codes.Internal, "no space left on device")
	cut := status.Error(codes.Unavailable, "connection lost")
	for name, c := range map[string]struct {
		fault  criproxy.Fault
		lasts  time.Duration // from the push until heal
		reason string        // of the wait during the fault; "": the pod runs in spite of the fault
		text   string
	}{
		"refused":             {criproxy.Fault{Method: "CreateContainer", Effect: criproxy.Refuse, Err: full}, time.Minute, "CreateContainerError", "no space left on device"},
		"start refused":       {criproxy.Fault{Method: "StartContainer", Effect: criproxy.Refuse, Err: full}, time.Minute, "RunContainerError", "no space left on device"},
		"pull refused":        {criproxy.Fault{Method: "PullImage", Effect: criproxy.Refuse, Err: full}, time.Minute, "ErrImagePull", "no space left on device"},
		"hangs":               {criproxy.Fault{Method: "CreateContainer", Effect: criproxy.Hang}, 3 * time.Minute, "CreateContainerError", "deadline"},
		"answers lost":        {criproxy.Fault{Method: "CreateContainer", Effect: criproxy.LoseAnswer, Err: cut}, time.Minute, "", ""},
		"answers never come":  {criproxy.Fault{Method: "RunPodSandbox", Effect: criproxy.LoseAnswer}, 10 * time.Minute, "", ""},
		"events lost":         {criproxy.Fault{Effect: criproxy.LoseEvents}, time.Minute, "", ""},
		"all calls are slow":  {criproxy.Fault{Effect: criproxy.Slow, Delay: 3 * time.Second}, 2 * time.Minute, "", ""},
		"half of calls fails": {criproxy.Fault{Effect: criproxy.Refuse, Err: cut, Chance: 0.5, Seed: 1}, 30 * time.Minute, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			runBehindProxy(t, func(l *lone, p *criproxy.Proxy) {
				time.Sleep(time.Minute)
				if _, err := p.Inject(c.fault); err != nil {
					t.Fatal(err)
				}
				if code := l.ask("POST", "/pods", lonePod, nil); code != 200 {
					t.Fatalf("push: %d", code)
				}
				time.Sleep(c.lasts)
				hits := p.State().Faults[0].Hits
				if hits == 0 {
					t.Error("the fault affected no call")
				}
				during := l.pod("web")
				if c.reason == "" && !isReadyPod(during) {
					t.Errorf("the pod does not run during the fault: %+v", during.Status)
				}
				if c.reason != "" {
					statuses := during.Status.ContainerStatuses
					if len(statuses) != 1 || statuses[0].State.Waiting == nil || !strings.Contains(statuses[0].State.Waiting.Message, c.text) ||
						statuses[0].State.Waiting.Reason != c.reason && statuses[0].State.Waiting.Reason != "ImagePullBackOff" {
						t.Errorf("during the fault: %+v, want %s with %q", statuses, c.reason, c.text)
					}
				}
				if _, err := p.Heal(""); err != nil {
					t.Fatal(err)
				}
				time.Sleep(10 * time.Minute)
				if after := l.pod("web"); after.Status.Phase != v1.PodRunning || !isReadyPod(after) {
					t.Errorf("after the fault: %+v", after.Status)
				}
				running, err := l.runtime.ListContainers(t.Context(), &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{
					State: &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING},
				}})
				if err != nil || len(running.Containers) != 1 {
					t.Errorf("%d containers run: %v", len(running.GetContainers()), err)
				}
			})
		})
	}
}
