package work

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/wherry-node/wherry/bench/internal/rig"
)

// Limit is a minimal node agent: CRI calls, and the work that no agent can avoid. It watches the pods of its node. For each pod it requests
// a token, mounts a tmpfs for the token, makes a cgroup, writes the hosts file and the termination message file, checks the image, reads
// the IP address of the sandbox, and sends two statuses and the three events that kubectl describe shows. When a pod ends it stops the
// container, unmounts the tmpfs, sends an event and the last status, and deletes the pod. It makes no decisions, keeps no state on disk,
// does not recover from failures and checks nothing twice. So no agent of any design can be faster on this machine.
type Limit struct {
	cri    *CRI
	client kubernetes.Interface // acts as the node
	node   string
	dir    string
	ca     string
	log    func(string, ...any)

	starts chan *v1.Pod
	events chan *v1.Event
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu       sync.Mutex
	noEvents bool // the runtime sends no events, so Limit does not notice when a container ends
	pods     map[types.UID]*limited
	died     map[string]time.Time // time of the runtime's event about the end of a container, by container ID
	removed  []bare               // containers to remove from the runtime
	err      error                // first error of any goroutine
}

type limited struct {
	pod     *v1.Pod
	sandbox *runtimeapi.PodSandboxConfig
	b       bare
	attempt uint32
	status  v1.PodStatus
	up      chan struct{} // closed when the pod has been started
	ending  bool
}

// NewLimit starts a Limit; a number of workers starts its pods concurrently. Close ends it.
func NewLimit(ctx context.Context, r *rig.Rig, cri *CRI, node string, workers int) (*Limit, error) {
	client, err := r.NodeClient(node)
	if err != nil {
		return nil, err
	}
	ca, err := r.Client.CoreV1().ConfigMaps(rig.Namespace).Get(ctx, "kube-root-ca.crt", metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	for _, group := range []string{rig.Cgroup("limit"), bestEffort()} {
		if err := rig.MakeCgroup(group); err != nil {
			return nil, err
		}
	}
	if err := rig.LeastShares(bestEffort()); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	l := &Limit{
		cri: cri, client: client, node: node, dir: filepath.Join(r.Dir, "limit"), ca: ca.Data["ca.crt"], log: r.Log, cancel: cancel,
		starts: make(chan *v1.Pod, 1000), events: make(chan *v1.Event, 10000),
		pods: map[types.UID]*limited{}, died: map[string]time.Time{},
	}
	pods, err := client.CoreV1().Pods("").Watch(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + node})
	if err != nil {
		cancel()
		return nil, fmt.Errorf("watch pods of %s: %w", node, err)
	}
	stream, err := cri.r.GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{})
	if err != nil {
		cancel()
		return nil, fmt.Errorf("subscribe to container events: %w", err)
	}
	l.wg.Go(func() { l.watch(ctx, pods) })
	l.wg.Go(func() { l.sendEvents(ctx) })
	l.wg.Go(func() {
		for {
			e, err := stream.Recv()
			if err != nil { // ctx has ended, or the runtime sends no events
				l.mu.Lock()
				l.noEvents = ctx.Err() == nil
				l.mu.Unlock()
				return
			}
			l.happened(ctx, e)
		}
	})
	for range workers {
		l.wg.Go(func() {
			for {
				select {
				case <-ctx.Done():
					return
				case p := <-l.starts:
					l.note(l.start(ctx, p))
				}
			}
		})
	}
	return l, nil
}

// bestEffort returns the cgroup of all BestEffort pods. The pods of the benchmark are such pods.
func bestEffort() string { return rig.Cgroup("limit") + "/besteffort" }

func podCgroup(p *v1.Pod) string { return bestEffort() + "/pod" + string(p.UID) }

// Close ends the goroutines of the Limit, removes its pods from the runtime, and returns the first error.
func (l *Limit) Close(ctx context.Context) error {
	l.cancel()
	l.wg.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range l.pods { // pods that nobody deleted
		l.removed = append(l.removed, p.b)
		l.keep(l.leave(p.pod))
	}
	made := map[string]bare{}
	for _, b := range l.removed {
		if b.sandbox != "" {
			made[b.sandbox] = b
		}
	}
	l.keep(l.cri.remove(ctx, made))
	return l.err
}

func (l *Limit) note(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.keep(err)
}

// keep stores err if it is the first error, and logs it. Cancellations do not count. The caller holds l.mu.
func (l *Limit) keep(err error) {
	if err != nil && l.err == nil && !errors.Is(err, context.Canceled) && status.Code(err) != codes.Canceled {
		l.err = err
		l.log("  %s: %v", l.node, err)
	}
}

// Died returns the time of the runtime's event about the end of a container; zero: there was no event yet.
func (l *Limit) Died(id string) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.died[id]
}

// HasEvents reports whether the runtime sends events.
func (l *Limit) HasEvents() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.noEvents
}

func (l *Limit) watch(ctx context.Context, pods watch.Interface) {
	defer pods.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case e, ok := <-pods.ResultChan():
			if !ok {
				l.note(errors.New("the watch of pods ended"))
				return
			}
			if p, isPod := e.Object.(*v1.Pod); isPod && e.Type != watch.Deleted {
				l.seen(ctx, p)
			}
		}
	}
}

func (l *Limit) seen(ctx context.Context, p *v1.Pod) {
	l.mu.Lock()
	defer l.mu.Unlock()
	known := l.pods[p.UID]
	switch {
	case known == nil && p.DeletionTimestamp == nil:
		l.pods[p.UID] = &limited{pod: p, up: make(chan struct{})}
		l.starts <- p
	case known != nil && p.DeletionTimestamp != nil && !known.ending:
		known.ending = true
		l.wg.Go(func() { l.note(l.stop(ctx, known)) })
	}
}

func (l *Limit) path(p *v1.Pod, elem ...string) string {
	return filepath.Join(append([]string{l.dir, string(p.UID)}, elem...)...)
}

// start starts a pod and reports it as running.
func (l *Limit) start(ctx context.Context, p *v1.Pod) (err error) {
	l.mu.Lock()
	state := l.pods[p.UID]
	l.mu.Unlock()
	defer close(state.up)
	state.status = waiting(metav1.Now())
	creating := state.status
	first := make(chan error, 1) // result of the patch, which is sent while the pod is being started
	go func() { first <- l.patch(ctx, p, &creating) }()

	err = l.up(ctx, state)
	if e := <-first; err == nil {
		err = e
	}
	if err != nil {
		return fmt.Errorf("start %s: %w", p.Name, err)
	}
	return l.patch(ctx, p, &state.status)
}

// up creates the cgroup, the volume, the sandbox and the container of a pod, and sets its status.
func (l *Limit) up(ctx context.Context, state *limited) error {
	p := state.pod
	if err := rig.MakeCgroup(podCgroup(p)); err != nil {
		return err
	}
	if err := rig.LeastShares(podCgroup(p)); err != nil {
		return err
	}
	if err := l.volumes(ctx, p); err != nil {
		return err
	}
	img, err := l.cri.images.ImageStatus(ctx, &runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: image}})
	if err != nil {
		return fmt.Errorf("get status of image %s: %w", image, err)
	}
	if img.GetImage() == nil {
		return fmt.Errorf("the runtime does not have image %s", image)
	}
	l.event(p, "Pulled", fmt.Sprintf("Container image %q already present on machine", image))
	state.sandbox = l.cri.sandboxConfig(p.Name, string(p.UID), l.path(p), podCgroup(p))
	made, err := l.cri.r.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: state.sandbox})
	if err != nil {
		return fmt.Errorf("run sandbox: %w", err)
	}
	state.b.sandbox = made.PodSandboxId
	st, err := l.cri.r.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: state.b.sandbox})
	if err != nil {
		return fmt.Errorf("get status of sandbox: %w", err)
	}
	ip := st.GetStatus().GetNetwork().GetIp()
	if err := os.WriteFile(l.path(p, "hosts"), []byte("127.0.0.1\tlocalhost\n"+ip+"\t"+p.Name+"\n"), 0o644); err != nil {
		return err
	}
	return l.run(ctx, state, state.b, ip)
}

// run creates and starts one attempt of the container in the sandbox, and sets the status to running.
func (l *Limit) run(ctx context.Context, state *limited, b bare, ip string) error {
	p := state.pod
	if err := l.cri.container(ctx, &b, state.sandbox, l.path(p), state.attempt, func() { l.event(p, "Created", "Container created") }); err != nil {
		return err
	}
	l.event(p, "Started", "Container started")
	cs, err := l.cri.r.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: b.container})
	if err != nil {
		return fmt.Errorf("get status of container: %w", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	state.b = b
	running(&state.status, ip, state.attempt, cs.GetStatus())
	return nil
}

// volumes mounts the volume that every pod has, with a token, the cluster's CA certificate and the name of the namespace.
func (l *Limit) volumes(ctx context.Context, p *v1.Pod) error {
	dir := l.path(p, "token")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, ""); err != nil {
		return fmt.Errorf("mount tmpfs on %s: %w", dir, err)
	}
	hour := int64(3607)
	req := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &hour,
		BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: p.Name, UID: p.UID}}}
	var token *authenticationv1.TokenRequest
	for wait := 5 * time.Millisecond; ; wait *= 2 {
		var err error
		if token, err = l.client.CoreV1().ServiceAccounts(p.Namespace).CreateToken(ctx, "default", req, metav1.CreateOptions{}); err == nil {
			break
		}
		// At first the node authorizer may not know yet that the pod is bound to this node.
		if !apierrors.IsForbidden(err) || wait > time.Second {
			return fmt.Errorf("request token: %w", err)
		}
		time.Sleep(wait)
	}
	for name, data := range map[string]string{"token/token": token.Status.Token, "token/ca.crt": l.ca, "token/namespace": p.Namespace, "termination": ""} {
		if err := os.WriteFile(l.path(p, name), []byte(data), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// stop stops a pod, reports its end and deletes it from the API.
func (l *Limit) stop(ctx context.Context, state *limited) error {
	p := state.pod
	select {
	case <-state.up:
	case <-ctx.Done():
		return ctx.Err()
	}
	l.event(p, "Killing", "Stopping container sleep")
	if err := l.cri.stop(ctx, state.b); err != nil {
		return fmt.Errorf("stop %s: %w", p.Name, err)
	}
	cs, err := l.cri.r.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: state.b.container})
	if err != nil {
		return fmt.Errorf("get status of container: %w", err)
	}
	if err := l.leave(p); err != nil {
		return err
	}
	l.mu.Lock()
	ended(&state.status, cs.GetStatus())
	state.status.Phase = v1.PodFailed
	l.mu.Unlock()
	if err := l.patch(ctx, p, &state.status); err != nil {
		return err
	}
	err = l.client.CoreV1().Pods(p.Namespace).Delete(ctx, p.Name, metav1.DeleteOptions{
		GracePeriodSeconds: new(int64(0)), Preconditions: metav1.NewUIDPreconditions(string(p.UID))})
	if err != nil {
		return fmt.Errorf("delete %s: %w", p.Name, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.pods, p.UID)
	l.removed = append(l.removed, state.b)
	return nil
}

// leave unmounts the volume and removes the cgroup of a pod.
func (l *Limit) leave(p *v1.Pod) error {
	if err := syscall.Unmount(l.path(p, "token"), syscall.MNT_DETACH); err != nil && err != syscall.EINVAL && err != syscall.ENOENT {
		return fmt.Errorf("unmount %s: %w", l.path(p, "token"), err)
	}
	return rig.RemoveCgroup(podCgroup(p))
}

// happened handles an event of the runtime: if a container has exited by itself, it reports that to the API and restarts the container.
func (l *Limit) happened(ctx context.Context, e *runtimeapi.ContainerEventResponse) {
	if e.GetContainerEventType() != runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.died[e.GetContainerId()] = time.Now()
	for _, state := range l.pods {
		if state.b.container != e.GetContainerId() || state.ending {
			continue
		}
		l.wg.Go(func() { l.note(l.again(ctx, state)) })
	}
}

func (l *Limit) again(ctx context.Context, state *limited) error {
	cs, err := l.cri.r.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: state.b.container})
	if err != nil {
		return fmt.Errorf("get status of container: %w", err)
	}
	l.mu.Lock()
	ended(&state.status, cs.GetStatus())
	state.attempt++
	l.mu.Unlock()
	if err := l.patch(ctx, state.pod, &state.status); err != nil {
		return err
	}
	if err := l.run(ctx, state, state.b, state.status.PodIP); err != nil {
		return err
	}
	return l.patch(ctx, state.pod, &state.status)
}

// patch sends the whole status of a pod to the API. The patch contains the UID, so that it fails for another pod of the same name.
func (l *Limit) patch(ctx context.Context, p *v1.Pod, status *v1.PodStatus) error {
	l.mu.Lock()
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": p.UID}, "status": status})
	l.mu.Unlock()
	if err != nil {
		return err
	}
	_, err = l.client.CoreV1().Pods(p.Namespace).Patch(ctx, p.Name, types.StrategicMergePatchType, body, metav1.PatchOptions{}, "status")
	if err != nil {
		return fmt.Errorf("patch status of %s: %w", p.Name, err)
	}
	return nil
}

// event queues an event. A goroutine sends the events one after another.
func (l *Limit) event(p *v1.Pod, reason, message string) {
	now := metav1.Now()
	l.events <- &v1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: p.Namespace, Name: fmt.Sprintf("%s.%x", p.Name, now.UnixNano())},
		InvolvedObject: v1.ObjectReference{Kind: "Pod", APIVersion: "v1", Namespace: p.Namespace, Name: p.Name, UID: p.UID, FieldPath: "spec.containers{sleep}"},
		Reason:         reason, Message: message, Type: v1.EventTypeNormal, Count: 1, FirstTimestamp: now, LastTimestamp: now,
		Source: v1.EventSource{Component: "kubelet", Host: l.node},
	}
}

func (l *Limit) sendEvents(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case e := <-l.events:
			if _, err := l.client.CoreV1().Events(e.Namespace).Create(ctx, e, metav1.CreateOptions{}); err != nil {
				l.note(fmt.Errorf("write event: %w", err))
			}
		}
	}
}
