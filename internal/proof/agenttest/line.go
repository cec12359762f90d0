package agenttest

import (
	"context"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/wherry-node/wherry/internal/core/decide"
)

// line has the connections of one agent: to its runtime, its API server and its disk. A line that is cut simulates an agent that was killed
// with SIGKILL, which a test cannot send to goroutines of its own process: the agent's goroutines may still run, but their calls have no
// effect.
type line struct {
	runtimeapi.RuntimeServiceClient
	runtimeapi.ImageServiceClient
	w *World

	ctx context.Context // context of the calls to the runtime; it ends when the line is cut, unless goesOn is true
	end context.CancelFunc

	mu     sync.Mutex
	dead   bool
	fuse   int  // number of actions until the line is cut; 0: it will not be cut
	after  bool // cut the line after the action, before the agent gets its result
	goesOn bool // actions in flight when the line is cut complete in the runtime
	lit    int  // number of calls of light; an action cuts the line only if light was not called again since the action began
	begin  func()

	conns []net.Conn // to the CSI driver

	known *learned // what the agent knows; guarded by Witness.mu
}

// dead returns the error that every call of a killed agent gets.
func dead() error { return status.Error(codes.Unavailable, "the agent that asks is dead") }

// newLine returns the connections of a new agent. onCut is called once, when the line is cut, that is, when the agent is killed.
func newLine(w *World, onCut func()) *line {
	l := &line{w: w, begin: onCut, known: newLearned()}
	l.ctx, l.end = context.WithCancel(context.Background())
	l.RuntimeServiceClient, l.ImageServiceClient = w.Runtime.Clients()
	return l
}

// cut cuts the line. If goesOn is true, calls in flight complete in the runtime; otherwise they are canceled.
func (l *line) cut(goesOn bool) {
	l.mu.Lock()
	was, conns := l.dead, l.conns
	l.dead, l.goesOn, l.conns = true, goesOn, nil
	l.mu.Unlock()
	if was {
		return
	}
	for _, c := range conns {
		_ = c.Close()
	}
	l.begin()
	if !goesOn {
		l.end()
	}
}

// light makes the n-th action from now cut the line, that is, kill the agent. An action is a call that changes something in the runtime.
// The comments of the fields after and goesOn explain the other parameters.
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

// burn counts an action (see light). before is true if the line has to be cut before the action, and after is true if it has to be cut
// after the action. lit is the present value of the field lit.
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

// stands reports whether light has not been called again since the field lit had this value.
func (l *line) stands(lit int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lit == lit
}

// bind returns the context of an action. It ends when l.ctx ends. It also ends when the caller's context ends, unless the agent was killed
// and its actions go on in the runtime (goesOn).
func (l *line) bind(ctx context.Context) (context.Context, func()) {
	limit, ok := ctx.Deadline() // a call without a deadline gets one, as in a real runtime
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

// act performs a call that changes something in the runtime (an action). The line may be cut before or after it.
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

// read performs a call to the runtime that changes nothing.
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

// tampered performs a call to the runtime, through the planted bug if there is one.
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

// RoundTrip sends a request of the agent to the API server, through the planted bug if there is one.
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

// Bug is a defect between the agent and its surroundings. A test plants it to show that the Witness, which observes the agent and checks
// rules, finds it.
type Bug struct {
	// Runtime replaces each call to the runtime; nil: none. The function do performs the call.
	Runtime func(ctx context.Context, w *World, in any, do func(context.Context, any) (any, error)) (any, error)
	// API replaces each request to the API server; nil: none. The function do performs the request.
	API func(w *World, r *http.Request, do func(*http.Request) (*http.Response, error)) (*http.Response, error)
	// Hears changes answers of the API server about pods before the agent reads them; nil: no answer is changed.
	Hears func(w *World, body io.ReadCloser) io.ReadCloser
	// Unmounted is called after the CSI driver has unmounted a volume from a directory; nil: nothing is called.
	Unmounted func(w *World, volume, target string)
	// KeepsCheckpoints makes the disk ignore that the agent removes a checkpoint.
	KeepsCheckpoints bool
}

// shiftTimes changes the times in a worker's memory as if the machine's clock had been moved by d after they were stored.
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
