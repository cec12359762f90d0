package agenttest

import (
	"context"
	"io"
	"net/http"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/wherry-node/wherry/internal/core/decide"
)

// line is the connection of one agent with its runtime, its API server and its disk. When the line is cut, the agent counts as
// dead from that instant: its goroutines may still run, but their calls have no effect. This simulates SIGKILL, which a test
// cannot send to goroutines of its own process.
type line struct {
	runtimeapi.RuntimeServiceClient
	runtimeapi.ImageServiceClient
	w *World

	ctx context.Context // the context of calls of the runtime; it ends when the line is cut, unless calls in flight may continue
	end context.CancelFunc

	mu     sync.Mutex
	dead   bool
	fuse   int  // number of actions from now until the line is cut; 0: it is not cut
	after  bool // cut after the action, before the agent gets its result
	goesOn bool // actions that are in flight when the line is cut complete in the runtime
	lit    int  // counts the calls of light: an action cuts the line only if light was not called again after the action began
	begin  func()

	known *learned // guarded by the lock of the Witness
}

// dead returns the error that a killed agent gets.
func dead() error { return status.Error(codes.Unavailable, "the agent that asks is dead") }

// newLine connects an agent. onCut is called once, at the cut.
func newLine(w *World, onCut func()) *line {
	l := &line{w: w, begin: onCut, known: newLearned()}
	l.ctx, l.end = context.WithCancel(context.Background())
	l.RuntimeServiceClient, l.ImageServiceClient = w.Runtime.Clients()
	return l
}

// cut cuts the line. If goesOn is set, calls in flight continue.
func (l *line) cut(goesOn bool) {
	l.mu.Lock()
	was := l.dead
	l.dead, l.goesOn = true, goesOn
	l.mu.Unlock()
	if was {
		return
	}
	l.begin()
	if !goesOn {
		l.end()
	}
}

// light arranges that the line is cut at the n-th action from now. line.after and line.goesOn explain the other parameters.
func (l *line) light(n int, after, goesOn bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fuse, l.after, l.goesOn = n, after, goesOn
	l.lit++
}

func (l *line) isCut() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dead
}

// burn counts an action. It reports whether the line has to be cut before or after this action, and returns the value of lit.
func (l *line) burn() (before, after bool, lit int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dead {
		return true, false, l.lit
	}
	if l.fuse > 0 {
		if l.fuse--; l.fuse == 0 {
			return !l.after, l.after, l.lit
		}
	}
	return false, false, l.lit
}

// stands reports whether light has not been called since lit had this value.
func (l *line) stands(lit int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lit == lit
}

// bind returns the context of an action. This context ends when the line's own context ends. It also ends when the caller's
// context ends, unless the agent was killed and its actions continue in the runtime (goesOn).
func (l *line) bind(ctx context.Context) (context.Context, func()) {
	limit, ok := ctx.Deadline() // a caller without a deadline gets one, because a runtime has timeouts of its own
	if !ok {
		limit = time.Now().Add(5 * time.Minute)
	}
	out, cancel := context.WithDeadline(context.WithoutCancel(ctx), limit)
	mayEnd := func() {
		l.mu.Lock()
		on := l.dead && l.goesOn
		l.mu.Unlock()
		if !on {
			cancel()
		}
	}
	caller, cut := context.AfterFunc(ctx, mayEnd), context.AfterFunc(l.ctx, cancel)
	return out, func() {
		caller()
		cut()
		cancel()
	}
}

// act performs an action on the runtime.
func act[In, Out any](ctx context.Context, l *line, in *In, do func(context.Context, *In, ...grpc.CallOption) (*Out, error)) (*Out, error) {
	before, after, lit := l.burn()
	if before {
		l.cut(l.goesOn)
		return nil, dead()
	}
	ctx, done := l.bind(ctx)
	defer done()
	called := l.w.Witness.calls(l.known, in)
	out, err := tampered(ctx, l, in, func(ctx context.Context, in *In, _ ...grpc.CallOption) (*Out, error) {
		done := l.w.Witness.asked(l.known, in)
		out, err := do(ctx, in)
		done()
		return out, err
	})
	called(err)
	if after && l.stands(lit) {
		l.cut(l.goesOn)
	}
	if l.isCut() {
		return nil, dead()
	}
	l.w.Witness.did(in, out, err)
	return out, err
}

// read performs a call of the runtime that only reads.
func read[In, Out any](ctx context.Context, l *line, in *In, do func(context.Context, *In, ...grpc.CallOption) (*Out, error)) (*Out, error) {
	if l.isCut() {
		return nil, dead()
	}
	began := time.Now()
	called := l.w.Witness.calls(l.known, in)
	out, err := tampered(ctx, l, in, do)
	called(err)
	if l.isCut() {
		return nil, dead()
	}
	l.w.Witness.answered(l.known, began, in, out, err)
	if err == nil {
		out = l.w.clock.answered(out).(*Out)
	}
	return out, err
}

// tampered performs a call of the runtime. If a bug is planted, it lets the bug handle the call.
func tampered[In, Out any](ctx context.Context, l *line, in *In, do func(context.Context, *In, ...grpc.CallOption) (*Out, error)) (*Out, error) {
	bug := l.w.cfg.Plant
	if bug == nil || bug.Runtime == nil {
		return do(ctx, in)
	}
	answer, err := bug.Runtime(ctx, l.w, in, func(ctx context.Context, in any) (any, error) { return do(ctx, in.(*In)) })
	out, _ := answer.(*Out)
	return out, err
}

func (l *line) RunPodSandbox(ctx context.Context, in *runtimeapi.RunPodSandboxRequest, _ ...grpc.CallOption) (*runtimeapi.RunPodSandboxResponse, error) {
	return act(ctx, l, in, l.RuntimeServiceClient.RunPodSandbox)
}

func (l *line) StopPodSandbox(ctx context.Context, in *runtimeapi.StopPodSandboxRequest, _ ...grpc.CallOption) (*runtimeapi.StopPodSandboxResponse, error) {
	return act(ctx, l, in, l.RuntimeServiceClient.StopPodSandbox)
}

func (l *line) RemovePodSandbox(ctx context.Context, in *runtimeapi.RemovePodSandboxRequest, _ ...grpc.CallOption) (*runtimeapi.RemovePodSandboxResponse, error) {
	return act(ctx, l, in, l.RuntimeServiceClient.RemovePodSandbox)
}

func (l *line) CreateContainer(ctx context.Context, in *runtimeapi.CreateContainerRequest, _ ...grpc.CallOption) (*runtimeapi.CreateContainerResponse, error) {
	return act(ctx, l, in, l.RuntimeServiceClient.CreateContainer)
}

func (l *line) StartContainer(ctx context.Context, in *runtimeapi.StartContainerRequest, _ ...grpc.CallOption) (*runtimeapi.StartContainerResponse, error) {
	return act(ctx, l, in, l.RuntimeServiceClient.StartContainer)
}

func (l *line) StopContainer(ctx context.Context, in *runtimeapi.StopContainerRequest, _ ...grpc.CallOption) (*runtimeapi.StopContainerResponse, error) {
	return act(ctx, l, in, l.RuntimeServiceClient.StopContainer)
}

func (l *line) RemoveContainer(ctx context.Context, in *runtimeapi.RemoveContainerRequest, _ ...grpc.CallOption) (*runtimeapi.RemoveContainerResponse, error) {
	return act(ctx, l, in, l.RuntimeServiceClient.RemoveContainer)
}

func (l *line) UpdateContainerResources(ctx context.Context, in *runtimeapi.UpdateContainerResourcesRequest, _ ...grpc.CallOption) (*runtimeapi.UpdateContainerResourcesResponse, error) {
	return act(ctx, l, in, l.RuntimeServiceClient.UpdateContainerResources)
}

func (l *line) UpdatePodSandboxResources(ctx context.Context, in *runtimeapi.UpdatePodSandboxResourcesRequest, _ ...grpc.CallOption) (*runtimeapi.UpdatePodSandboxResourcesResponse, error) {
	return act(ctx, l, in, l.RuntimeServiceClient.UpdatePodSandboxResources)
}

func (l *line) ExecSync(ctx context.Context, in *runtimeapi.ExecSyncRequest, _ ...grpc.CallOption) (*runtimeapi.ExecSyncResponse, error) {
	return act(ctx, l, in, l.RuntimeServiceClient.ExecSync)
}

func (l *line) PullImage(ctx context.Context, in *runtimeapi.PullImageRequest, _ ...grpc.CallOption) (*runtimeapi.PullImageResponse, error) {
	return act(ctx, l, in, l.ImageServiceClient.PullImage)
}

func (l *line) PodSandboxStatus(ctx context.Context, in *runtimeapi.PodSandboxStatusRequest, _ ...grpc.CallOption) (*runtimeapi.PodSandboxStatusResponse, error) {
	return read(ctx, l, in, l.RuntimeServiceClient.PodSandboxStatus)
}

func (l *line) ContainerStatus(ctx context.Context, in *runtimeapi.ContainerStatusRequest, _ ...grpc.CallOption) (*runtimeapi.ContainerStatusResponse, error) {
	return read(ctx, l, in, l.RuntimeServiceClient.ContainerStatus)
}

func (l *line) ListContainers(ctx context.Context, in *runtimeapi.ListContainersRequest, _ ...grpc.CallOption) (*runtimeapi.ListContainersResponse, error) {
	return read(ctx, l, in, l.RuntimeServiceClient.ListContainers)
}

func (l *line) ListPodSandbox(ctx context.Context, in *runtimeapi.ListPodSandboxRequest, _ ...grpc.CallOption) (*runtimeapi.ListPodSandboxResponse, error) {
	return read(ctx, l, in, l.RuntimeServiceClient.ListPodSandbox)
}

// ImageStatus returns the status of an image.
func (l *line) ImageStatus(ctx context.Context, in *runtimeapi.ImageStatusRequest, _ ...grpc.CallOption) (*runtimeapi.ImageStatusResponse, error) {
	return read(ctx, l, in, l.ImageServiceClient.ImageStatus)
}

// RoundTrip sends the agent's requests to the API server.
func (l *line) RoundTrip(r *http.Request) (*http.Response, error) {
	if l.isCut() {
		return nil, dead()
	}
	r, err := l.w.clock.sent(r)
	if err != nil {
		return nil, err
	}
	var resp *http.Response
	l.w.Witness.sends(r)
	if bug := l.w.cfg.Plant; bug != nil && bug.API != nil {
		resp, err = bug.API(l.w, r, l.w.Kube.RoundTrip)
	} else {
		resp, err = l.w.Kube.RoundTrip(r)
	}
	if err == nil && l.isCut() {
		_ = resp.Body.Close()
		return nil, dead()
	}
	if err == nil && (l.w.cfg.ClockMoves || l.w.clock.moved()) {
		resp.Body = l.w.clock.received(resp.Body)
	}
	if err == nil {
		l.w.Witness.services(l.known, r, resp)
		l.w.Witness.hear(l.known, r, resp)
		if bug := l.w.cfg.Plant; bug != nil && bug.Hears != nil && listsPods(r) {
			resp.Body = bug.Hears(l.w, resp.Body)
		}
	}
	return resp, err
}

// Bug is a defect that a test plants between the agent and the world in order to show that the Witness finds it.
type Bug struct {
	// Runtime is called in place of a call of the runtime. do performs the call.
	Runtime func(ctx context.Context, w *World, in any, do func(context.Context, any) (any, error)) (any, error)
	// API is called in place of a request to the API server. do performs the request.
	API func(w *World, r *http.Request, do func(*http.Request) (*http.Response, error)) (*http.Response, error)
	// Hears changes the API server's answers about pods before the agent receives them.
	Hears func(w *World, body io.ReadCloser) io.ReadCloser
	// KeepsCheckpoints makes the disk silently keep removed checkpoints.
	KeepsCheckpoints bool
}

// shiftTimes changes the times in a memory as if the machine's clock had been moved by d since they were stored.
func shiftTimes(m *decide.Memory, d time.Duration) {
	for _, t := range []*time.Time{&m.StopBegan, &m.StartTime, &m.Resize.PendingSince, &m.Resize.Since} {
		if !t.IsZero() {
			*t = t.Add(-d)
		}
	}
	if m.Stop != nil {
		m.Stop.Since = m.Stop.Since.Add(-d)
	}
	for i := range m.Containers {
		if c := &m.Containers[i]; !c.CrashUntil.IsZero() {
			c.CrashUntil = c.CrashUntil.Add(-d)
		}
	}
}
