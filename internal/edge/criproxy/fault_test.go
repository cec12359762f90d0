package criproxy

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/wherry-node/wherry/internal/sim/simcri"
)

// Each effect gives the client its outcome at its time, and reaches the runtime or not.
func TestEffects(t *testing.T) {
	t.Parallel()
	cut := status.Error(codes.Unavailable, "connection lost")
	runSimulated(t, func(b *bench, r *simcri.Runtime, c runtimeapi.RuntimeServiceClient) {
		for _, e := range []struct {
			name    string
			fault   Fault
			code    codes.Code
			took    time.Duration
			reached int
		}{
			{"slow", Fault{Effect: Slow, Delay: 20 * time.Second}, codes.OK, 20 * time.Second, 1},
			{"slower than the deadline", Fault{Effect: Slow, Delay: time.Hour}, codes.DeadlineExceeded, time.Minute, 0},
			{"refused", Fault{Effect: Refuse, Err: cut}, codes.Unavailable, 0, 0},
			{"refused late", Fault{Effect: Refuse, Err: cut, Delay: time.Second}, codes.Unavailable, time.Second, 0},
			{"hangs", Fault{Effect: Hang}, codes.DeadlineExceeded, time.Minute, 0},
			{"hangs for a time", Fault{Effect: Hang, For: 5 * time.Second}, codes.OK, 5 * time.Second, 1},
			{"lost", Fault{Effect: LoseAnswer, Err: cut}, codes.Unavailable, 0, 1},
			{"lost late", Fault{Effect: LoseAnswer, Err: cut, Delay: time.Second}, codes.Unavailable, time.Second, 1},
			{"lost without an error", Fault{Effect: LoseAnswer}, codes.DeadlineExceeded, time.Minute, 1},
			{"lost for a time", Fault{Effect: LoseAnswer, For: 5 * time.Second}, codes.Unavailable, 5 * time.Second, 1},
			{"a delay runs out after its fault", Fault{Effect: Slow, Delay: 20 * time.Second, For: time.Second}, codes.OK, 20 * time.Second, 1},
			{"events", Fault{Effect: LoseEvents}, codes.OK, 0, 1},
		} {
			for _, method := range []string{"", "Version", "runtime.v1.RuntimeService/Version", "PullImage"} {
				f, code, took, reached := e.fault, e.code, e.took, e.reached
				if f.Method = method; method == "PullImage" {
					code, took, reached = codes.OK, 0, 1
				}
				before := r.Calls("Version")
				b.inject(f)
				ctx, cancel := context.WithTimeout(b.Context(), time.Minute)
				began := time.Now()
				_, err := c.Version(ctx, &runtimeapi.VersionRequest{})
				if now := time.Since(began); status.Code(err) != code || now != took {
					b.Errorf("%s (method %q): %v after %s, want %v after %s", e.name, method, err, now, code, took)
				}
				cancel()
				if n := r.Calls("Version") - before; n != reached {
					b.Errorf("%s (method %q): %d calls reached the runtime, want %d", e.name, method, n, reached)
				}
				hit := f.Effect != LoseEvents && method != "PullImage"
				calls := b.calls()
				if len(calls) != 1 || (calls[0].Fault != "") != hit || calls[0].Took != took || calls[0].Method != "Version" {
					b.Errorf("%s (method %q): calls %+v", e.name, method, calls)
				} else if now := calls[0].Code; now != code && (code != codes.DeadlineExceeded || now != codes.Canceled) { // the client may be the first to see its deadline
					b.Errorf("%s (method %q): recorded as %v", e.name, method, now)
				}
				b.heal()
				if _, err := c.Version(b.Context(), &runtimeapi.VersionRequest{}); err != nil {
					b.Errorf("%s, healed: %v", e.name, err)
				}
				if calls := b.calls(); len(calls) != 1 || calls[0].Fault != "" {
					b.Errorf("%s, healed: calls %+v", e.name, calls)
				}
			}
		}
	})
}

// A call whose answer is lost takes effect in the runtime. A stream fails at its first message.
func TestLostAnswers(t *testing.T) {
	t.Parallel()
	cut := status.Error(codes.Unavailable, "connection lost")
	runSimulated(t, func(b *bench, _ *simcri.Runtime, c runtimeapi.RuntimeServiceClient) {
		b.inject(Fault{Effect: LoseAnswer, Err: cut})
		events, err := c.GetContainerEvents(b.Context(), &runtimeapi.GetEventsRequest{})
		if err != nil {
			b.Fatal(err)
		}
		synctest.Wait()
		if s := b.proxy.State(); s.InFlight != 1 {
			b.Errorf("the stream of events ended before an event: %+v", s)
		}
		if _, err := c.RunPodSandbox(b.Context(), sandbox("web")); status.Code(err) != codes.Unavailable {
			b.Errorf("run a sandbox: %v", err)
		}
		if _, err := events.Recv(); status.Code(err) != codes.Unavailable {
			b.Errorf("events: %v", err)
		}
		list, err := c.StreamPodSandboxes(b.Context(), &runtimeapi.StreamPodSandboxesRequest{})
		if err != nil {
			b.Fatal(err)
		}
		if _, err := list.Recv(); status.Code(err) != codes.Unavailable {
			b.Errorf("list: %v", err)
		}
		b.heal()
		if l, err := c.ListPodSandbox(b.Context(), &runtimeapi.ListPodSandboxRequest{}); err != nil || len(l.Items) != 1 {
			b.Errorf("the runtime has %d sandboxes, want 1: %v", len(l.GetItems()), err)
		}
	})
}

// Heal lets the calls go on that a fault holds: to the runtime, or with an error if their answers were lost. It ends only the faults of its
// method.
func TestHealReleasesCalls(t *testing.T) {
	t.Parallel()
	runSimulated(t, func(b *bench, r *simcri.Runtime, c runtimeapi.RuntimeServiceClient) {
		b.inject(Fault{Method: "Status", Effect: Hang})
		for _, e := range []struct {
			fault Fault
			want  codes.Code
		}{
			{Fault{Effect: Hang}, codes.OK},
			{Fault{Effect: Slow, Delay: 24 * time.Hour}, codes.OK},
			{Fault{Effect: Refuse, Err: status.Error(codes.Internal, "x"), Delay: 24 * time.Hour}, codes.OK},
			{Fault{Effect: LoseAnswer}, codes.Unavailable},
			{Fault{Effect: LoseAnswer, Err: status.Error(codes.Internal, "x"), Delay: 24 * time.Hour}, codes.Internal},
		} {
			e.fault.Method = "Version"
			b.inject(e.fault)
			var healed []string
			time.AfterFunc(time.Hour, func() { healed, _ = b.proxy.Heal("Version") })
			began := time.Now()
			_, err := c.Version(b.Context(), &runtimeapi.VersionRequest{})
			if took := time.Since(began); status.Code(err) != e.want || took != time.Hour {
				b.Errorf("%s: %v after %s, want %v after an hour", e.fault.String(), err, took, e.want)
			}
			if !slices.Equal(healed, []string{e.fault.String()}) {
				b.Errorf("healed %q", healed)
			}
		}
		ctx, cancel := context.WithTimeout(b.Context(), time.Second)
		defer cancel()
		if _, err := c.Status(ctx, &runtimeapi.StatusRequest{}); status.Code(err) != codes.DeadlineExceeded || r.Calls("Status") != 0 {
			b.Errorf("the fault of another method has ended: %v", err)
		}
		if _, err := b.proxy.Heal("Versio"); err == nil {
			b.Error("an unknown method is healed")
		}
	})
}

// The same seed hits the same calls of a method, whatever other methods are called in between; about as many as its chance says.
func TestChanceRepeats(t *testing.T) {
	t.Parallel()
	const calls = 200
	run := func(seed uint64, between int) (hits []bool) {
		runSimulated(t, func(b *bench, _ *simcri.Runtime, c runtimeapi.RuntimeServiceClient) {
			b.inject(Fault{Effect: Refuse, Err: status.Error(codes.Internal, "x"), Chance: 0.3, Seed: seed})
			for range calls {
				_, err := c.Version(b.Context(), &runtimeapi.VersionRequest{})
				hits = append(hits, err != nil)
				for range between {
					_, _ = c.Status(b.Context(), &runtimeapi.StatusRequest{})
				}
			}
		})
		return hits
	}
	first := run(7, 0)
	if !slices.Equal(first, run(7, 2)) {
		t.Error("the same seed hits other calls")
	}
	if slices.Equal(first, run(8, 0)) {
		t.Error("another seed hits the same calls")
	}
	n := 0
	for _, hit := range first {
		if hit {
			n++
		}
	}
	if n < calls*2/10 || n > calls*4/10 {
		t.Errorf("%d of %d calls were hit, want about 30%%", n, calls)
	}
}

// Events are dropped from a stream that is open while the fault is active, and only then.
func TestEventsAreLost(t *testing.T) {
	t.Parallel()
	runSimulated(t, func(b *bench, _ *simcri.Runtime, c runtimeapi.RuntimeServiceClient) {
		ctx, cancel := context.WithCancel(b.Context())
		defer cancel()
		events, err := c.GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{})
		if err != nil {
			b.Fatal(err)
		}
		synctest.Wait()
		for _, name := range []string{"seen", "lost", "seen again"} {
			if name == "lost" {
				b.inject(Fault{Effect: LoseEvents, For: time.Minute})
			}
			if _, err := c.RunPodSandbox(b.Context(), sandbox(name)); err != nil {
				b.Fatal(err)
			}
			time.Sleep(time.Hour)
		}
		for _, want := range []string{"seen", "seen", "seen again", "seen again"} { // created, started
			if e, err := events.Recv(); err != nil || e.PodSandboxStatus.Metadata.Name != want {
				b.Errorf("event of %v, want %s: %v", e.GetPodSandboxStatus().GetMetadata(), want, err)
			}
		}
		if s := b.proxy.State(); s.EventsLost != 2 || len(s.Faults) != 0 {
			b.Errorf("state %+v", s)
		}
	})
}

// The state has the active faults with their hits, and the calls by method.
func TestState(t *testing.T) {
	t.Parallel()
	runSimulated(t, func(b *bench, _ *simcri.Runtime, c runtimeapi.RuntimeServiceClient) {
		b.inject(Fault{Method: "Version", Effect: Slow, Delay: 3 * time.Second, For: time.Hour})
		b.inject(Fault{Method: "Version", Effect: Hang}) // the first one that fits affects a call
		began := time.Now()
		for range 2 {
			if _, err := c.Version(b.Context(), &runtimeapi.VersionRequest{}); err != nil {
				b.Fatal(err)
			}
		}
		if _, err := c.ContainerStatus(b.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: "none"}); err == nil {
			b.Fatal("a container that does not exist has a status")
		}
		synctest.Wait()
		s := b.proxy.State()
		if len(s.Faults) != 2 || s.Faults[0].Hits != 2 || s.Faults[1].Hits != 0 || !s.Faults[0].Until.Equal(began.Add(time.Hour)) || !s.Faults[1].Until.IsZero() ||
			s.Faults[0].Text != "Version takes 3s longer" || s.Faults[1].Text != "Version hangs" {
			b.Errorf("faults %+v", s.Faults)
		}
		want := []MethodState{{Method: "ContainerStatus", Calls: 1, Failed: 1}, {Method: "Version", Calls: 2, Faulted: 2, Mean: 3 * time.Second, Longest: 3 * time.Second}}
		if !slices.Equal(s.Methods, want) {
			b.Errorf("methods %+v, want %+v", s.Methods, want)
		}
	})
}

// A fault that cannot be meant is refused.
func TestBadFaults(t *testing.T) {
	t.Parallel()
	p, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	for want, f := range map[string]Fault{
		`method "PulImage": CRI v1 has no such method`: {Method: "PulImage", Effect: Hang},
		"did you mean PullImage?":                      {Method: "pullimage", Effect: Hang},
		"needs an error":                               {Effect: Refuse},
		"must not be negative":                         {Effect: Slow, Delay: -1},
		"a number from 0 to 1":                         {Effect: Hang, Chance: 1.1},
		"effect 9":                                     {Effect: 9},
		`method "/": write SERVICE/METHOD`:             {Method: "/", Effect: Hang},
		`RuntimeService/": write SERVICE/METHOD`:       {Method: "runtime.v1.RuntimeService/", Effect: Hang},
		"at most 200 bytes":                            {Method: "a/" + strings.Repeat("x", maxName), Effect: Hang},
		"at most 4096 bytes":                           {Effect: Refuse, Err: errors.New(strings.Repeat("x", maxError+1))},
	} {
		if _, err := p.Inject(f); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", f, err, want)
		}
	}
	if names := Methods(); !slices.Contains(names, "PullImage") || !slices.Contains(names, methodEvents) || !slices.Contains(names, "StreamContainers") {
		t.Errorf("methods %v", names)
	}
}
