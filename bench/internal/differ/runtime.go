package differ

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"path"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/wherry-node/wherry/internal/sim/simcri"
)

// Call is a request of an agent to its runtime that changes something, or that runs a command in a container.
type Call struct {
	At        time.Time
	Verb      string // name of the CRI method
	Container string // "": the call is for the sandbox
	Attempt   uint32
	Timeout   int64  // timeout of StopContainer, in seconds
	Command   string // for ExecSync: the probe or the hook that runs; "": another call
	Failed    bool
	Late      bool // the container of a StopContainer or preStop hook had already ended, so the call has no effect
}

// Runtime is the simulated container runtime of one agent. Its containers act as the script of their case (Play) says, and it records the
// requests for the pods of cases.
type Runtime struct {
	*simcri.Runtime
	Socket string
	server *grpc.Server
	ended  chan struct{}

	mu         sync.Mutex
	cases      map[string]*Case             // case of each pod, by pod name
	calls      map[string][]Call            // calls for each pod, by pod name
	lives      map[string][]string          // UIDs that the pod has had, in their order, by pod name
	configs    map[string]map[string]Config // configurations of each pod (Trace.Configs), by pod name
	services   map[string]*service          // server of the newest network probe on each address
	answering  sync.WaitGroup               // goroutines of the services
	sandboxes  map[string]owner             // pod of each sandbox, by sandbox ID
	containers map[string]owner             // pod and name of each container, by container ID
}

type owner struct {
	pod, name string
	attempt   uint32
	sandbox   string // ID of the container's sandbox; "" for a sandbox
}

// lifeAttempts is the number of attempts that are reserved for each UID of a pod. When the manifest of a static pod changes, the pod gets
// another UID but keeps its name, and its containers begin with attempt 0 again. Call.Attempt adds lifeAttempts for each earlier UID, so
// it stays unique.
const lifeAttempts = 1000

// life returns the first attempt number for a UID of the pod: lifeAttempts times the position of uid among the UIDs that the pod has had.
// The caller holds r.mu.
func (r *Runtime) life(pod, uid string) uint32 {
	if r.cases[pod] == nil {
		return 0
	}
	at := slices.Index(r.lives[pod], uid)
	if at < 0 {
		at, r.lives[pod] = len(r.lives[pod]), append(r.lives[pod], uid)
	}
	return uint32(at) * lifeAttempts
}

// Serve starts a runtime on a Unix socket. The pods get IP addresses from subnet, a part of the loopback network (see network.go).
func Serve(socket, subnet string) (*Runtime, error) {
	prefix, err := netip.ParsePrefix(subnet)
	if err != nil {
		return nil, err
	}
	r := &Runtime{Socket: socket, ended: make(chan struct{}), cases: map[string]*Case{}, calls: map[string][]Call{},
		lives: map[string][]string{}, configs: map[string]map[string]Config{}, sandboxes: map[string]owner{}, containers: map[string]owner{}, services: map[string]*service{}}
	r.Runtime = simcri.New(simcri.Config{PodCIDRs: []netip.Prefix{prefix}, Behave: r.behave, Exec: r.exec, WriteLogs: true, Pull: pull,
		Images: []string{"registry.k8s.io/pause:3.10"}})
	l, err := net.Listen("unix", socket)
	if err != nil {
		return nil, err
	}
	r.server = grpc.NewServer(grpc.UnaryInterceptor(r.record), grpc.MaxRecvMsgSize(16<<20), grpc.MaxSendMsgSize(16<<20))
	runtimeapi.RegisterRuntimeServiceServer(r.server, r.Runtime)
	runtimeapi.RegisterImageServiceServer(r.server, r.Runtime)
	go func() {
		defer close(r.ended)
		_ = r.server.Serve(l)
	}()
	return r, nil
}

// Close ends the runtime.
func (r *Runtime) Close() {
	r.server.Stop()
	r.Runtime.Close()
	<-r.ended
	r.answering.Wait()
}

// pull simulates an image pull: it succeeds for every image except noImage.
func pull(name string) simcri.Pull {
	p := simcri.DefaultPull(name)
	if name == noImage {
		p.Err = status.Errorf(codes.NotFound, "failed to resolve reference %q: not found", name)
	}
	return p
}

// Play makes the containers of a pod act as the case says.
func (r *Runtime) Play(pod string, c *Case) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cases[pod] = c
}

// Calls returns the recorded calls for a pod, in their order.
func (r *Runtime) Calls(pod string) []Call {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]Call(nil), r.calls[pod]...)
}

// Forget removes what is recorded about a pod.
func (r *Runtime) Forget(pod string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.cases, pod)
	delete(r.calls, pod)
	delete(r.configs, pod)
	delete(r.lives, pod)
}

// Configs returns the configurations of the first sandbox and of the first instance of each container of a pod.
func (r *Runtime) Configs(pod string) map[string]Config {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.configs[pod])
}

// keep records a configuration unless the pod already has one with that name. The caller holds r.mu.
func (r *Runtime) keep(pod, name string, config proto.Message) {
	if r.cases[pod] == nil || r.configs[pod][name] != nil {
		return
	}
	if r.configs[pod] == nil {
		r.configs[pod] = map[string]Config{}
	}
	r.configs[pod][name] = ConfigOf(config)
}

func (r *Runtime) playOf(info simcri.ContainerInfo) (Play, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.cases[info.PodName]
	if c == nil {
		return Play{}, false
	}
	return c.play(info.Name, info.Attempt), true
}

// slowEnd is how long a container with TermSlow continues to run after SIGTERM. It is not a whole number of seconds, so that it never
// coincides with the end of a timeout.
const slowEnd = 1500 * time.Millisecond

func (r *Runtime) behave(info simcri.ContainerInfo) (simcri.Behavior, bool) {
	p, ok := r.playOf(info)
	if !ok {
		return simcri.Behavior{}, false
	}
	b := simcri.Behavior{Exits: p.Exits, Serves: !p.Exits, RunFor: p.Runs, ExitCode: p.Code, Reason: p.Reason, StartError: p.StartError}
	switch p.Term {
	case TermEnds:
		b.StopCode = 143
	case TermSlow:
		b.StopAfter = slowEnd
	case TermIgnored:
		b.IgnoreStop = true
	case TermZero:
	}
	return b, true
}

// exec answers the commands of probes and hooks, such as {"probe", "liveness"} and {"hook", "preStop"}. ok is false for other commands.
func (r *Runtime) exec(info simcri.ContainerInfo, cmd []string) (stdout, stderr []byte, code int32, ok bool) {
	p, ok := r.playOf(info)
	if !ok || len(cmd) < 2 {
		return nil, nil, 0, false
	}
	if w, has := p.Fails[cmd[1]]; has && w.has(info.Running) {
		return []byte(cmd[1] + " fails\n"), nil, 1, true
	}
	return nil, nil, 0, true
}

// record intercepts all calls of the agent: it records a call, and then performs it.
func (r *Runtime) record(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	if _, ok := req.(*runtimeapi.UpdateRuntimeConfigRequest); ok {
		return &runtimeapi.UpdateRuntimeConfigResponse{}, nil // pods keep their loopback addresses, whatever the pod CIDR of the node is
	}
	call := Call{At: time.Now(), Verb: path.Base(info.FullMethod)}
	pod := r.podOf(req, &call)
	call.Late = pod != "" && r.late(ctx, req, &call)
	index := -1
	if pod != "" {
		r.mu.Lock()
		index = len(r.calls[pod])
		r.calls[pod] = append(r.calls[pod], call)
		slow := time.Duration(0)
		if c := r.cases[pod]; c != nil && call.Command != "" {
			slow = c.play(call.Container, call.Attempt%lifeAttempts).Slow[call.Command]
		}
		r.mu.Unlock()
		if slow > 0 { // the command takes this long
			select {
			case <-time.After(slow):
			case <-ctx.Done():
				return nil, status.FromContextError(ctx.Err()).Err()
			}
		}
	}
	resp, err := handle(ctx, req)
	if start, ok := req.(*runtimeapi.StartContainerRequest); ok && err == nil {
		err = r.listen(ctx, start.ContainerId)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		if index >= 0 && index < len(r.calls[pod]) {
			r.calls[pod][index].Failed = true
		}
		return resp, err
	}
	switch req := req.(type) {
	case *runtimeapi.RunPodSandboxRequest:
		r.sandboxes[resp.(*runtimeapi.RunPodSandboxResponse).PodSandboxId] = owner{pod: pod, attempt: req.Config.Metadata.Attempt}
		r.keep(pod, "sandbox", req.Config)
	case *runtimeapi.CreateContainerRequest:
		m := req.Config.Metadata
		r.containers[resp.(*runtimeapi.CreateContainerResponse).ContainerId] = owner{pod, m.Name, call.Attempt, req.PodSandboxId}
		r.keep(pod, m.Name, req.Config)
	case *runtimeapi.RemoveContainerRequest:
		delete(r.containers, req.ContainerId)
	case *runtimeapi.RemovePodSandboxRequest:
		delete(r.sandboxes, req.PodSandboxId)
	}
	return resp, nil
}

// late reports whether the request, a stop or a preStop hook, is for a container that has already exited.
func (r *Runtime) late(ctx context.Context, req any, call *Call) bool {
	id := ""
	switch req := req.(type) {
	case *runtimeapi.StopContainerRequest:
		id = req.ContainerId
	case *runtimeapi.ExecSyncRequest:
		if call.Command == "preStop" {
			id = req.ContainerId
		}
	}
	if id == "" {
		return false
	}
	resp, err := r.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id})
	return err == nil && resp.GetStatus().GetState() == runtimeapi.ContainerState_CONTAINER_EXITED
}

// podOf returns the name of the pod that a request is for, and sets the container, attempt, timeout and command of the call. It returns ""
// for requests that are not recorded.
func (r *Runtime) podOf(req any, call *Call) (pod string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	of := func(id string) string {
		o := r.containers[id]
		call.Container, call.Attempt = o.name, o.attempt
		return o.pod
	}
	switch req := req.(type) {
	case *runtimeapi.RunPodSandboxRequest:
		call.Attempt = req.Config.Metadata.Attempt
		return req.Config.Metadata.Name
	case *runtimeapi.CreateContainerRequest:
		call.Container = req.Config.Metadata.Name
		pod := r.sandboxes[req.PodSandboxId].pod
		call.Attempt = req.Config.Metadata.Attempt + r.life(pod, req.GetSandboxConfig().GetMetadata().GetUid())
		return pod
	case *runtimeapi.StartContainerRequest:
		return of(req.ContainerId)
	case *runtimeapi.StopContainerRequest:
		call.Timeout = req.Timeout
		return of(req.ContainerId)
	case *runtimeapi.RemoveContainerRequest:
		return of(req.ContainerId)
	case *runtimeapi.UpdateContainerResourcesRequest:
		return of(req.ContainerId)
	case *runtimeapi.ExecSyncRequest:
		if len(req.Cmd) > 1 {
			call.Command = req.Cmd[1]
		}
		return of(req.ContainerId)
	case *runtimeapi.StopPodSandboxRequest:
		return r.sandboxes[req.PodSandboxId].pod
	case *runtimeapi.RemovePodSandboxRequest:
		return r.sandboxes[req.PodSandboxId].pod
	}
	return ""
}

// LoseSandbox ends the newest sandbox of a pod and its containers without a request from the agent.
func (r *Runtime) LoseSandbox(ctx context.Context, pod string) error {
	list, err := r.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		return err
	}
	var newest *runtimeapi.PodSandbox
	for _, s := range list.Items {
		if s.Metadata.Name == pod && (newest == nil || s.CreatedAt > newest.CreatedAt) {
			newest = s
		}
	}
	if newest == nil {
		return nil // the pod has no sandbox yet
	}
	_, err = r.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: newest.Id})
	return err
}

// Left describes the sandboxes and containers of a pod that the runtime still has.
func (r *Runtime) Left(pod string) (left []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, o := range r.sandboxes {
		if o.pod == pod {
			left = append(left, fmt.Sprintf("sandbox %d", o.attempt))
		}
	}
	for _, o := range r.containers {
		if o.pod == pod {
			left = append(left, fmt.Sprintf("container %s %d", o.name, o.attempt))
		}
	}
	slices.Sort(left)
	return left
}
