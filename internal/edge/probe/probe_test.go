package probe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

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
	hangs    bool     // the runtime hangs: it does not even enforce the timeout of a command
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
			set() // the next turn sets the same targets
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
		pass(2 * time.Second) // failureThreshold * periodSeconds
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
func TestReadinessGoesOnAfterALivenessFailure(t *testing.T) {
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

// pipes is a network in memory, with addresses that listen.
type pipes struct {
	mu     sync.Mutex
	listen map[string]chan net.Conn
	dialed []string
}

func (n *pipes) DialContext(ctx context.Context, _, addr string) (net.Conn, error) {
	n.mu.Lock()
	n.dialed = append(n.dialed, addr)
	l, ok := n.listen[addr]
	n.mu.Unlock()
	if !ok {
		return nil, errors.New("connection refused")
	}
	a, b := net.Pipe()
	select {
	case l <- b:
		return a, nil
	case <-ctx.Done(): // nothing accepts connections at this address
		return nil, ctx.Err()
	}
}

type pipeListener struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}
func (l *pipeListener) Close() error   { l.once.Do(func() { close(l.done) }); return nil }
func (l *pipeListener) Addr() net.Addr { return &net.TCPAddr{} }

func (n *pipes) open(addr string) *pipeListener {
	l := &pipeListener{conns: make(chan net.Conn), done: make(chan struct{})}
	n.listen[addr] = l.conns
	return l
}

// TestNetworkProbes runs each action once against servers in memory.
func TestNetworkProbes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := &pipes{listen: map[string]chan net.Conn{"10.0.0.1:6": make(chan net.Conn)}} // the address with port 6 never accepts
		var seen http.Header
		var host string
		mux := http.NewServeMux()
		mux.HandleFunc("/ok", func(w http.ResponseWriter, r *http.Request) { seen, host = r.Header, r.Host })
		mux.HandleFunc("/bad", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "secret", http.StatusServiceUnavailable) })
		mux.HandleFunc("/here", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/ok", http.StatusFound) })
		mux.HandleFunc("/away", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://other.example.com/", http.StatusFound)
		})
		mux.HandleFunc("/slow", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
		web := &http.Server{Handler: mux}
		webEnded := make(chan error, 1)
		port80, port90 := n.open("10.0.0.1:80"), n.open("10.0.0.1:90")
		go func() { webEnded <- web.Serve(port80) }()
		hs := health.NewServer()
		hs.SetServingStatus("down", grpc_health_v1.HealthCheckResponse_NOT_SERVING)
		gs := grpc.NewServer()
		grpc_health_v1.RegisterHealthServer(gs, hs)
		gsEnded := make(chan error, 1)
		go func() { gsEnded <- gs.Serve(port90) }()

		c := &v1.Container{Name: "c", Ports: []v1.ContainerPort{{Name: "web", ContainerPort: 80}}}
		get := func(path string, port intstr.IntOrString, headers ...v1.HTTPHeader) v1.ProbeHandler {
			return v1.ProbeHandler{HTTPGet: &v1.HTTPGetAction{Path: path, Port: port, HTTPHeaders: headers}}
		}
		health := func(port int32, service string) v1.ProbeHandler {
			return v1.ProbeHandler{GRPC: &v1.GRPCAction{Port: port, Service: &service}}
		}
		tcp := func(host string, port int) v1.ProbeHandler {
			return v1.ProbeHandler{TCPSocket: &v1.TCPSocketAction{Host: host, Port: intstr.FromInt(port)}}
		}
		p := New(Config{Dialer: n})
		cases := []struct {
			name string
			h    v1.ProbeHandler
			want Outcome
			text string
		}{
			{"ok", get("/ok", intstr.FromInt(80)), Success, ""},
			{"named port", get("ok", intstr.FromString("web")), Success, ""},
			{"no such name", get("/ok", intstr.FromString("nope")), Unknown, `container c has no port of this name`},
			{"bad port", get("/ok", intstr.FromInt(70000)), Unknown, "invalid port number: 70000"},
			{"status", get("/bad", intstr.FromInt(80)), Failure, "HTTP probe failed with statuscode: 503"},
			{"redirect here", get("/here", intstr.FromInt(80)), Success, ""},
			{"redirect away", get("/away", intstr.FromInt(80)), Warning, "Probe terminated redirects"},
			{"refused", get("/ok", intstr.FromInt(81)), Failure, "connection refused"},
			{"slow", get("/slow", intstr.FromInt(80)), Failure, "context deadline exceeded"},
			{"dial hangs", get("/", intstr.FromInt(6)), Failure, "context deadline exceeded"},
			{"headers", get("/ok", intstr.FromInt(80), v1.HTTPHeader{Name: "Host", Value: "site"}, v1.HTTPHeader{Name: "X-A", Value: "b"}, v1.HTTPHeader{Name: "Accept", Value: ""}), Success, ""},
			{"tcp", tcp("", 80), Success, ""},
			{"tcp refused", tcp("10.0.0.2", 80), Failure, "connection refused"},
			{"tcp hangs", tcp("", 6), Failure, "deadline"},
			{"grpc", health(90, ""), Success, "service healthy"},
			{"grpc down", health(90, "down"), Failure, `service unhealthy (responded with "NOT_SERVING")`},
			{"grpc unknown", health(90, "nope"), Failure, "error: health rpc probe failed: rpc error: code = NotFound desc = unknown service"},
			{"grpc refused", health(91, ""), Failure, `timeout: failed to connect service "10.0.0.1:91" within 1s: context deadline exceeded`},
			{"grpc hangs", health(6, ""), Failure, `timeout: failed to connect service "10.0.0.1:6" within 1s: context deadline exceeded`},
			{"nothing", v1.ProbeHandler{}, Unknown, "no exec, httpGet, tcpSocket or grpc"},
		}
		for _, tc := range cases {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			got, text := p.check(ctx, Target{Spec: c, Host: "10.0.0.1"}, &v1.Probe{ProbeHandler: tc.h}, time.Second)
			cancel()
			if got != tc.want || !strings.Contains(text, tc.text) || strings.Contains(text, "secret") {
				t.Errorf("%s: %s %q, want %s %q", tc.name, got.label(), text, tc.want.label(), tc.text)
			}
			switch tc.name {
			case "ok":
				if seen.Get("User-Agent") != "kube-probe/1.36" || seen.Get("Accept") != "*/*" || seen.Get("Accept-Encoding") != "" || host != "10.0.0.1:80" {
					t.Errorf("headers %v host %s", seen, host)
				}
			case "headers":
				if host != "site" || seen.Get("X-A") != "b" || seen.Get("Accept") != "" {
					t.Errorf("headers %v host %s", seen, host)
				}
			}
		}
		_ = web.Close()
		<-webEnded
		gs.Stop()
		<-gsEnded
	})
}

// A metric forgets a pod after Probes does. So Observe is called under the lock that Forget takes, and never after Forget.
func TestNoRunIsObservedAfterForget(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, r *rig) {
		told := 0
		r.cfg.Observe = func(Measurement) {
			told++
			if r.Probes.mu.TryLock() {
				r.Probes.mu.Unlock()
				t.Error("Observe is called without the lock: the pod may already be forgotten")
			}
		}
		r.Set(ref, []Target{{ContainerID: "c1", StartedAt: r.began, Spec: &v1.Container{LivenessProbe: execProbe("x", 1, 0, 2)}}})
		pass(10 * time.Second)
		if told == 0 {
			t.Error("Observe was never called")
		}
	})
}
