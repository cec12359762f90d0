package simcri

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/wherry-node/wherry/internal/core/due"
	"github.com/wherry-node/wherry/internal/core/inorder"
	"github.com/wherry-node/wherry/internal/sim/simrules"
)

// container is one attempt of a container. It keeps only the parts of its configuration that are read later.
//
//	created ──► running ──► exited, or created ──► exited if the start fails; removed from any of them
type container struct {
	due.Place // its position in the heap, which is ordered by the time of the next output or exit

	id, name    string
	sb          *sandbox
	meta        *runtimeapi.ContainerMetadata
	spec        *runtimeapi.ImageSpec
	image       *image
	do          *simrules.Do // what a rule says that it does; nil: no rule matches
	labels      pairs
	annotations pairs
	mounts      []*runtimeapi.Mount
	env         []*runtimeapi.KeyValue // only with Config.KeepEnv
	resources   *runtimeapi.LinuxContainerResources
	user        *runtimeapi.LinuxContainerUser
	logPath     string
	stopSignal  runtimeapi.Signal
	stdin       bool
	files       *files // what was copied into it; nil: nothing

	state                      runtimeapi.ContainerState
	created, started, finished int64 // nanoseconds of Unix time; 0: not yet
	exitCode                   int32
	reason, message            string

	prog    *program // what its command does; nil: it is a server, or a rule or an annotation decides
	writes  *program // has the output: of prog, or of a rule; nil: it writes nothing, or does not run
	next    cursor   // the next output of writes
	endsAt  time.Time
	ending  exit
	stopped bool // it has received a stop signal
	noRoom  bool // it ends at endsAt because its memory then exceeds its limit
	waiters []chan struct{}
	cpu     spent
}

// exit describes how a process ends.
type exit struct {
	code            int32
	reason, message string
}

// CreateContainer creates a container in a sandbox that is ready.
func (r *Runtime) CreateContainer(ctx context.Context, req *runtimeapi.CreateContainerRequest) (*runtimeapi.CreateContainerResponse, error) {
	cfg := req.GetConfig()
	meta, pod := cfg.GetMetadata(), req.GetSandboxConfig().GetMetadata()
	r.mu.Lock()
	s := find(r.sandboxes, req.PodSandboxId)
	var err error
	switch {
	case s == nil:
		err = errNotFound("sandbox", req.PodSandboxId)
	case s.stopped:
		err = status.Errorf(codes.Unknown, "sandbox container %q is not running", s.id)
	case meta == nil:
		err = errInvalid("container config must include metadata")
	case pod == nil:
		err = errInvalid("pod sandbox config must include metadata")
	}
	if err != nil {
		r.mu.Unlock()
		return nil, err
	}
	name := fmt.Sprintf("%s_%s_%s_%s_%d", meta.Name, pod.Name, pod.Namespace, pod.Uid, meta.Attempt)
	id := r.newID(name, time.Now())
	err = r.reserve(name, id)
	r.mu.Unlock()
	if err != nil {
		return nil, err
	}
	f, err := r.enter(ctx, "CreateContainer", func() target { return target{pod.Name, meta.Name} })
	if err = r.create(name, f, err, func() error { return r.makeContainer(id, name, s, cfg) }); err != nil {
		return nil, err
	}
	return leave(ctx, f, &runtimeapi.CreateContainerResponse{ContainerId: id})
}

// makeContainer adds the container. The caller holds the lock.
func (r *Runtime) makeContainer(id, name string, s *sandbox, cfg *runtimeapi.ContainerConfig) error {
	if r.sandboxes[s.id] == nil || s.stopped {
		return status.Errorf(codes.Unknown, "sandbox container %q is not running", s.id)
	}
	img := r.resolve(cfg.GetImage().GetImage())
	if img == nil {
		return status.Errorf(codes.NotFound, "failed to resolve image %q: not found", cfg.GetImage().GetImage())
	}
	for _, m := range cfg.Mounts {
		if err := r.checkImageMount(m); err != nil {
			return err
		}
	}
	var err error
	c := &container{
		id: id, name: name, sb: s, meta: cfg.Metadata, spec: same(&r.last.spec, cfg.Image), image: img, labels: pairsOf(cfg.Labels, &r.last.containerLabels),
		annotations: pairsOf(cfg.Annotations, &r.last.containerAnnotations), mounts: cfg.Mounts, resources: same(&r.last.resources, cfg.GetLinux().GetResources()),
		stopSignal: cfg.StopSignal, stdin: cfg.Stdin, created: time.Now().UnixNano(),
		user: r.userOf(cfg.GetLinux().GetSecurityContext(), img),
	}
	if r.cfg.KeepEnv {
		c.env = cfg.Envs
	}
	if cfg.LogPath != "" && s.logDir != "" {
		c.logPath = s.logDir + "/" + cfg.LogPath
	}
	c.do, err = r.ruleOf(c)
	if err := errors.Join(err, c.checkNotes()); err != nil {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	c.prog = compileMain(cfg, s.hostname)
	r.containers[id] = c
	s.containers = append(s.containers, c)
	r.emit(s, id, runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT)
	return nil
}

// checkImageMount rejects an invalid mount of an image. The caller holds the lock.
func (r *Runtime) checkImageMount(m *runtimeapi.Mount) error {
	switch {
	case m.GetImage() == nil:
	case m.HostPath != "":
		return status.Errorf(codes.Unknown, "hostpath must be empty while mount image: %v", m)
	case !m.Readonly:
		return status.Errorf(codes.Unknown, "readonly must be true while mount image: %v", m)
	case r.resolve(m.Image.Image) == nil:
		return status.Errorf(codes.NotFound, "failed to resolve image %q: not found", m.Image.Image)
	}
	return nil
}

// userOf returns the user of a container: that of the security context, or else the image's.
func (r *Runtime) userOf(sc *runtimeapi.LinuxContainerSecurityContext, img *image) *runtimeapi.LinuxContainerUser {
	u := &runtimeapi.LinuxContainerUser{SupplementalGroups: sc.GetSupplementalGroups()}
	switch {
	case sc.GetRunAsUser() != nil:
		u.Uid = sc.RunAsUser.Value
	case img.uid != nil:
		u.Uid = *img.uid
	}
	if sc.GetRunAsGroup() != nil {
		u.Gid = sc.RunAsGroup.Value
	}
	if u.Uid == 0 && u.Gid == 0 && len(u.SupplementalGroups) == 0 {
		return nil
	}
	return u
}

// StartContainer starts a created container.
func (r *Runtime) StartContainer(ctx context.Context, req *runtimeapi.StartContainerRequest) (*runtimeapi.StartContainerResponse, error) {
	f, err := r.enter(ctx, "StartContainer", r.ofContainer(req.ContainerId))
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	wait := r.startWait(req.ContainerId, time.Now())
	r.mu.Unlock()
	if err := pause(ctx, wait); err != nil {
		return nil, err
	}
	r.mu.Lock()
	err = r.start(req.ContainerId)
	r.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return leave(ctx, f, &runtimeapi.StartContainerResponse{})
}

// start starts a container. The caller holds the lock.
func (r *Runtime) start(id string) error {
	c := find(r.containers, id)
	switch {
	case c == nil:
		return errNotFound("container", id)
	case c.state != runtimeapi.ContainerState_CONTAINER_CREATED:
		return status.Errorf(codes.Unknown, "failed to set starting state for container %q: container is in %s state", c.id, c.state)
	case c.sb.stopped:
		return status.Errorf(codes.Unknown, "sandbox container %q is not running", c.sb.id)
	}
	b := r.behavior(c)
	now := time.Now()
	if b.StartError != "" {
		c.started, c.finished, c.state = 0, now.UnixNano(), runtimeapi.ContainerState_CONTAINER_EXITED
		c.exitCode, c.reason, c.message = 128, "StartError", "failed to create containerd task: "+b.StartError
		r.emit(c.sb, c.id, runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT)
		return status.Error(codes.Unknown, c.message)
	}
	c.state, c.started = runtimeapi.ContainerState_CONTAINER_RUNNING, now.UnixNano()
	r.writeLog(c, now, nil, false)
	r.emit(c.sb, c.id, runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT)
	c.writes = c.output()
	switch {
	case b.Exits, b.Serves: // so the command does not matter
		c.prog = nil
	case c.writes == nil:
		c.writes = c.prog
	}
	c.endsAt, c.ending = c.ownEnd(&b)
	if b.RunFor == 0 && b.Exits {
		r.exit(c, c.ending, now)
		return nil
	}
	r.limitMemory(c)
	r.plan(c)
	return nil
}

// plan puts c in the heap at the time of its next change. The caller holds the lock.
func (r *Runtime) plan(c *container) {
	next := c.endsAt
	if at := r.nextOutput(c); !at.IsZero() && (next.IsZero() || at.Before(next)) {
		next = at
	}
	r.at(c, next)
}

// nextOutput returns when c writes next; zero: it writes nothing, or nothing reads its output.
func (r *Runtime) nextOutput(c *container) time.Time {
	if !r.cfg.WriteLogs || c.writes == nil {
		return time.Time{}
	}
	at, more := c.writes.due(c.next)
	if !more {
		return time.Time{}
	}
	return time.Unix(0, c.started).Add(at)
}

// advance performs the change of c that is due: output, or its exit. The caller holds the lock.
func (r *Runtime) advance(c *container, now time.Time) {
	if c.state != runtimeapi.ContainerState_CONTAINER_RUNNING {
		return
	}
	for at := r.nextOutput(c); !at.IsZero() && !at.After(now); at = r.nextOutput(c) {
		s := &c.writes.steps[c.next.step]
		r.writeLog(c, now, s.out, s.stderr)
		c.next = c.writes.following(c.next)
	}
	if !c.endsAt.IsZero() && !c.endsAt.After(now) {
		r.exit(c, c.ending, now)
		return
	}
	r.plan(c)
}

// exit ends the process of a container, if it runs. The caller holds the lock.
func (r *Runtime) exit(c *container, how exit, now time.Time) {
	if c.state != runtimeapi.ContainerState_CONTAINER_RUNNING {
		return
	}
	r.at(c, time.Time{})
	c.state, c.finished = runtimeapi.ContainerState_CONTAINER_EXITED, now.UnixNano()
	c.exitCode, c.reason, c.message = how.code, how.reason, how.message
	if c.reason == "" {
		c.reason = "Completed"
		if c.exitCode != 0 {
			c.reason = "Error"
		}
	}
	c.prog, c.writes, c.files = nil, nil, nil
	for _, w := range c.waiters {
		close(w)
	}
	c.waiters = nil
	r.cfg.Log.Debug("container exited", "pod", c.sb.meta.Name, "container", c.meta.Name, "code", c.exitCode, "reason", c.reason)
	r.emit(c.sb, c.id, runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT)
}

// Running returns the running containers, sorted by namespace, pod and name.
func (r *Runtime) Running() []ContainerInfo {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []ContainerInfo
	for _, c := range r.containers {
		if c.state == runtimeapi.ContainerState_CONTAINER_RUNNING {
			out = append(out, r.info(c))
		}
	}
	inorder.Sort(out, func(a, b ContainerInfo) int {
		return cmp.Or(strings.Compare(a.PodNamespace, b.PodNamespace), strings.Compare(a.PodName, b.PodName), strings.Compare(a.Name, b.Name))
	})
	return out
}

// Exit ends the process of a running container from outside, as a crash or the OOM killer would.
func (r *Runtime) Exit(containerID string, code int32, reason, message string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := find(r.containers, containerID); c != nil {
		r.exit(c, exit{code, reason, message}, time.Now())
	}
}

// StopContainer sends a stop signal and kills the container after the timeout. It returns when the container has ended, and is
// idempotent. Repeated calls send no second signal. Each call has its own timeout.
func (r *Runtime) StopContainer(ctx context.Context, req *runtimeapi.StopContainerRequest) (*runtimeapi.StopContainerResponse, error) {
	f, err := r.enter(ctx, "StopContainer", r.ofContainer(req.ContainerId))
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	c := find(r.containers, req.ContainerId)
	if c == nil || c.state != runtimeapi.ContainerState_CONTAINER_RUNNING {
		r.mu.Unlock()
		return leave(ctx, f, &runtimeapi.StopContainerResponse{})
	}
	if req.Timeout <= 0 {
		r.exit(c, killed, time.Now())
		r.mu.Unlock()
		return leave(ctx, f, &runtimeapi.StopContainerResponse{})
	}
	r.signal(c, time.Now())
	ended, stop := r.endOf(c)
	r.mu.Unlock()
	defer stop()

	grace := time.NewTimer(seconds(req.Timeout))
	defer grace.Stop()
	select {
	case <-ended:
	case <-ctx.Done():
		return nil, status.FromContextError(ctx.Err()).Err()
	case <-grace.C:
		r.mu.Lock()
		r.exit(c, killed, time.Now())
		r.mu.Unlock()
	}
	return leave(ctx, f, &runtimeapi.StopContainerResponse{})
}

// endOf returns a channel that is closed when the container no longer runs. stop ends the wait. The caller holds the lock when it calls
// endOf, but not when it calls stop.
func (r *Runtime) endOf(c *container) (ended <-chan struct{}, stop func()) {
	w := make(chan struct{})
	if c == nil || c.state != runtimeapi.ContainerState_CONTAINER_RUNNING {
		close(w)
		return w, func() {}
	}
	c.waiters = append(c.waiters, w)
	return w, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		c.waiters = slices.DeleteFunc(c.waiters, func(o chan struct{}) bool { return o == w })
	}
}

// ended finds a container by its ID and calls endOf. The caller must not hold the lock.
func (r *Runtime) ended(id string) (ended <-chan struct{}, stop func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.endOf(find(r.containers, id))
}

// signal sends the stop signal. The caller holds the lock.
func (r *Runtime) signal(c *container, now time.Time) {
	if c.stopped {
		return
	}
	c.stopped = true
	b := r.behavior(c)
	if b.IgnoreStop || (b.StopAfter == 0 && c.prog != nil && c.prog.ignoresStop && !b.Serves) {
		return
	}
	if at := now.Add(b.StopAfter); c.endsAt.IsZero() || at.Before(c.endsAt) {
		c.endsAt, c.ending = at, exit{code: b.StopCode}
	}
	if b.StopAfter == 0 {
		r.exit(c, c.ending, now)
		return
	}
	r.plan(c)
}

// RemoveContainer removes a container, by force if it runs. It is idempotent.
func (r *Runtime) RemoveContainer(ctx context.Context, req *runtimeapi.RemoveContainerRequest) (*runtimeapi.RemoveContainerResponse, error) {
	f, err := r.enter(ctx, "RemoveContainer", r.ofContainer(req.ContainerId))
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	if c := find(r.containers, req.ContainerId); c != nil {
		r.exit(c, killed, time.Now())
		r.removeContainer(c)
	}
	r.mu.Unlock()
	return leave(ctx, f, &runtimeapi.RemoveContainerResponse{})
}

// removeContainer removes a container. The caller holds the lock.
func (r *Runtime) removeContainer(c *container) {
	r.at(c, time.Time{})
	now := time.Now()
	c.sb.removed += c.cpuTime(now)
	r.deleteLater(c.layer(now), now)
	delete(r.containers, c.id)
	delete(r.names, c.name)
	c.sb.containers = slices.DeleteFunc(c.sb.containers, func(o *container) bool { return o == c })
	r.emit(c.sb, c.id, runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT)
}

// ofContainer returns a function that returns the names of a container and its pod, with which faults are selected. The function is
// called with the lock held.
func (r *Runtime) ofContainer(id string) func() target {
	return func() target {
		if c := find(r.containers, id); c != nil {
			return target{c.sb.meta.Name, c.meta.Name}
		}
		return target{}
	}
}
