package cri

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
	"unique"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/wherry-node/wherry/internal/core/crispec"
	"github.com/wherry-node/wherry/internal/core/inorder"
	"github.com/wherry-node/wherry/internal/core/pod"
)

// List returns every pod that the runtime holds, with only its identity, IDs, attempts and states. The field Began of each pod is the time
// when the listing began. List leaves out objects whose labels do not name a valid pod, because they belong to another program.
func (c *Client) List(ctx context.Context) ([]pod.Observed, error) {
	return c.list(ctx, nil)
}

func (c *Client) list(ctx context.Context, selector map[string]string) ([]pod.Observed, error) {
	ctx, cancel := c.deadline(ctx)
	defer cancel()
	began := time.Now()
	sandboxes, err := c.cfg.Runtime.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{
		Filter: &runtimeapi.PodSandboxFilter{LabelSelector: selector}})
	if err != nil {
		return nil, fmt.Errorf("list pod sandboxes: %w", err)
	}
	containers, err := c.cfg.Runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{
		Filter: &runtimeapi.ContainerFilter{LabelSelector: selector}})
	if err != nil {
		return nil, fmt.Errorf("list containers: %w", err)
	}
	return shallow(began, sandboxes.GetItems(), containers.GetContainers()), nil
}

func shallow(began time.Time, sandboxes []*runtimeapi.PodSandbox, containers []*runtimeapi.Container) []pod.Observed {
	index := make(map[types.UID]int, len(sandboxes))
	seen := make(map[string]bool, len(sandboxes)+len(containers))
	fresh := func(id string) bool { // an ID that is listed twice counts once; its container would otherwise be stopped or started twice
		ok := id != "" && !seen[id]
		seen[id] = true
		return ok
	}
	out := make([]pod.Observed, 0, len(sandboxes))
	of := func(ref pod.Ref) *pod.Observed {
		i, ok := index[ref.UID]
		if !ok {
			i = len(out)
			index[ref.UID] = i
			out = append(out, pod.Observed{Ref: ref, Began: began})
		}
		return &out[i]
	}
	for _, s := range sandboxes {
		m := s.GetMetadata()
		ref := pod.Ref{Namespace: m.GetNamespace(), Name: m.GetName(), UID: types.UID(m.GetUid())}
		if !ref.Plausible() || s.GetLabels()[pod.LabelPodUID] != m.GetUid() || !fresh(s.GetId()) {
			continue
		}
		o := of(ref)
		o.Sandboxes = append(o.Sandboxes, pod.Sandbox{
			ID: s.GetId(), Attempt: m.GetAttempt(), Handler: s.GetRuntimeHandler(),
			Ready: s.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY, CreatedAt: unixNano(s.GetCreatedAt()),
		})
	}
	for _, r := range containers {
		l := r.GetLabels()
		ref := pod.Ref{Namespace: l[pod.LabelPodNamespace], Name: l[pod.LabelPodName], UID: types.UID(l[pod.LabelPodUID])}
		if !ref.Plausible() || !pod.PathSegment(r.GetMetadata().GetName()) || !fresh(r.GetId()) {
			continue
		}
		o := of(ref)
		sandbox := r.GetPodSandboxId()
		if i := slices.IndexFunc(o.Sandboxes, func(s pod.Sandbox) bool { return s.ID == sandbox }); i >= 0 {
			sandbox = o.Sandboxes[i].ID // use the sandbox's copy of the ID, to save memory
		}
		o.Containers = append(o.Containers, pod.Container{
			ID: r.GetId(), Name: r.GetMetadata().GetName(), Attempt: r.GetMetadata().GetAttempt(),
			SandboxID: sandbox, State: stateOf(r.GetState()), CreatedAt: unixNano(r.GetCreatedAt()),
		})
	}
	for i := range out {
		sortNewestFirst(&out[i])
	}
	return out
}

func sortNewestFirst(o *pod.Observed) {
	inorder.Sort(o.Sandboxes, func(a, b pod.Sandbox) int {
		return cmp.Or(cmp.Compare(b.Attempt, a.Attempt), b.CreatedAt.Compare(a.CreatedAt), cmp.Compare(a.ID, b.ID))
	})
	inorder.Sort(o.Containers, func(a, b pod.Container) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(b.Attempt, a.Attempt), b.CreatedAt.Compare(a.CreatedAt), cmp.Compare(a.ID, b.ID))
	})
}

// Inspect returns the full state of one pod. prev is the previous inspection, or nil. Inspect copies from prev what cannot have changed.
// That saves a call for each container in the same running or exited state, and for the addresses of each sandbox that is still ready.
// Inspect leaves out a container or sandbox that the runtime lists, but that vanishes before its status is read.
func (c *Client) Inspect(ctx context.Context, uid types.UID, prev *pod.Observed) (pod.Observed, error) {
	began := time.Now()
	list, err := c.list(ctx, map[string]string{pod.LabelPodUID: string(uid)})
	if err != nil {
		return pod.Observed{}, err
	}
	o := pod.Observed{Ref: pod.Ref{UID: uid}, Began: began}
	if prev != nil {
		o.Ref = prev.Ref
	}
	for i := range list { // a runtime that ignores the filter also lists other pods
		if list[i].Ref.UID == uid {
			o = list[i]
			o.Began = began
		}
	}
	if o.Sandboxes, err = c.fillSandboxes(ctx, o.Sandboxes, prev); err != nil {
		return pod.Observed{}, err
	}
	if o.Containers, err = c.fillContainers(ctx, o.Containers, prev); err != nil {
		return pod.Observed{}, err
	}
	return o, nil
}

func (c *Client) fillSandboxes(ctx context.Context, in []pod.Sandbox, prev *pod.Observed) ([]pod.Sandbox, error) {
	out := in[:0]
	for _, s := range in {
		if p := sandboxByID(prev, s.ID); p != nil && (!s.Ready || (p.Ready && (p.HostNetwork || len(p.IPs) > 0))) {
			s.IPs, s.HostNetwork = p.IPs, p.HostNetwork
			out = append(out, s)
			continue
		}
		ctx, cancel := c.deadline(ctx)
		r, err := c.cfg.Runtime.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: s.ID})
		cancel()
		if IsNotFound(err) {
			continue
		}
		st := r.GetStatus()
		if err == nil {
			err = isAbout(s.ID, st.GetId())
		}
		if err != nil {
			return nil, fmt.Errorf("get status of pod sandbox %s: %w", s.ID, err)
		}
		s.Ready, s.Handler = st.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY, shared(s.Handler)
		s.HostNetwork = st.GetLinux().GetNamespaces().GetOptions().GetNetwork() == runtimeapi.NamespaceMode_NODE
		if !s.HostNetwork {
			s.IPs = addresses(st.GetNetwork())
		}
		out = append(out, s)
	}
	return out, nil
}

// addresses returns the valid IP addresses. The API rejects a whole status with one invalid address.
func addresses(n *runtimeapi.PodSandboxNetworkStatus) []string {
	var out []string
	add := func(ip string) {
		if _, err := netip.ParseAddr(ip); err == nil {
			out = append(out, ip)
		}
	}
	if add(n.GetIp()); len(out) > 0 {
		for _, a := range n.GetAdditionalIps() {
			add(a.GetIp())
		}
	}
	return out
}

func sandboxByID(o *pod.Observed, id string) *pod.Sandbox {
	if o == nil {
		return nil
	}
	for i := range o.Sandboxes {
		if o.Sandboxes[i].ID == id {
			return &o.Sandboxes[i]
		}
	}
	return nil
}

func (c *Client) fillContainers(ctx context.Context, in []pod.Container, prev *pod.Observed) ([]pod.Container, error) {
	out := in[:0]
	for _, r := range in {
		resized := c.untouch(r.ID)
		if p := prev.ByID(r.ID); p != nil && !resized && p.State == r.State && (r.State == pod.StateRunning || r.State == pod.StateExited) {
			out = append(out, *p)
			continue
		}
		st, err := c.ContainerStatus(ctx, r.ID)
		if IsNotFound(err) {
			continue
		}
		if err != nil {
			if resized {
				c.touch(r.ID)
			}
			return nil, err
		}
		out = append(out, c.container(st, &r))
	}
	return out, nil
}

// container adds the status of a container to its entry in the list.
func (c *Client) container(st *runtimeapi.ContainerStatus, listed *pod.Container) pod.Container {
	a := st.GetAnnotations()
	r := pod.Container{
		ID: listed.ID, Name: shared(listed.Name), Attempt: listed.Attempt, SandboxID: listed.SandboxID,
		State: stateOf(st.GetState()), CreatedAt: unixNano(st.GetCreatedAt()),
		StartedAt: unixNano(st.GetStartedAt()), FinishedAt: unixNano(st.GetFinishedAt()),
		ExitCode: st.GetExitCode(),
		Image:    shared(st.GetImage().GetImage()), ImageRef: shared(st.GetImageRef()), ImageID: shared(st.GetImageId()),
		SpecHash: a[pod.AnnotationSpecHash], Grace: -1, PreStop: a[pod.AnnotationPreStop] != "", LogPath: st.GetLogPath(),
		StopSignal: stopSignal(st.GetStopSignal()), User: userOf(st.GetUser().GetLinux()),
		Actual: crispec.ActualSize(st.GetResources().GetLinux()), LeastCPULimit: crispec.LeastCPULimit(st.GetResources().GetLinux()),
	}
	if spec := st.GetImage().GetUserSpecifiedImage(); spec != "" {
		r.Image = shared(spec)
	}
	if s, err := strconv.ParseInt(a[pod.AnnotationPodGracePeriod], 10, 64); err == nil && s >= 0 {
		r.Grace = pod.Seconds(s)
	}
	if cutShort(st) {
		r.State, r.CutShort = pod.StateCreated, true
	}
	for _, m := range st.GetMounts() {
		if image := m.GetImage().GetImage(); image != "" {
			r.ImageVolumes = append(r.ImageVolumes, shared(image))
		}
	}
	message := st.GetMessage()
	if r.State == pod.StateExited && c.cfg.ReadTermination != nil {
		if m := c.cfg.ReadTermination(st); m != "" || r.ExitCode == 0 {
			message = m
		}
	}
	r.Said = pod.SaidOf(st.GetReason(), message)
	return r
}

// shared returns one copy of a string that occurs in many containers of the node, to save memory: each message of the runtime has its own
// copy.
func shared(s string) string { return unique.Make(s).Value() }

// cutShort reports whether the runtime gave up the start of a container because its caller was gone: the agent was killed, or
// the connection broke. containerd then cancels the start and keeps the container as exited with code 128. The container never
// ran, so its end does not count for the restart policy.
func cutShort(st *runtimeapi.ContainerStatus) bool {
	return st.GetState() == runtimeapi.ContainerState_CONTAINER_EXITED && st.GetStartedAt() <= 0 && st.GetReason() == "StartError" &&
		strings.HasSuffix(strings.TrimSuffix(strings.TrimSpace(st.GetMessage()), ": unknown"), "context canceled") // containerd 1.6 adds ": unknown", the gRPC code
}

func userOf(u *runtimeapi.LinuxContainerUser) *pod.User {
	if u == nil {
		return nil
	}
	return &pod.User{UID: u.GetUid(), GID: u.GetGid(), Groups: u.GetSupplementalGroups()}
}

// stopSignal returns the name of a signal in the API.
func stopSignal(s runtimeapi.Signal) string {
	if s == runtimeapi.Signal_RUNTIME_DEFAULT {
		return ""
	}
	name := s.String()
	if !strings.HasPrefix(name, "SIGRT") {
		return name // a constant string, because a strings.Replacer would make a copy for each container
	}
	return strings.NewReplacer("PLUS", "+", "MINUS", "-").Replace(name)
}

func stateOf(s runtimeapi.ContainerState) pod.ContainerState {
	switch s {
	case runtimeapi.ContainerState_CONTAINER_CREATED:
		return pod.StateCreated
	case runtimeapi.ContainerState_CONTAINER_RUNNING:
		return pod.StateRunning
	case runtimeapi.ContainerState_CONTAINER_EXITED:
		return pod.StateExited
	case runtimeapi.ContainerState_CONTAINER_UNKNOWN:
		return pod.StateUnknown
	}
	return pod.StateUnknown
}

// unixNano converts a time of CRI, where 0 means "not yet".
func unixNano(n int64) time.Time {
	if n <= 0 {
		return time.Time{}
	}
	return time.Unix(0, n)
}

// Watch subscribes to container events and calls hint for each event that may concern a pod, until ctx ends or the stream breaks; then it
// calls ended once, with the reason. It returns when the subscription has begun or failed. hint must not block: "a reader that stops draining
// stalls the runtime for everyone". If the runtime has no events, IsUnimplemented is true for the error.
func (c *Client) Watch(ctx context.Context, subscribed func(), hint func(pod.Hint), ended func(error)) {
	stream, err := c.cfg.Runtime.GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{})
	if err != nil {
		ended(fmt.Errorf("subscribe to container events: %w", err))
		return
	}
	subscribed()
	event := func(e *runtimeapi.ContainerEventResponse) { c.follow(e, hint) }
	broke := func(err error) { ended(fmt.Errorf("receive container event: %w", err)) }
	if f, ok := stream.(follower); ok {
		f.Follow(event, broke)
		return
	}
	go func() { // it ends with the stream, which ends with ctx at the latest
		for {
			e, err := stream.Recv()
			if err != nil {
				broke(err)
				return
			}
			event(e)
		}
	}()
}

// follower is a stream of events that needs no goroutine while there is no event. The stream of a runtime in this process may be one.
type follower interface {
	// Follow calls event for each event, in their order, and ended once when the stream ends. It returns at once.
	Follow(event func(*runtimeapi.ContainerEventResponse), ended func(error))
}

// follow passes on an event as a hint, if it may concern a pod.
func (c *Client) follow(e *runtimeapi.ContainerEventResponse, hint func(pod.Hint)) {
	if at := e.GetCreatedAt(); at > 0 && c.cfg.EventArrived != nil {
		c.cfg.EventArrived(time.Since(time.Unix(0, at)))
	}
	h := pod.Hint{UID: podOf(e), ID: e.GetContainerId()}
	switch e.GetContainerEventType() {
	case runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT:
		return // no inspection is needed yet: the event that the container has started follows, or the action that created it ends
	case runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT:
		h.Reached = pod.ReachedRunning
	case runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT:
		h.Reached = pod.ReachedEnd
	case runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT:
		h.Reached = pod.ReachedRemoval
	}
	if h.UID != "" {
		hint(h)
	}
}

// podOf returns the UID of the pod that an event is about, or "" if the event does not name the pod.
func podOf(e *runtimeapi.ContainerEventResponse) types.UID {
	if uid := e.GetPodSandboxStatus().GetMetadata().GetUid(); uid != "" {
		return types.UID(uid)
	}
	for _, s := range e.GetContainersStatuses() {
		if uid := s.GetLabels()[pod.LabelPodUID]; uid != "" {
			return types.UID(uid)
		}
	}
	return ""
}
