package probe

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/core/pod"
)

var ref = pod.Ref{Namespace: "ns", Name: "web", UID: "u"}

// rig runs Probes inside the synctest bubble of one test. The function answer returns the results of exec probes.
type rig struct {
	*Probes
	began time.Time

	mu       sync.Mutex
	answer   func(at time.Duration, id string, cmd []string) (int32, error)
	took     time.Duration
	hangs    bool     // the runtime hangs: it does not answer, not even after the timeout of a command
	execs    []string // for example "2.1s c1 alive"
	events   []string
	changes  []string
	results  []string
	now, top int
}

// ExecSync sleeps for rig.took and returns the answer. If a command exceeds its timeout, it returns the error of a runtime.
func (r *rig) ExecSync(ctx context.Context, id string, cmd []string, limit time.Duration) ([]byte, []byte, int32, error) {
	r.mu.Lock()
	at := time.Since(r.began)
	r.execs = append(r.execs, fmt.Sprintf("%s %s %s", at, id, strings.Join(cmd, " ")))
	r.now++
	r.top = max(r.top, r.now)
	took, answer, up := r.took, r.answer, time.After(limit)
	if r.hangs {
		up = nil
	}
	r.mu.Unlock()
	defer func() { r.mu.Lock(); r.now--; r.mu.Unlock() }()
	select {
	case <-time.After(took):
	case <-up:
		return nil, nil, 0, status.Error(codes.DeadlineExceeded, "its time was up")
	case <-ctx.Done():
		return nil, nil, 0, ctx.Err()
	}
	code, err := int32(0), error(nil)
	if answer != nil {
		code, err = answer(at, id, cmd)
	}
	return []byte("out"), []byte("err"), code, err
}

func inBubble(t *testing.T, cfg Config, f func(t *testing.T, r *rig)) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := &rig{began: time.Now()}
		cfg.Exec = r
		cfg.Seed = 1
		cfg.Notify = func(uid types.UID) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.changes = append(r.changes, time.Since(r.began).String())
		}
		cfg.Event = func(e Event) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.events = append(r.events, fmt.Sprintf("%s %s %s", time.Since(r.began), e.Reason, e.Message))
		}
		cfg.Observe = func(m Measurement) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.results = append(r.results, m.Kind.String()+" "+m.Result)
		}
		r.Probes = New(cfg)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- r.Run(ctx) }()
		f(t, r)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func execProbe(cmd string, period, delay, failures int32) *v1.Probe {
	return &v1.Probe{
		ProbeHandler:  v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{cmd}}},
		PeriodSeconds: period, InitialDelaySeconds: delay, FailureThreshold: failures,
	}
}

// pass advances the clock and waits until all goroutines are blocked.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (r *rig) expect(t *testing.T, what string, got, want []string) {
	t.Helper()
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func TestNoProbesMeansStartedAndReady(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, r *rig) {
		r.Set(ref, []Target{{ContainerID: "c1", Spec: &v1.Container{}, StartedAt: time.Now()}})
		if s, ok := r.Result("u", "c1"); !ok || s != (State{Started: true, Ready: true}) {
			t.Errorf("%+v %t", s, ok)
		}
		if _, ok := r.Result("u", "c2"); ok {
			t.Error("an unknown container has a result")
		}
	})
}

func TestReadiness(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, r *rig) {
		// The container serves from 1 s on, except between 25 s and 55 s.
		r.answer = func(at time.Duration, _ string, _ []string) (int32, error) {
			if at < time.Second || (at > 25*time.Second && at < 55*time.Second) {
				return 1, nil
			}
			return 0, nil
		}
		set := func() {
			r.Set(ref, []Target{{ContainerID: "c1", StartedAt: r.began, Spec: &v1.Container{ReadinessProbe: execProbe("x", 10, 0, 2)}}})
		}
		set()
		for range 65 {
			pass(time.Second)
			set() // the worker's next turn sets the same targets
		}
		// Quick probes run until the container is ready, then one probe per period. Two failures make it unready, one success
		// makes it ready.
		r.expect(t, "execs", r.execs, []string{
			"0s c1 x", "500ms c1 x", "1.5s c1 x", "10s c1 x", "20s c1 x", "30s c1 x", "40s c1 x", "50s c1 x", "1m0s c1 x"})
		r.expect(t, "changes", r.changes, []string{"1.5s", "40s", "1m0s"})
		r.expect(t, "events", r.events, []string{
			"30s Unhealthy Readiness probe failed: outerr", "40s Unhealthy Readiness probe failed: outerr", "50s Unhealthy Readiness probe failed: outerr"})
	})
}

func TestLivenessEndsWithUnhealthy(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, r *rig) {
		grace := int64(7)
		p := execProbe("x", 10, 5, 3)
		p.TerminationGracePeriodSeconds = &grace
		r.answer = func(at time.Duration, id string, _ []string) (int32, error) {
			if id == "c1" && at > 10*time.Second {
				return 1, nil
			}
			return 0, nil
		}
		spec := &v1.Container{LivenessProbe: p}
		r.Set(ref, []Target{{ContainerID: "c1", StartedAt: time.Now(), Spec: spec}})
		pass(time.Minute)
		r.expect(t, "execs", r.execs, []string{"5s c1 x", "15s c1 x", "25s c1 x", "35s c1 x"})
		s, _ := r.Result("u", "c1")
		if diff := cmp.Diff(State{Started: true, Ready: true, Unhealthy: true, Kind: Liveness, Message: "outerr", Grace: &grace}, s); diff != "" {
			t.Error(diff)
		}
		// The next instance of the container starts with a fresh state.
		r.Set(ref, []Target{{ContainerID: "c2", StartedAt: time.Now(), Spec: spec}})
		pass(16 * time.Second)
		if s, _ := r.Result("u", "c2"); s.Unhealthy {
			t.Error("the successor is unhealthy")
		}
		r.expect(t, "execs", r.execs[4:], []string{"1m5s c2 x", "1m15s c2 x"})
	})
}

func TestStartupGatesTheOthers(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, r *rig) {
		r.answer = func(at time.Duration, _ string, cmd []string) (int32, error) {
			if cmd[0] == "started" && at < 12*time.Second {
				return 1, nil
			}
			return 0, nil
		}
		r.Set(ref, []Target{{ContainerID: "c1", StartedAt: time.Now(), Spec: &v1.Container{
			StartupProbe: execProbe("started", 5, 0, 3), LivenessProbe: execProbe("alive", 10, 0, 1), ReadinessProbe: execProbe("ready", 10, 0, 1)}}})
		pass(20 * time.Second)
		r.expect(t, "execs", r.execs, []string{
			"0s c1 started", "500ms c1 started", "1.5s c1 started", "3.5s c1 started", "5s c1 started", "10s c1 started", "15s c1 started", "15s c1 ready"})
		pass(6 * time.Second)
		if got := strings.Join(r.execs[8:], ", "); got != "25s c1 alive, 25s c1 ready" && got != "25s c1 ready, 25s c1 alive" {
			t.Errorf("then %s", got)
		}
		s, _ := r.Result("u", "c1")
		if s != (State{Started: true, Ready: true}) {
			t.Errorf("%+v", s)
		}
	})
}

// The clock was set back after the container started. Its probes run as if it had started now.
func TestStartInTheFuture(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, r *rig) {
		r.Set(ref, []Target{{ContainerID: "c1", StartedAt: time.Now().Add(24 * time.Hour), Spec: &v1.Container{
			StartupProbe: execProbe("started", 10, 2, 3), ReadinessProbe: execProbe("ready", 10, 0, 1)}}})
		pass(5 * time.Second)
		r.expect(t, "execs", r.execs, []string{"2s c1 started", "2s c1 ready"})
		if s, _ := r.Result("u", "c1"); s != (State{Started: true, Ready: true}) {
			t.Errorf("%+v", s)
		}
	})
}

func TestStartupFails(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, r *rig) {
		r.answer = func(time.Duration, string, []string) (int32, error) { return 1, nil }
		r.Set(ref, []Target{{ContainerID: "c1", StartedAt: time.Now(), Spec: &v1.Container{StartupProbe: execProbe("s", 10, 0, 3)}}})
		pass(29 * time.Second)
		if s, _ := r.Result("u", "c1"); s.Unhealthy || s.Started || s.Ready {
			t.Errorf("after 29 s: %+v", s)
		}
		pass(2 * time.Second) // until failureThreshold * periodSeconds have passed
		synctest.Wait()
		if s, _ := r.Result("u", "c1"); !s.Unhealthy || s.Kind != Startup {
			t.Errorf("after 31 s: %+v", s)
		}
		n := len(r.execs)
		pass(time.Hour)
		if len(r.execs) != n {
			t.Errorf("%d probes after the verdict", len(r.execs)-n)
		}
	})
}

func TestAgentRestartKeepsReadiness(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, r *rig) {
		spec := &v1.Container{ReadinessProbe: execProbe("r", 10, 0, 3), StartupProbe: execProbe("s", 10, 0, 3), LivenessProbe: execProbe("l", 10, 0, 3)}
		var targets []Target
		for i := range 200 {
			targets = append(targets, Target{ContainerID: fmt.Sprint("c", i), Spec: spec, StartedAt: time.Now().Add(-time.Hour), Initial: &Initial{Started: true, Ready: true}})
		}
		r.Set(ref, targets)
		if s, _ := r.Result("u", "c7"); s != (State{Started: true, Ready: true}) {
			t.Errorf("%+v", s)
		}
		pass(10 * time.Second)
		if len(r.execs) != 400 || r.top > 8 {
			t.Errorf("%d probes in the first period, %d at once: want 400, spread", len(r.execs), r.top)
		}
		r.expect(t, "changes", r.changes, nil)
	})
}

func TestTimeoutAndErrors(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, r *rig) {
		p := execProbe("x", 10, 1, 1)
		p.TimeoutSeconds = 3
		r.took = time.Minute
		r.Set(ref, []Target{{ContainerID: "c1", StartedAt: time.Now(), Spec: &v1.Container{LivenessProbe: p}}})
		pass(5 * time.Second)
		if s, _ := r.Result("u", "c1"); !s.Unhealthy || s.Message != `command timed out: "x" timed out after 3s` {
			t.Errorf("%+v", s)
		}
		// A command that could not be run gives no information about the container.
		r.mu.Lock()
		r.took, r.answer = 0, func(time.Duration, string, []string) (int32, error) {
			return 0, fmt.Errorf("exec in container c2: %w", status.Error(codes.Unknown, "container has exited"))
		}
		r.mu.Unlock()
		r.Set(ref, []Target{{ContainerID: "c2", StartedAt: time.Now(), Spec: &v1.Container{LivenessProbe: p}}})
		pass(time.Minute)
		if s, _ := r.Result("u", "c2"); s.Unhealthy {
			t.Errorf("%+v", s)
		}
		if last := r.events[len(r.events)-1]; !strings.HasSuffix(last, "Unhealthy Liveness probe errored and resulted in unknown state: rpc error: code = Unknown desc = container has exited") {
			t.Errorf("events %q", r.events)
		}
		if last := r.results[len(r.results)-1]; last != "Liveness unknown" {
			t.Errorf("results %q", r.results)
		}
	})
}

// A runtime that hangs must not make containers unready or restart them.
func TestRuntimeHangs(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, r *rig) {
		r.hangs, r.took = true, time.Hour
		spec := &v1.Container{LivenessProbe: execProbe("l", 10, 0, 1), ReadinessProbe: execProbe("r", 10, 0, 1)}
		r.Set(ref, []Target{{ContainerID: "c1", StartedAt: time.Now(), Spec: spec, Initial: &Initial{Started: true, Ready: true}}})
		pass(5 * time.Minute)
		if s, _ := r.Result("u", "c1"); s != (State{Started: true, Ready: true}) {
			t.Errorf("%+v", s)
		}
		if len(r.events) == 0 || !strings.Contains(r.events[0], "probe errored and resulted in unknown state: the container runtime did not answer within 30s after the timeout of the command") {
			t.Errorf("events %q", r.events)
		}
	})
}

// A container that is stopped because of its liveness probe may take its whole grace period to end. Until then its endpoints
// follow its readiness probe, and no liveness probe runs.
func TestReadinessContinuesAfterALivenessFailure(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, r *rig) {
		r.answer = func(at time.Duration, _ string, cmd []string) (int32, error) {
			if cmd[0] == "alive" && at > 15*time.Second || cmd[0] == "ready" && at > 35*time.Second {
				return 1, nil
			}
			return 0, nil
		}
		spec := &v1.Container{LivenessProbe: execProbe("alive", 10, 0, 1), ReadinessProbe: execProbe("ready", 10, 0, 1)}
		target := Target{ContainerID: "c1", Spec: spec, StartedAt: time.Now()}
		r.Set(ref, []Target{target})
		pass(32 * time.Second)
		if s, _ := r.Result("u", "c1"); !s.Unhealthy || !s.Ready {
			t.Errorf("after the failure of the liveness probe: %+v", s)
		}
		target.Initial = &Initial{Started: true, Ready: true}
		target.Host = "10.0.0.1"
		r.Set(ref, []Target{target})
		pass(30 * time.Second)
		if s, _ := r.Result("u", "c1"); !s.Unhealthy || s.Ready {
			t.Errorf("after the failure of the readiness probe: %+v", s)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		alive := 0
		for _, e := range r.execs {
			if strings.HasSuffix(e, "alive") {
				alive++
			}
		}
		if alive != 2 {
			t.Errorf("%d liveness probes, want 2: %q", alive, r.execs)
		}
	})
}

func TestForgottenAndTerminatingAreNotProbed(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, r *rig) {
		spec := &v1.Container{LivenessProbe: execProbe("l", 10, 0, 1), ReadinessProbe: execProbe("r", 10, 3, 1)}
		start := time.Now()
		r.Set(ref, []Target{{ContainerID: "c1", StartedAt: start, Spec: spec}})
		pass(5 * time.Second)
		r.Set(ref, []Target{{ContainerID: "c1", StartedAt: start, Spec: spec, Terminating: true}})
		pass(10 * time.Second)
		r.expect(t, "execs", r.execs, []string{"3s c1 r", "13s c1 r"})
		r.Forget("u")
		pass(time.Hour)
		r.expect(t, "execs", r.execs, []string{"3s c1 r", "13s c1 r"})
		if len(r.pods) != 0 || r.timers.Len() != 0 {
			t.Errorf("%d pods and %d timers left", len(r.pods), r.timers.Len())
		}
	})
}

func TestBoundedAndNothingAtRest(t *testing.T) {
	inBubble(t, Config{MaxParallel: 4}, func(t *testing.T, r *rig) {
		r.took = 500 * time.Millisecond
		var targets []Target
		for i := range 40 {
			targets = append(targets, Target{ContainerID: fmt.Sprint("c", i), Spec: &v1.Container{LivenessProbe: execProbe("l", 10, 2, 1)}, StartedAt: time.Now()})
		}
		r.Set(ref, targets)
		pass(11 * time.Second)
		synctest.Wait()
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.top != 4 || len(r.execs) != 40 {
			t.Errorf("%d at once, %d probes", r.top, len(r.execs))
		}
	})
}

func TestExecExpandsLiteralEnv(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, r *rig) {
		p := execProbe("", 10, 1, 1)
		p.Exec.Command = []string{"curl", "$(PORT)", "$(FROM)", "$$(PORT)"}
		r.Set(ref, []Target{{ContainerID: "c1", StartedAt: time.Now(), Spec: &v1.Container{
			LivenessProbe: p, Env: []v1.EnvVar{{Name: "PORT", Value: "80"}, {Name: "FROM", ValueFrom: &v1.EnvVarSource{}}}}}})
		pass(2 * time.Second)
		r.expect(t, "execs", r.execs, []string{"1s c1 curl 80 $(FROM) $(PORT)"})
	})
}

// The metrics of a pod are dropped after Probes.Forget. Observe must not be called after Forget, so Probes calls it with the lock
// held that Forget takes.
func TestNoRunIsObservedAfterForget(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, r *rig) {
		notified := 0
		r.cfg.Observe = func(Measurement) {
			notified++
			if r.Probes.mu.TryLock() {
				r.Probes.mu.Unlock()
				t.Error("Observe is called without the lock: the pod may already be forgotten")
			}
		}
		r.Set(ref, []Target{{ContainerID: "c1", StartedAt: r.began, Spec: &v1.Container{LivenessProbe: execProbe("x", 1, 0, 2)}}})
		pass(10 * time.Second)
		if notified == 0 {
			t.Error("Observe was never called")
		}
	})
}
