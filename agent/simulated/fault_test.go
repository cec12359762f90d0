package simulated_test

import (
	"context"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/wherry-node/wherry/agent/simulated"
)

func TestInject(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := simulated.New(simulated.Config{})
		defer n.Close()
		version := func() (time.Duration, error) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			began := time.Now()
			_, err := n.Deps().Runtime.Version(ctx, &runtimeapi.VersionRequest{})
			return time.Since(began), err
		}
		for _, c := range []struct {
			name   string
			fault  simulated.Fault
			took   time.Duration
			failed bool
		}{
			{"slow", simulated.Fault{Delay: time.Second}, time.Second, false},
			{"fails", simulated.Fault{Method: "Version", Error: "broken", Delay: time.Second}, time.Second, true},
			{"hangs", simulated.Fault{Hang: true}, time.Minute, true},
			{"of another method", simulated.Fault{Method: "PullImage", Hang: true}, 0, false},
			{"loses events", simulated.Fault{LoseEvents: true}, 0, false},
			{"loses events of no method", simulated.Fault{LoseEvents: true, Method: "any"}, 0, false},
			{"loses answers", simulated.Fault{LoseAnswer: true}, time.Minute, true},
			{"loses answers with an error", simulated.Fault{LoseAnswer: true, Error: "cut", Code: "UNAVAILABLE", Delay: time.Second}, time.Second, true},
		} {
			remove, err := n.Inject(c.fault)
			if err != nil {
				t.Fatal(err)
			}
			if took, err := version(); took != c.took || (err != nil) != c.failed {
				t.Errorf("%s: %v after %s", c.name, err, took)
			}
			remove()
			if took, err := version(); took != 0 || err != nil {
				t.Errorf("%s, removed: %v after %s", c.name, err, took)
			}
		}
		for _, bad := range []simulated.Fault{{}, {Hang: true, Error: "x"}, {Delay: -1}, {Hang: true, Chance: 2}, {Hang: true, LoseAnswer: true}, {LoseAnswer: true, LoseEvents: true},
			{Hang: true, Method: "PulImage"}, {Hang: true, Method: "runtime.v1.ImageService/PullImage"}, {Hang: true, Code: "NotFound"}, {Error: "x", Code: "OK"}, {Error: "x", Code: "NoSuchCode"}, {Hang: true, Chance: math.NaN()}, {Error: strings.Repeat("x", 4097)}} {
			if _, err := n.Inject(bad); err == nil {
				t.Errorf("%+v is accepted", bad)
			}
		}
	})
}

// A call whose answer is lost takes effect.
func TestLostAnswerTakesEffect(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := simulated.New(simulated.Config{})
		defer n.Close()
		remove, err := n.Inject(simulated.Fault{Method: "RunPodSandbox", LoseAnswer: true, Error: "connection lost", Code: "Unavailable"})
		if err != nil {
			t.Fatal(err)
		}
		defer remove()
		cri := n.Deps().Runtime
		_, err = cri.RunPodSandbox(t.Context(), &runtimeapi.RunPodSandboxRequest{Config: &runtimeapi.PodSandboxConfig{
			Metadata: &runtimeapi.PodSandboxMetadata{Name: "web", Namespace: "default", Uid: "1"},
		}})
		if status.Code(err) != codes.Unavailable || status.Convert(err).Message() != "connection lost" {
			t.Errorf("the call returned %v", err)
		}
		if list, err := cri.ListPodSandbox(t.Context(), &runtimeapi.ListPodSandboxRequest{}); err != nil || len(list.Items) != 1 {
			t.Errorf("%d sandboxes, want 1: %v", len(list.GetItems()), err)
		}
	})
}
