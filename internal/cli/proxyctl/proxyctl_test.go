package proxyctl

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"math"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/wherry-node/wherry/agent/simulated"
	"github.com/wherry-node/wherry/internal/sim/simcri"
)

// text is a buffer that several goroutines may write to and read.
type text struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (t *text) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.b.Write(b)
}

func (t *text) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.b.String()
}

// station is a simulated runtime on a socket, a proxy before it, and a client of CRI that calls the proxy.
type station struct {
	*testing.T
	dir     string
	runtime *simcri.Runtime
	run     Run
	log     text
	client  runtimeapi.RuntimeServiceClient
	Client         // of the control socket
	stop    func() // ends the proxy
}

// start starts a station. change may change the options of the proxy.
func start(t *testing.T, change func(s *station)) *station {
	t.Helper()
	s := &station{T: t, dir: t.TempDir(), runtime: simcri.New(simcri.Config{})}
	t.Cleanup(s.runtime.Close)
	s.serveRuntime()
	s.run = Run{
		Listen: "unix://" + s.dir + "/proxy.sock", Runtime: "unix://" + s.dir + "/runtime.sock", Socket: s.dir + "/control.sock",
		Log: slog.New(slog.NewTextHandler(&s.log, nil)),
	}
	s.Client = Client{Socket: s.run.Socket}
	if change != nil {
		change(s)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.run.Run(ctx) }()
	s.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the proxy ended with %v", err)
		}
		if t.Failed() {
			t.Logf("the log of the proxy:\n%s", &s.log)
		}
	})
	t.Cleanup(s.stop)
	conn, err := grpc.NewClient("unix://"+s.dir+"/proxy.sock", grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	s.client = runtimeapi.NewRuntimeServiceClient(conn)
	s.until("the proxy and its runtime answer", func() bool {
		state, err := s.State(t.Context())
		return err == nil && state.Connection == "READY"
	})
	return s
}

// serveRuntime serves the runtime on its socket until the test ends.
func (s *station) serveRuntime() {
	s.Helper()
	l, err := net.Listen("unix", s.dir+"/runtime.sock")
	if err != nil {
		s.Fatal(err)
	}
	server := grpc.NewServer()
	runtimeapi.RegisterRuntimeServiceServer(server, s.runtime)
	runtimeapi.RegisterImageServiceServer(server, s.runtime)
	go func() { _ = server.Serve(l) }()
	s.Cleanup(server.Stop)
}

func (s *station) until(what string, done func() bool) {
	s.Helper()
	for end := time.Now().Add(30 * time.Second); !done(); {
		if time.Now().After(end) {
			s.Fatalf("not in time: %s; the log of the proxy:\n%s", what, &s.log)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// version calls the proxy and returns the error.
func (s *station) version() error {
	_, err := s.client.Version(s.Context(), &runtimeapi.VersionRequest{})
	return err
}

// said runs a command and returns its output.
func (s *station) said(run func(context.Context, io.Writer) error) string {
	s.Helper()
	var out bytes.Buffer
	if err := run(s.Context(), &out); err != nil {
		s.Fatal(err)
	}
	return out.String()
}

// The commands inject and heal faults of a running proxy and print its state.
func TestCommands(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	for _, name := range []string{"proxy.sock", "control.sock"} {
		if st, err := os.Stat(filepath.Join(s.dir, name)); err != nil || st.Mode().Perm() != 0o600 {
			t.Errorf("%s: mode %v, want 0600: %v", name, st.Mode().Perm(), err)
		}
	}
	refused := Fault{Client: s.Client, Injection: Injection{Fault: simulated.Fault{Method: "Version", Error: "no\x1b[2Jdisk", Code: "NOT_FOUND"}}}
	if said := s.said(refused.Run); said != "fault: Version fails: rpc error: code = NotFound desc = no\\x1b[2Jdisk\n" {
		t.Errorf("fault said %q", said)
	}
	if err := s.version(); status.Code(err) != codes.NotFound || s.runtime.Calls("Version") != 0 {
		t.Errorf("the call returned %v", err)
	}
	table := s.said((&Get{Client: s.Client}).Run)
	for _, want := range []string{
		"proxy     " + s.run.Listen + ", running for ", "runtime   " + s.run.Runtime + ": connected\n", "calls     0 in flight\n",
		"faults    Version fails: rpc error: code = NotFound desc = no\\x1b[2Jdisk (until wherry cri proxy heal; hits: 1)\n",
		"METHOD    CALLS   IN FLIGHT   FAILED   FAULTS   MEAN", "Version   1       0           1        1 ",
	} {
		if !strings.Contains(table, want) {
			t.Errorf("get does not say %q:\n%s", want, table)
		}
	}
	if said := s.said((&Heal{Client: s.Client, Method: "Status"}).Run); said != "there is no such fault\n" {
		t.Errorf("heal of another method said %q", said)
	}
	if said := s.said((&Heal{Client: s.Client}).Run); !strings.HasPrefix(said, "healed: Version fails") {
		t.Errorf("heal said %q", said)
	}
	if err := s.version(); err != nil {
		t.Errorf("after heal: %v", err)
	}
	var state State
	if text := s.said((&Get{Client: s.Client, Output: "json"}).Run); json.Unmarshal([]byte(text), &state) != nil || len(state.Methods) != 1 || state.Methods[0].Calls != 2 || state.Faults == nil {
		t.Errorf("get -o json said %s", text)
	}
	for want, err := range map[string]error{
		"did you mean Version?": (&Fault{Client: s.Client, Injection: Injection{Fault: simulated.Fault{Method: "version", Hang: true}}}).Run(t.Context(), io.Discard),
		"needs a delay":         (&Fault{Client: s.Client, Injection: Injection{Fault: simulated.Fault{Method: "Version"}}}).Run(t.Context(), io.Discard),
		"must not be negative":  (&Fault{Client: s.Client, Injection: Injection{Fault: simulated.Fault{Hang: true}, For: -1}}).Run(t.Context(), io.Discard),
		"no CRI proxy runs at":  (&Heal{Client: Client{Socket: s.dir + "/none.sock"}}).Run(t.Context(), io.Discard),
		"--output=":             (&Get{Client: s.Client, Output: "xml"}).Run(t.Context(), io.Discard),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	s.stop()
	if left, err := os.ReadDir(s.dir); err != nil || len(left) != 1 || left[0].Name() != "runtime.sock" {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// A fault of the flags is active from the start. The runtime may come after the proxy, and come back.
func TestFaultFromTheStart(t *testing.T) {
	t.Parallel()
	s := start(t, func(s *station) {
		s.run.Fault = Injection{Fault: simulated.Fault{Method: "RunPodSandbox", LoseAnswer: true, Error: "cut", Code: "Unavailable"}}
	})
	_, err := s.client.RunPodSandbox(t.Context(), &runtimeapi.RunPodSandboxRequest{Config: &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: "web", Namespace: "default", Uid: "1"},
	}})
	if status.Code(err) != codes.Unavailable || s.runtime.Calls("RunPodSandbox") != 1 {
		t.Errorf("%v, and %d calls of the runtime", err, s.runtime.Calls("RunPodSandbox"))
	}
}

const head = "apiVersion: wherry.dev/v1alpha1\nkind: FleetScenario\nseed: 3\nevents:\n"

// A scenario waits for its condition, and its faults happen and end.
func TestScenario(t *testing.T) {
	t.Parallel()
	s := start(t, func(s *station) {
		s.run.Scenario = filepath.Join(s.dir, "faults.yaml")
		plan := head + "- name: full\n  when: {podsRunning: 1}\n  fault: runtime\n  runtime: {method: Version, error: full, code: ResourceExhausted}\n" +
			"- fault: runtime\n  every: 1ms\n  times: 3\n  for: 1h\n  runtime: {loseEvents: true, chance: 0.5}\n"
		if err := os.WriteFile(s.run.Scenario, []byte(plan), 0o600); err != nil {
			s.Fatal(err)
		}
	})
	s.until("the second event has happened three times", func() bool {
		state, err := s.State(t.Context())
		return err == nil && len(state.Faults) == 3
	})
	if err := s.version(); err != nil {
		t.Errorf("before the condition is true: %v", err)
	}
	if _, err := s.client.RunPodSandbox(t.Context(), &runtimeapi.RunPodSandboxRequest{Config: &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: "web", Namespace: "default", Uid: "1"},
	}}); err != nil {
		t.Fatal(err)
	}
	s.until("the first event has happened", func() bool { return status.Code(s.version()) == codes.ResourceExhausted })
	s.until("the log says that all has happened", func() bool { return strings.Contains(s.log.String(), "all events of a scenario have happened") })

	more := filepath.Join(s.dir, "more.yaml")
	if err := os.WriteFile(more, []byte(head+"- fault: runtime\n  runtime: {method: Status, hang: true}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	apply := &Apply{s.Client}
	if said := s.said(func(ctx context.Context, out io.Writer) error { return apply.Run(ctx, out, more) }); said != "the scenario has begun: 1 events\n" {
		t.Errorf("apply said %q", said)
	}
	s.until("the applied event has happened", func() bool {
		state, err := s.State(t.Context())
		return err == nil && len(state.Faults) == 5 && state.Faults[4].Text == "Status hangs"
	})
}

// A scenario with something that one real runtime cannot have is refused, with file, line and field.
func TestBadScenarios(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"- fault: crash\n": `s.yaml:5: events[0].fault: the runtime of a real node can only have the fault runtime, not "crash"`,
		"- fault: runtime\n  nodes: {count: 1}\n  runtime: {hang: true}\n":              "s.yaml:6: events[0].nodes: the runtime of a real node",
		"- fault: runtime\n  when: {nodesReady: 1}\n  runtime: {hang: true}\n":          "s.yaml:6: events[0].when.nodesReady: a runtime does not know",
		"- fault: runtime\n  runtime: {hang: true, method: PulImage}\n":                 `s.yaml:6: events[0].runtime.method: method "PulImage": CRI v1 has no such method`,
		"- fault: runtime\n  runtime: {error: x, code: Fine}\n":                         `s.yaml:6: events[0].runtime.code: "Fine" is no code`,
		"- fault: runtime\n  runtime: {hangs: true}\n":                                  "s.yaml:6: events[0].runtime.hangs: unknown field",
		"- fault: runtime\n  runtime: {hang: true}\n- fault: lease\n  after: 1h\n":      "s.yaml:7: events[1].fault: the runtime of a real node",
		"- fault: runtime\n  runtime: {method: PullImage, loseAnswer: 5}\n  for: 1h\n":  "s.yaml:6: events[0].runtime.loseAnswer",
		"- fault: runtime\n  runtime: {loseAnswer: true, hang: true, error: broken}\n":  "s.yaml:6: events[0].runtime: a fault of the runtime hangs, fails, loses answers or loses events",
		"- fault: runtime\n  runtime: {delay: 1s}\n  times: 2\n":                        "s.yaml:7: events[0].times: a fault that happens several times needs every",
		"- fault: runtime\n  runtime: {delay: 1s}\n  when: {podsRunning: -1}\n  for: x": "s.yaml:8: events[0].for",
		"- fault: runtime\n  runtime: {error: " + strings.Repeat("x", 4097) + "}\n":     "s.yaml:6: events[0].runtime.error: use at most 4096 bytes",
	} {
		if _, err := parseScenario("s.yaml", []byte(head+text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// The proxy refuses to start where it would replace the socket of another process, or call itself.
func TestRefusals(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	for want, change := range map[string]func(r *Run){
		"another process serves there":         func(r *Run) { r.Listen, r.Runtime = r.Runtime, "unix:///other.sock" },
		"the proxy needs a socket of its own":  func(r *Run) { r.Listen = r.Runtime },
		"needs a control socket of its own":    func(r *Run) { r.Listen, r.Socket = "unix://"+s.dir+"/other.sock", s.dir+"/./runtime.sock" },
		"a CRI proxy runs already":             func(r *Run) { r.Listen, r.Socket = "unix://"+s.dir+"/other.sock", s.run.Socket },
		"use unix:// and the absolute path":    func(r *Run) { r.Listen = "tcp://127.0.0.1:1" },
		"--runtime=":                           func(r *Run) { r.Runtime = "runtime.sock" },
		"--record: ":                           func(r *Run) { r.Record, r.RecordLimit = s.dir, 64 },
		"--record-limit=0: use 1 to 1048576":   func(r *Run) { r.Record, r.RecordLimit = s.dir+"/r", 0 },
		"--record-limit=9223372036854775807: ": func(r *Run) { r.Record, r.RecordLimit = s.dir+"/r", math.MaxInt64 },
		"read the scenario: ":                  func(r *Run) { r.Scenario = s.dir + "/none.yaml" },
		"needs a delay":                        func(r *Run) { r.Fault.For = time.Second },
	} {
		r := s.run
		r.Socket = s.dir + "/other-control.sock"
		change(&r)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		if err := r.Run(ctx); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
		cancel()
	}
	if err := s.version(); err != nil {
		t.Errorf("the first proxy does not work any more: %v", err)
	}
}

// The record has a line for each call, without anything of its content.
func TestRecord(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "calls.jsonl")
	s := start(t, func(s *station) { s.run.Record, s.run.RecordLimit = file, minRecord })
	if _, err := s.Inject(t.Context(), Injection{Fault: simulated.Fault{Method: "Status", Error: "broken"}}); err != nil {
		t.Fatal(err)
	}
	const secret = "only-the-runtime-may-know"
	if _, err := s.client.RunPodSandbox(t.Context(), &runtimeapi.RunPodSandboxRequest{Config: &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: secret, Namespace: "default", Uid: "1"},
	}}); err != nil {
		t.Fatal(err)
	}
	_, _ = s.client.Status(t.Context(), &runtimeapi.StatusRequest{})
	s.stop()
	data, err := os.ReadFile(file)
	if err != nil || bytes.Contains(data, []byte(secret)) {
		t.Errorf("the record: %v\n%s", err, data)
	}
	if st, err := os.Stat(file); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("mode %v: %v", st.Mode().Perm(), err)
	}
	var lines []recordLine
	for line := range bytes.Lines(data) {
		var l recordLine
		if err := json.Unmarshal(line, &l); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, l)
	}
	if len(lines) != 2 {
		t.Fatalf("%d lines: %s", len(lines), data)
	}
	if l := lines[0]; l.Method != "RunPodSandbox" || l.Code != "OK" || l.Request < int64(len(secret)) || l.Answer == 0 || l.Answers != 1 || l.Time.IsZero() || l.Fault != "" {
		t.Errorf("line %+v", l)
	}
	if l := lines[1]; l.Method != "Status" || l.Code != "Unknown" || l.Request != 0 || !strings.HasPrefix(l.Fault, "Status fails") {
		t.Errorf("line %+v", l)
	}
}

// A command that gets a wrong value in a flag names the flag.
func TestFaultsNameTheWrongFlag(t *testing.T) {
	t.Parallel()
	for want, fault := range map[string]simulated.Fault{
		"--chance: use a number from 0 to 1":  {Hang: true, Chance: 2},
		`--code: "no" is no code of an error`: {Error: "x", Code: "no"},
		"a fault of the runtime needs":        {},
	} {
		f := Fault{Client{Socket: filepath.Join(t.TempDir(), "none")}, Injection{Fault: fault}}
		if err := f.Run(t.Context(), nil); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%+v: %v, want %s", fault, err, want)
		}
	}
}
