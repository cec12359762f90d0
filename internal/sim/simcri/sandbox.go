package simcri

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// sandbox is a pod sandbox. It keeps only the parts of its configuration that are read later.
type sandbox struct {
	id, name    string
	meta        *runtimeapi.PodSandboxMetadata
	labels      pairs
	annotations pairs
	namespaces  *runtimeapi.NamespaceOption
	hostname    string
	logDir      string
	handler     string
	ips         []netip.Addr
	created     int64
	stopped     bool
	containers  []*container
	removed     uint64 // CPU time of containers that are removed, in nanoseconds
}

func (s *sandbox) state() runtimeapi.PodSandboxState {
	if s.stopped {
		return runtimeapi.PodSandboxState_SANDBOX_NOTREADY
	}
	return runtimeapi.PodSandboxState_SANDBOX_READY
}

func (s *sandbox) hostNetwork() bool {
	return s.namespaces.GetNetwork() == runtimeapi.NamespaceMode_NODE
}

// RunPodSandbox creates a sandbox that is ready.
func (r *Runtime) RunPodSandbox(ctx context.Context, req *runtimeapi.RunPodSandboxRequest) (*runtimeapi.RunPodSandboxResponse, error) {
	cfg := req.GetConfig()
	meta := cfg.GetMetadata()
	if meta == nil {
		return nil, errInvalid("sandbox config must include metadata")
	}
	name := fmt.Sprintf("%s_%s_%s_%d", meta.Name, meta.Namespace, meta.Uid, meta.Attempt)
	r.mu.Lock()
	id := r.newID(name, time.Now())
	if err := r.reserve(name, id); err != nil {
		r.mu.Unlock()
		return nil, err
	}
	r.mu.Unlock()
	f, err := r.enter(ctx, "RunPodSandbox", func() target { return target{pod: meta.Name} })
	if err = r.create(name, f, err, func() error { return r.makeSandbox(id, name, cfg, req.RuntimeHandler) }); err != nil {
		return nil, err
	}
	return leave(ctx, f, &runtimeapi.RunPodSandboxResponse{PodSandboxId: id})
}

// create calls do, which creates the object for which name is reserved. A non-nil err means that the creation has failed already; then
// create does not call do. After a failure it releases the name, but the fault KeepName keeps the name reserved for a time.
func (r *Runtime) create(name string, f *Fault, err error, do func() error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil && f != nil && f.Effect == KeepName {
		r.releaseLater(name, f.Delay)
		return f.Err
	}
	if err == nil {
		err = do()
	}
	if err != nil {
		delete(r.names, name)
	}
	return err
}

// checkUserns rejects mappings that no runtime accepts.
func checkUserns(u *runtimeapi.UserNamespace) error {
	if u == nil {
		return nil
	}
	switch users, groups := len(u.Uids), len(u.Gids); u.Mode {
	case runtimeapi.NamespaceMode_NODE:
		if users > 0 || groups > 0 {
			return status.Errorf(codes.Unknown, "can't use user namespace mode %q with mappings", u.Mode)
		}
	case runtimeapi.NamespaceMode_POD:
		if users != 1 || groups != 1 || u.Uids[0].GetLength() < 1 || u.Gids[0].GetLength() < 1 {
			return status.Errorf(codes.Unknown, "user namespace mode %q takes one mapping of users and one of groups", u.Mode)
		}
	case runtimeapi.NamespaceMode_CONTAINER, runtimeapi.NamespaceMode_TARGET:
		return status.Errorf(codes.Unknown, "unsupported user namespace mode: %q", u.Mode)
	}
	return nil
}

// makeSandbox adds the sandbox. The caller holds the lock.
func (r *Runtime) makeSandbox(id, name string, cfg *runtimeapi.PodSandboxConfig, handler string) error {
	if handler != "" && !slices.Contains(r.cfg.RuntimeHandlers, handler) {
		return status.Errorf(codes.Unknown, "unable to get OCI runtime for sandbox %q: no runtime for %q is configured", id, handler)
	}
	namespaces := cfg.GetLinux().GetSecurityContext().GetNamespaceOptions()
	if err := checkUserns(namespaces.GetUsernsOptions()); err != nil {
		return err
	}
	s := &sandbox{
		id: id, name: name, meta: cfg.Metadata, labels: pairsOf(cfg.Labels, &r.last.sandboxLabels), annotations: pairsOf(cfg.Annotations, &r.last.sandboxAnnotations),
		namespaces: same(&r.last.namespaces, namespaces), hostname: cfg.Hostname, logDir: cfg.LogDirectory,
		handler: handler, created: time.Now().UnixNano(),
	}
	if s.hostNetwork() && cfg.Hostname != "" {
		return status.Errorf(codes.Unknown, "failed to start sandbox %q: unable to set hostname without a private UTS namespace", id)
	}
	if !s.hostNetwork() {
		if c := r.conditions[runtimeapi.NetworkReady]; !c.Status {
			return status.Errorf(codes.Unknown, "failed to setup network for sandbox %q: %s", id, c.Message)
		}
		ips, err := r.allocate()
		if err != nil {
			return status.Errorf(codes.Unknown, "failed to setup network for sandbox %q: %v", id, err)
		}
		s.ips = ips
	}
	r.sandboxes[id] = s
	r.emit(s, id, runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT)
	r.emit(s, id, runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT)
	return nil
}

// releaseLater frees a name after a failed creation. The caller holds the lock.
func (r *Runtime) releaseLater(name string, after time.Duration) {
	if after < 0 {
		return
	}
	time.AfterFunc(after, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.names, name)
	})
}

// StopPodSandbox kills the containers of a sandbox and removes its network. It is idempotent.
func (r *Runtime) StopPodSandbox(ctx context.Context, req *runtimeapi.StopPodSandboxRequest) (*runtimeapi.StopPodSandboxResponse, error) {
	f, err := r.enter(ctx, "StopPodSandbox", r.ofSandbox(req.PodSandboxId))
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	if s := find(r.sandboxes, req.PodSandboxId); s != nil {
		r.stopSandbox(s, killed)
	}
	r.mu.Unlock()
	return leave(ctx, f, &runtimeapi.StopPodSandboxResponse{})
}

// killed is the exit of a process that was ended by SIGKILL.
var killed = exit{code: 137}

// stopSandbox ends all containers of a sandbox at once. The caller holds the lock.
func (r *Runtime) stopSandbox(s *sandbox, how exit) {
	now := time.Now()
	for _, c := range s.containers {
		r.exit(c, how, now)
	}
	if s.stopped {
		return
	}
	s.stopped = true
	for _, ip := range s.ips {
		delete(r.used, ip)
	}
	s.ips = nil
	r.emit(s, s.id, runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT)
}

// RemovePodSandbox removes a sandbox with all its containers, even running ones. It is idempotent.
func (r *Runtime) RemovePodSandbox(ctx context.Context, req *runtimeapi.RemovePodSandboxRequest) (*runtimeapi.RemovePodSandboxResponse, error) {
	f, err := r.enter(ctx, "RemovePodSandbox", r.ofSandbox(req.PodSandboxId))
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	if s := find(r.sandboxes, req.PodSandboxId); s != nil {
		r.stopSandbox(s, killed)
		for len(s.containers) > 0 {
			r.removeContainer(s.containers[0])
		}
		delete(r.sandboxes, s.id)
		delete(r.names, s.name)
		r.emit(s, s.id, runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT)
	}
	r.mu.Unlock()
	return leave(ctx, f, &runtimeapi.RemovePodSandboxResponse{})
}

// KillSandbox ends a sandbox like a crash of its pause process or a reboot of the machine.
func (r *Runtime) KillSandbox(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s := find(r.sandboxes, id); s != nil {
		r.stopSandbox(s, exit{code: 255, reason: "Unknown"})
	}
}

// ofSandbox returns a function that returns the name of a sandbox's pod, by which faults are selected. The function is called with the lock
// held.
func (r *Runtime) ofSandbox(id string) func() target {
	return func() target {
		if s := find(r.sandboxes, id); s != nil {
			return target{pod: s.meta.Name}
		}
		return target{}
	}
}

// addresses is a range whose addresses are used in turn.
type addresses struct {
	prefix netip.Prefix
	next   netip.Addr
}

func ranges(prefixes []netip.Prefix) []addresses {
	var out []addresses
	for _, p := range prefixes {
		p = p.Masked()
		out = append(out, addresses{prefix: p, next: p.Addr()})
	}
	return out
}

// allocate returns one address of each range. It skips the first two of a range (network and gateway) and the last of an IPv4
// range (broadcast). The caller holds the lock.
func (r *Runtime) allocate() ([]netip.Addr, error) {
	var out []netip.Addr
	for i := range r.cidrs {
		a := &r.cidrs[i]
		first := a.prefix.Addr().Next().Next()
		found := false
		for tries := 0; tries <= len(r.used)+2; tries++ {
			ip := a.next.Next()
			if !a.prefix.Contains(ip) || ip.Less(first) || (ip.Is4() && !a.prefix.Contains(ip.Next())) {
				ip = first
			}
			if !a.prefix.Contains(ip) {
				break
			}
			a.next = ip
			if !r.used[ip] {
				r.used[ip], found = true, true
				out = append(out, ip)
				break
			}
		}
		if !found {
			for _, ip := range out {
				delete(r.used, ip)
			}
			return nil, fmt.Errorf("no IP addresses available in range set: %s", a.prefix)
		}
	}
	return out, nil
}
