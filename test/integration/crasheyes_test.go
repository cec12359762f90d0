package integration

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/wherry-node/wherry/internal/cri"
)

// eyes watch a node's containers through CRI and its pods through the API, and write down what should not be.
type eyes struct {
	*crash
	runtime runtimeapi.RuntimeServiceClient
	store   cache.Store

	unsettled string // UID of the pod that settled last found wanting

	mu         sync.Mutex
	seen       []finding
	containers map[string]*instance // by ID, also those that are gone
	pods       map[string]*podStory // by UID, also those that are gone
	polls      int
	events     int
	taken      int // readiness that the control plane took away from a pod
}

// finding is something that should not be; the UID of the pod is known, or empty.
type finding struct{ uid, text string }

// instance is one container of the runtime.
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

// podStory is a pod as the API had it.
type podStory struct {
	pod     *v1.Pod
	kind    string
	ready   bool // it once was
	forced  bool
	deleted time.Time
	gone    bool
	judged  map[string]bool // instances that were found wanting
}

func newEyes(c *crash) *eyes {
	e := &eyes{crash: c, containers: map[string]*instance{}, pods: map[string]*podStory{}}
	conn, err := cri.Dial(c.rt + "/containerd.sock")
	if err != nil {
		c.Fatal(err)
	}
	e.runtime = runtimeapi.NewRuntimeServiceClient(conn)
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

// alive are the pods that were not told to go, in an order that does not change.
func (e *eyes) alive() (alive []*v1.Pod) {
	for _, o := range e.store.List() {
		if p := o.(*v1.Pod); !isDeleted(p) {
			alive = append(alive, p)
		}
	}
	slices.SortFunc(alive, func(a, b *v1.Pod) int { return strings.Compare(a.Name, b.Name) })
	return alive
}

// forced notes that a pod is deleted without a grace period.
func (e *eyes) forced(p *v1.Pod) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if s := e.pods[string(p.UID)]; s != nil {
		s.forced = true
	}
}

func (e *eyes) podSeen(old, p *v1.Pod) {
	e.mu.Lock()
	defer e.mu.Unlock()
	uid := string(p.UID)
	s := e.pods[uid]
	if s == nil {
		s = &podStory{kind: p.Labels["kind"], judged: map[string]bool{}}
		e.pods[uid] = s
	}
	s.pod = p
	if isDeleted(p) && s.deleted.IsZero() {
		s.deleted = time.Now()
	}
	if crashKinds[s.kind].expect == v1.PodRunning && !isDeleted(p) {
		switch ready := isTrue(p, v1.PodReady); {
		case ready:
			s.ready = true
		case s.ready && isTrue(p, v1.ContainersReady):
			s.ready = false // the control plane took it, for a node that it had not heard of: the agent gives it back
			e.taken++
		case s.ready && !s.forced:
			s.ready = false
			e.findingLocked(uid, "pod %s was Ready and is not: %s", p.Name, summary(p))
		}
	}
	if old == nil {
		return
	}
	if ended(old) && p.Status.Phase != old.Status.Phase {
		e.findingLocked(uid, "pod %s left the phase %s for %s", p.Name, old.Status.Phase, p.Status.Phase)
	}
	for _, a := range statuses(old) {
		for _, b := range statuses(p) {
			if a.Name == b.Name && b.RestartCount < a.RestartCount {
				e.findingLocked(uid, "pod %s: the restart count of %s fell from %d to %d", p.Name, a.Name, a.RestartCount, b.RestartCount)
			}
		}
	}
}

func ended(p *v1.Pod) bool {
	return p.Status.Phase == v1.PodSucceeded || p.Status.Phase == v1.PodFailed
}

func statuses(p *v1.Pod) []v1.ContainerStatus {
	return slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses)
}

// podGone holds that nothing runs in a pod that was removed from the API, and that its hook was run.
func (e *eyes) podGone(p *v1.Pod) {
	uid := string(p.UID)
	e.mu.Lock()
	s := e.pods[uid]
	if s == nil {
		e.mu.Unlock()
		return
	}
	s.gone = true
	if s.deleted.IsZero() {
		s.deleted = time.Now()
	}
	forced, started := s.forced || p.DeletionGracePeriodSeconds == nil, false
	for _, i := range e.containers {
		started = started || i.uid == uid && !i.started.IsZero() && i.name == "main"
	}
	e.mu.Unlock()
	if forced {
		return
	}
	if crashKinds[s.kind].hook && started {
		if _, err := os.Stat(filepath.Join(e.hooks, uid)); err != nil {
			e.finding(uid, "pod %s went without its preStop hook", p.Name)
		}
	}
	list, err := e.runtime.ListContainers(context.Background(), &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{
		State:         &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING},
		LabelSelector: map[string]string{"io.kubernetes.pod.uid": uid}}})
	if err == nil && len(list.Containers) > 0 {
		e.finding(uid, "pod %s was removed from the API while %d of its containers run", p.Name, len(list.Containers))
	}
}

// follow reads the runtime's events, and asks for them again when the runtime was started again; one without them is
// polled only.
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

// poll lists the runtime's containers and sandboxes again and again.
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
		if !there[id] && time.Since(i.created) > 5*time.Second { // else it may be newer than the list
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

// status takes in what the runtime says of a container, and judges its story so far.
func (e *eyes) status(st *runtimeapi.ContainerStatus, sandbox, uid, pod string) {
	i := e.containers[st.Id]
	if i == nil {
		i = &instance{id: st.Id, uid: uid, pod: pod, sandbox: sandbox, name: st.Labels["io.kubernetes.container.name"], attempt: st.Metadata.Attempt}
		e.containers[st.Id] = i
	}
	if i.state == runtimeapi.ContainerState_CONTAINER_EXITED && st.State != runtimeapi.ContainerState_CONTAINER_EXITED {
		return // an event that is older than what the list said
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
		e.judge(s, uid, i.name)
	}
}

// judge looks at the instances of one container that were started, in the order in which they were.
func (e *eyes) judge(s *podStory, uid, name string) {
	var all []*instance
	for _, i := range e.containers {
		if i.uid == uid && i.name == name && !i.started.IsZero() {
			all = append(all, i)
		}
	}
	slices.SortFunc(all, func(a, b *instance) int { return a.started.Compare(b.started) })
	spec := crashKinds[s.kind]
	bad := func(i *instance, format string, args ...any) {
		if !s.judged[i.id] {
			s.judged[i.id] = true
			e.findingLocked(uid, "pod %s: "+format, append([]any{s.pod.Name}, args...)...)
		}
	}
	init := slices.ContainsFunc(s.pod.Spec.InitContainers, func(c v1.Container) bool { return c.Name == name && c.RestartPolicy == nil })
	for n, i := range all {
		if late := i.started.Sub(s.deleted); !s.deleted.IsZero() && late > 20*time.Second {
			bad(i, "%s was started %s after the deletion", i, late)
		}
		if killed := i.exit == 137 && !i.finished.IsZero(); killed && !spec.killed && (s.deleted.IsZero() && !s.forced && s.pod.Status.Phase != v1.PodFailed && !e.leaving(uid) || spec.graceful && !s.forced) {
			bad(i, "%s was killed and should not be", i)
		}
		if n == 0 {
			continue
		}
		prev := all[n-1]
		if prev.finished.IsZero() {
			e.again(prev)
		}
		switch {
		case prev.finished.IsZero() || i.started.Before(prev.finished):
			bad(i, "two instances run at once: %s and %s", prev, i)
		case i.attempt <= prev.attempt:
			bad(i, "the attempts do not grow: %s and %s", prev, i)
		case init && prev.exit == 0:
			bad(i, "an init container that had succeeded was run again: %s and %s", prev, i)
		case !slices.Contains(spec.again, name):
			bad(i, "it was restarted and should not be: %s and %s", prev, i)
		case s.pod.Spec.RestartPolicy == v1.RestartPolicyOnFailure && prev.exit == 0:
			bad(i, "it was restarted after it had succeeded: %s and %s", prev, i)
		}
	}
}

// again asks once more for an instance that ran when it was last looked at: another that runs was seen since.
func (e *eyes) again(i *instance) {
	resp, err := e.runtime.ContainerStatus(context.Background(), &runtimeapi.ContainerStatusRequest{ContainerId: i.id})
	switch {
	case err == nil && resp.Status.FinishedAt != 0:
		i.finished, i.state, i.exit, i.reason = time.Unix(0, resp.Status.FinishedAt), resp.Status.State, resp.Status.ExitCode, resp.Status.Reason
	case grpcstatus.Code(err) == codes.NotFound: // removed, so it had ended; when is not known any more
		i.finished, i.state, i.gone = i.started, runtimeapi.ContainerState_CONTAINER_EXITED, true
	}
}

// lostTasks are the tasks of containers and sandboxes whose start was cut short so that the runtime has lost sight of
// what it began: it says so of the container, or has the task and no container or sandbox for it.
func (e *eyes) lostTasks() (ids []string) {
	ctx := context.Background()
	tasks := list(filepath.Join(e.rt, "state", "io.containerd.runtime.v2.task", "k8s.io")) // before the rest: what ends meanwhile is not lost
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

// leaving asks the API whether a pod is on its way out, which the watch may not have told yet.
func (e *eyes) leaving(uid string) bool {
	p, err := e.client().CoreV1().Pods(e.name).Get(context.Background(), e.pods[uid].pod.Name, metav1.GetOptions{})
	return err != nil || string(p.UID) != uid || isDeleted(p)
}

// settled holds that the API says what the runtime does, that every pod is what its kind comes to, and that the runtime
// has nothing else.
func (e *eyes) settled() error {
	list, err := e.runtime.ListContainers(context.Background(), &runtimeapi.ListContainersRequest{})
	if err != nil {
		return err
	}
	running := map[string]map[string]*runtimeapi.Container{}
	for _, c := range list.Containers {
		uid := c.Labels["io.kubernetes.pod.uid"]
		if running[uid] == nil {
			running[uid] = map[string]*runtimeapi.Container{}
		}
		if c.State == runtimeapi.ContainerState_CONTAINER_RUNNING {
			running[uid][c.Id] = c
		}
	}
	for _, o := range e.store.List() {
		p := o.(*v1.Pod)
		if isDeleted(p) {
			return errorf("pod %s is on its way out", p.Name)
		}
		if err := asExpected(p, running[string(p.UID)]); err != nil {
			e.unsettled = string(p.UID)
			return fmt.Errorf("pod %s: %w", p.Name, err)
		}
		delete(running, string(p.UID))
	}
	if len(running) > 0 {
		return errorf("the runtime has containers of pods %v that the API has not", slices.Sorted(maps.Keys(running)))
	}
	return nil
}

func asExpected(p *v1.Pod, running map[string]*runtimeapi.Container) error {
	expect := crashKinds[p.Labels["kind"]].expect
	if expect == "" {
		return nil
	}
	if ended(p) && p.Status.Phase != expect {
		return fatal{errorf("it is %s for good, want %s: %s", p.Status.Phase, expect, summary(p))}
	}
	if p.Status.Phase != expect {
		return errorf("it is %s, want %s: %s", p.Status.Phase, expect, summary(p))
	}
	told := 0
	for _, c := range statuses(p) {
		if c.State.Running == nil {
			continue
		}
		told++
		_, id, _ := strings.Cut(c.ContainerID, "://")
		r := running[id]
		if r == nil {
			return errorf("the API says that %s %.12s runs, the runtime does not", c.Name, id)
		}
		if int32(r.Metadata.Attempt) != c.RestartCount {
			return errorf("%s is attempt %d and has restart count %d", c.Name, r.Metadata.Attempt, c.RestartCount)
		}
	}
	if told != len(running) {
		return errorf("%d containers run, %d by the API", len(running), told)
	}
	if expect == v1.PodRunning && !isTrue(p, v1.PodReady) {
		return errorf("it is not Ready: %s", summary(p))
	}
	return nil
}

// instances are the containers of a pod that were seen, oldest first.
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

// story is a pod's name and all that was seen of it.
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

// String is how much was seen.
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
	return fmt.Sprintf("%d pods of %d kinds, %d containers started, %d created and never started, %d events of the runtime, %d looks at it, %d times no longer Ready by the control plane",
		len(e.pods), len(kinds), started, never, e.events, e.polls, e.taken)
}
