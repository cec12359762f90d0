package integration

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/wherry-node/wherry/internal/edge/cri"
)

// eyes watches the containers of a node through CRI and its pods through the API. It records what must not happen as findings.
type eyes struct {
	*crash
	runtime runtimeapi.RuntimeServiceClient
	store   cache.Store

	unsettled string // UID of the pod because of which the last call of settled failed; "": none

	mu         sync.Mutex
	seen       []finding
	containers map[string]*instance // containers by ID, including those that were removed
	pods       map[string]*podStory // pods by UID, including those that were deleted
	polls      int
	events     int
	healed     []time.Time     // when the test restarted containerd, see heal
	lostAt     map[string]bool // IDs of the containers that containerd did not find again after such a restart, see lostInRestart
	taken      int             // how often the node lifecycle controller marked a Ready pod as not ready, because no agent ran
}

// finding is something that must not happen. uid is the UID of the pod; "": unknown.
type finding struct{ uid, text string }

// instance is one container in the runtime.
type instance struct {
	id, uid, pod, name, sandbox string
	attempt                     uint32
	created, started, finished  time.Time
	exit                        int32
	reason                      string
	state                       runtimeapi.ContainerState
	gone                        bool
}

func (i *instance) String() string {
	clock := func(t time.Time) string {
		if t.IsZero() {
			return "-"
		}
		return t.Format("15:04:05.000")
	}
	return fmt.Sprintf("%s attempt %d %.12s in %.12s: %s, created %s started %s finished %s exit %d %s gone=%v", i.name, i.attempt, i.id, i.sandbox,
		strings.TrimPrefix(i.state.String(), "CONTAINER_"), clock(i.created), clock(i.started), clock(i.finished), i.exit, i.reason, i.gone)
}

// podStory is what the API showed of a pod.
type podStory struct {
	pod     *v1.Pod
	kind    string
	ready   bool // the pod has been Ready
	forced  bool
	deleted time.Time
	gone    bool
	failed  map[string]bool // IDs of containers for which a finding was recorded already
}

func newEyes(c *crash) *eyes {
	e := &eyes{crash: c, containers: map[string]*instance{}, pods: map[string]*podStory{}, lostAt: map[string]bool{}}
	conn, err := cri.Dial(c.rt + "/containerd.sock")
	if err != nil {
		c.Fatal(err)
	}
	e.runtime = runtimeapi.NewRuntimeServiceClient(patient{conn})
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	factory := informers.NewSharedInformerFactoryWithOptions(c.client(), 0, informers.WithNamespace(c.name))
	informer := factory.Core().V1().Pods().Informer()
	e.store = informer.GetStore()
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { e.podSeen(nil, o.(*v1.Pod)) },
		UpdateFunc: func(old, o any) { e.podSeen(old.(*v1.Pod), o.(*v1.Pod)) },
		DeleteFunc: func(o any) {
			if late, ok := o.(cache.DeletedFinalStateUnknown); ok {
				o = late.Obj
			}
			e.podGone(o.(*v1.Pod))
		},
	}); err != nil {
		c.Fatal(err)
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	wg.Go(func() { e.follow(ctx) })
	wg.Go(func() { e.poll(ctx) })
	c.Cleanup(func() { cancel(); wg.Wait(); factory.Shutdown(); _ = conn.Close() })
	return e
}

// patient is a connection to the runtime whose unary calls time out after patience.
type patient struct{ *grpc.ClientConn }

// Invoke returns an error with codes.DeadlineExceeded if the call takes longer than patience.
func (p patient) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return p.ClientConn.Invoke(ctx, method, args, reply, opts...)
}

func (e *eyes) finding(uid, format string, args ...any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.findingLocked(uid, format, args...)
}

func (e *eyes) findingLocked(uid, format string, args ...any) {
	if len(e.seen) < 20 {
		e.seen = append(e.seen, finding{uid, time.Now().Format("15:04:05.000 ") + fmt.Sprintf(format, args...)})
	}
}

func (e *eyes) findings() []finding {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.seen)
}

func (e *eyes) found() bool { return len(e.findings()) > 0 }

// alive returns the pods of the API that are not being deleted, in a fixed order.
func (e *eyes) alive() (alive []*v1.Pod) {
	for _, o := range e.store.List() {
		if p := o.(*v1.Pod); !isDeleted(p) {
			alive = append(alive, p)
		}
	}
	slices.SortFunc(alive, func(a, b *v1.Pod) int { return strings.Compare(a.Name, b.Name) })
	return alive
}

// forced records that a pod is deleted with grace period 0.
func (e *eyes) forced(p *v1.Pod) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if s := e.pods[string(p.UID)]; s != nil {
		s.forced = true
	}
}

// follow reads the runtime's events. If the stream ends, follow subscribes again. A runtime without events is only polled.
func (e *eyes) follow(ctx context.Context) {
	for ctx.Err() == nil {
		e.followOnce(ctx)
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}

func (e *eyes) followOnce(ctx context.Context) {
	stream, err := e.runtime.GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{})
	for err == nil {
		var ev *runtimeapi.ContainerEventResponse
		if ev, err = stream.Recv(); err == nil {
			e.mu.Lock()
			e.events++
			for _, st := range ev.ContainersStatuses {
				e.status(st, ev.PodSandboxStatus.GetId(), ev.PodSandboxStatus.GetMetadata().GetUid(), ev.PodSandboxStatus.GetMetadata().GetName())
			}
			e.mu.Unlock()
		}
	}
}

// poll lists the runtime's containers and sandboxes every 300 ms.
func (e *eyes) poll(ctx context.Context) {
	every := time.NewTicker(300 * time.Millisecond)
	defer every.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-every.C:
		}
		e.look(ctx)
	}
}

func (e *eyes) look(ctx context.Context) {
	list, err := e.runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{})
	if err != nil {
		return
	}
	there := map[string]bool{}
	for _, l := range list.Containers {
		there[l.Id] = true
		e.mu.Lock()
		known := e.containers[l.Id]
		same := known != nil && known.state == l.State
		e.mu.Unlock()
		if same {
			continue
		}
		if st, err := e.runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: l.Id}); err == nil {
			e.mu.Lock()
			e.status(st.Status, l.PodSandboxId, l.Labels["io.kubernetes.pod.uid"], l.Labels["io.kubernetes.pod.name"])
			e.mu.Unlock()
		}
	}
	sandboxes, err := e.runtime.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{Filter: &runtimeapi.PodSandboxFilter{
		State: &runtimeapi.PodSandboxStateValue{State: runtimeapi.PodSandboxState_SANDBOX_READY}}})
	if err != nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.polls++
	for id, i := range e.containers {
		if !there[id] && time.Since(i.created) > 5*time.Second { // a younger container may have been created after the list was read
			i.gone = true
		}
	}
	ready := map[string]string{}
	for _, sb := range sandboxes.Items {
		if other := ready[sb.Metadata.Uid]; other != "" {
			e.findingLocked(sb.Metadata.Uid, "pod %s has two ready sandboxes, %.12s and %.12s", sb.Metadata.Name, other, sb.Id)
		}
		ready[sb.Metadata.Uid] = sb.Id
	}
}

// status stores a container's status from the runtime and checks the container's history. sandbox is the ID of its sandbox; uid and pod are
// the UID and name of its pod.
func (e *eyes) status(st *runtimeapi.ContainerStatus, sandbox, uid, pod string) {
	i := e.containers[st.Id]
	if i == nil {
		i = &instance{id: st.Id, uid: uid, pod: pod, sandbox: sandbox, name: st.Labels["io.kubernetes.container.name"], attempt: st.Metadata.Attempt}
		e.containers[st.Id] = i
	}
	if i.state == runtimeapi.ContainerState_CONTAINER_EXITED && st.State != runtimeapi.ContainerState_CONTAINER_EXITED {
		return // an event that is older than the list of containers
	}
	at := func(ns int64) time.Time {
		if ns == 0 {
			return time.Time{}
		}
		return time.Unix(0, ns)
	}
	i.created, i.started, i.finished = at(st.CreatedAt), at(st.StartedAt), at(st.FinishedAt)
	i.state, i.exit, i.reason = st.State, st.ExitCode, st.Reason
	if s := e.pods[uid]; s != nil {
		e.check(s, uid, i.name)
	}
}

// restartsRuntime records that the test restarts containerd now.
func (e *eyes) restartsRuntime() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.healed = append(e.healed, time.Now())
}

// lostInRestart reports whether containerd lost this container in a restart by heal. A containerd that starts on a busy machine gives up a
// shim that does not answer in time; it then ends the container and lists it with exit code 255 and reason Unknown. So the agent has to
// start the container again. The container must have ended within 30 s of the restart.
func (e *eyes) lostInRestart(i *instance) bool {
	return i.exit == 255 && i.reason == "Unknown" && slices.ContainsFunc(e.healed, func(at time.Time) bool {
		return i.finished.After(at) && i.finished.Before(at.Add(30*time.Second))
	})
}

// lostTasks returns the IDs of tasks that the runtime has lost, because the start of their container or sandbox was interrupted. It finds
// them by the status of the container, or because a task has no container or sandbox.
func (e *eyes) lostTasks() (ids []string) {
	ctx := context.Background()
	tasks := list(filepath.Join(e.rt, "state", "io.containerd.runtime.v2.task", "k8s.io")) // read before the list of containers, because a container may end in between
	containers, err := e.runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{})
	if err != nil {
		return nil
	}
	sandboxes, err := e.runtime.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		return nil
	}
	known := map[string]bool{}
	for _, sb := range sandboxes.Items {
		known[sb.Id] = true
	}
	for _, l := range containers.Containers {
		known[l.Id] = true
		if l.State != runtimeapi.ContainerState_CONTAINER_EXITED {
			continue
		}
		st, err := e.runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: l.Id})
		if err == nil && strings.Contains(st.Status.Message, "failed to get task pid") {
			ids = append(ids, l.Id)
		}
	}
	for _, id := range tasks {
		if !known[id] {
			ids = append(ids, id)
		}
	}
	return ids
}

// instances returns the containers of a pod, the oldest first.
func (e *eyes) instances(uid string) (all []*instance) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, i := range e.containers {
		if i.uid == uid {
			seen := *i
			all = append(all, &seen)
		}
	}
	slices.SortFunc(all, func(a, b *instance) int { return cmp.Or(a.created.Compare(b.created), strings.Compare(a.id, b.id)) })
	return all
}

// story returns the name of a pod, and everything that was recorded about it as text.
func (e *eyes) story(uid string) (name, text string) {
	var b strings.Builder
	for _, i := range e.instances(uid) {
		fmt.Fprintf(&b, "%s\n", i)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if s := e.pods[uid]; s != nil {
		fmt.Fprintf(&b, "deleted %s forced=%v gone=%v %s", s.deleted.Format("15:04:05.000"), s.forced, s.gone, summary(s.pod))
		return s.pod.Name, b.String()
	}
	return "?", b.String()
}

// String returns how many pods and containers were seen, as text.
func (e *eyes) String() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	started, never, kinds := 0, 0, map[string]bool{}
	for _, i := range e.containers {
		if i.started.IsZero() {
			never++
		} else {
			started++
		}
	}
	for _, s := range e.pods {
		kinds[s.kind] = true
	}
	return fmt.Sprintf("%d pods of %d kinds, %d containers started, %d created and never started, %d events of the runtime, %d looks at it, %d times no longer Ready by the control plane, %d containers lost by the runtime in its own restart",
		len(e.pods), len(kinds), started, never, e.events, e.polls, e.taken, len(e.lostAt))
}
