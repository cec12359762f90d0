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
	Verb      string // the CRI method
	Container string // empty: the sandbox
	Attempt   uint32
	Timeout   int64  // timeout of StopContainer, in seconds
	Command   string // the second word of ExecSync's command
	Failed    bool
	Late      bool // a StopContainer or preStop hook for a container that had ended, which has no effect
}

// Runtime is the simulated runtime of one agent. It plays the cases that Play added, and records the calls for their pods.
type Runtime struct {
	*simcri.Runtime
	Socket string
	server *grpc.Server
	ended  chan struct{}

	mu         sync.Mutex
	cases      map[string]*Case             // by pod name
	calls      map[string][]Call            // by pod name
	lives      map[string][]string          // the UIDs in their order, by pod name
	configs    map[string]map[string]Config // by pod name; see Trace.Configs
	services   map[string]*service          // the newest servers of network probes, by address
	answering  sync.WaitGroup               // the goroutines of services
	sandboxes  map[string]owner             // by sandbox ID
	containers map[string]owner             // by container ID
}

type owner struct {
	pod, name string
	attempt   uint32
	sandbox   string // the ID of a container's sandbox
}

// lifeAttempts is the number of attempts that are reserved for each UID of a pod, because an edited static pod is another pod of
// the same name, whose containers begin with attempt 0 again.
const lifeAttempts = 1000

// life returns the position of the UID among the UIDs that a pod's name has had. The caller holds the lock.
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

// Serve starts a runtime on a socket. The pods get addresses of subnet, which is part of the loopback network: see network.go.
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

// pull succeeds for every image except one.
func pull(name string) simcri.Pull {
	p := simcri.DefaultPull(name)
	if name == noImage {
		p.Err = status.Errorf(codes.NotFound, "failed to resolve reference %q: not found", name)
	}
	return p
}

// Play makes a pod's containers do what a case says.
func (r *Runtime) Play(pod string, c *Case) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cases[pod] = c
}

// Calls returns the requests for a pod, in order.
func (r *Runtime) Calls(pod string) []Call {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]Call(nil), r.calls[pod]...)
}

// Forget removes a pod's records.
func (r *Runtime) Forget(pod string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.cases, pod)
	delete(r.calls, pod)
	delete(r.configs, pod)
	delete(r.lives, pod)
}

// Configs returns the configurations of the pod's first sandbox and of the first instance of each container.
func (r *Runtime) Configs(pod string) map[string]Config {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.configs[pod])
}

// keep records a configuration if it is the first of its name. The caller holds the lock.
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

// slowEnd is how long a container that ends slowly takes. It is no whole number of seconds, so that no timeout ends at the same
// time.
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

// exec answers the commands of probes and hooks: {"probe", "liveness"}, {"hook", "preStop"}.
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

// record records a call and the container that it is for, and then performs it.
func (r *Runtime) record(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	if _, ok := req.(*runtimeapi.UpdateRuntimeConfigRequest); ok {
		return &runtimeapi.UpdateRuntimeConfigResponse{}, nil // pods keep their loopback addresses, whatever the node's pod range is
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
		if slow > 0 { // the hook takes this long
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

// late reports whether a request asks a container to end that has ended.
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

// podOf returns the name of the pod that a request is for, and sets the fields of the call. It returns "" for a request that is not
// compared.
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

// LoseSandbox ends a pod's newest sandbox and what runs in it, without a request of the agent.
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
		return nil // there is no sandbox yet
	}
	_, err = r.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: newest.Id})
	return err
}

// Left describes what the runtime still has of a pod.
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
