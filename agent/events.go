package agent

import (
	"context"
	"errors"
	"sync"

	"golang.org/x/time/rate"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	kubelet "k8s.io/kubelet/config/v1beta1"

	"github.com/wherry-node/wherry/internal/pod"
)

// events records events on pods and on the node. Unless it is open they are dropped: the timeline has them. Without an API
// server the newest stay here.
type events struct {
	api      func(namespace string) eventAPI // nil: there is no API server
	nodeName string
	scheme   *runtime.Scheme
	// rate bounds the events sent: eventRecordQPS and eventBurst; no QPS, no bound.
	rate *rate.Limiter

	local *localEvents // nil: the API server has them

	mu       sync.RWMutex
	recorder record.EventRecorder
}

// eventAPI are the events of one namespace.
type eventAPI interface {
	Create(ctx context.Context, ev *v1.Event, opts metav1.CreateOptions) (*v1.Event, error)
	Update(ctx context.Context, ev *v1.Event, opts metav1.UpdateOptions) (*v1.Event, error)
	Patch(ctx context.Context, name string, kind types.PatchType, body []byte, opts metav1.PatchOptions, subresources ...string) (*v1.Event, error)
}

func newEvents(c *clients, nodeName string, k *kubelet.KubeletConfiguration) (*events, error) {
	s := runtime.NewScheme()
	if err := v1.AddToScheme(s); err != nil {
		return nil, err
	}
	e := &events{nodeName: nodeName, scheme: s, rate: rate.NewLimiter(rate.Inf, 0)}
	if c.beats == nil {
		e.local = newLocalEvents(nodeName)
	} else {
		e.api = c.events
	}
	if k.EventRecordQPS != nil && *k.EventRecordQPS > 0 {
		e.rate = rate.NewLimiter(rate.Limit(*k.EventRecordQPS), int(max(1, k.EventBurst)))
	}
	return e, nil
}

// open begins to record; close ends it when all who record have ended.
func (e *events) open(ctx context.Context) (close func()) {
	if e.api == nil {
		return func() {}
	}
	// It ends when it is closed, not with ctx: those who record may end later than that.
	b := record.NewBroadcaster(record.WithContext(context.WithoutCancel(ctx)),
		record.WithCorrelatorOptions(record.CorrelatorOptions{LRUCacheSize: eventsRemembered}))
	paced := &pacedSink{api: e.api, ctx: ctx, rate: e.rate}
	sink := b.StartRecordingToSink(paced)
	e.set(b.NewRecorder(e.scheme, v1.EventSource{Component: "kubelet", Host: e.nodeName}))
	return func() {
		e.set(nil)
		sink.Stop()
		b.Shutdown()
		paced.join()
	}
}

// eventsRemembered is how many events the recorder knows again: those that come again are counted instead of written.
// A pod that starts leaves five behind, for as long as the agent lives.
const eventsRemembered = 512

func (e *events) set(r record.EventRecorder) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.recorder = r
}

// pacedSink sends no more events than the configuration allows. The recorder sends one after the other, so waiting
// here holds up nothing else; what does not fit its queue is dropped. A request ends with ctx, and none begins after join.
type pacedSink struct {
	api  func(namespace string) eventAPI
	ctx  context.Context
	rate *rate.Limiter

	mu     sync.Mutex // held while a request is under way
	closed bool
}

var errEventsClosed = errors.New("the recording of events has ended")

// send does one request in its turn.
func (s *pacedSink) send(do func() (*v1.Event, error)) (*v1.Event, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, errEventsClosed
	}
	if err := s.rate.Wait(s.ctx); err != nil {
		return nil, err
	}
	return do()
}

// join waits for the request under way; ctx must have ended, or it may take its time.
func (s *pacedSink) join() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
}

// Create writes a new event.
func (s *pacedSink) Create(ev *v1.Event) (*v1.Event, error) {
	return s.send(func() (*v1.Event, error) {
		return s.api(ev.Namespace).Create(s.ctx, ev, metav1.CreateOptions{})
	})
}

// Update is not used by the recorder, which patches.
func (s *pacedSink) Update(ev *v1.Event) (*v1.Event, error) {
	return s.send(func() (*v1.Event, error) {
		return s.api(ev.Namespace).Update(s.ctx, ev, metav1.UpdateOptions{})
	})
}

// Patch counts an event that came again.
func (s *pacedSink) Patch(ev *v1.Event, data []byte) (*v1.Event, error) {
	return s.send(func() (*v1.Event, error) {
		return s.api(ev.Namespace).Patch(s.ctx, ev.Name, types.StrategicMergePatchType, data, metav1.PatchOptions{})
	})
}

func (e *events) record(ref *v1.ObjectReference, eventType, reason, message string) {
	if e.local != nil {
		e.local.add(ref, eventType, reason, message)
		return
	}
	e.mu.RLock()
	defer e.mu.RUnlock()
	if e.recorder != nil {
		e.recorder.Event(ref, eventType, reason, message)
	}
}

// Event records an event on a pod; container is "" or what it is about.
func (e *events) Event(p *v1.Pod, container, eventType, reason, message string) {
	ref := &v1.ObjectReference{Kind: "Pod", APIVersion: "v1", Namespace: p.Namespace, Name: p.Name, UID: p.UID, ResourceVersion: p.ResourceVersion}
	if container != "" {
		ref.FieldPath = fieldPath(p, container)
	}
	e.record(ref, eventType, reason, message)
}

// podEvent records an event on a pod of which only the name is known.
func (e *events) podEvent(ref pod.Ref, p *v1.Pod, container, eventType, reason, message string) {
	if p == nil {
		p = &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ref.Namespace, Name: ref.Name, UID: ref.UID}}
	}
	e.Event(p, container, eventType, reason, message)
}

// NodeEvent records an event on the node. Its UID is the node's name, as kubectl describe node looks for it.
func (e *events) NodeEvent(eventType, reason, message string) {
	e.record(&v1.ObjectReference{Kind: "Node", Name: e.nodeName, UID: types.UID(e.nodeName)}, eventType, reason, message)
}

func fieldPath(p *v1.Pod, container string) string {
	for i := range p.Spec.InitContainers {
		if p.Spec.InitContainers[i].Name == container {
			return "spec.initContainers{" + container + "}"
		}
	}
	for i := range p.Spec.EphemeralContainers {
		if p.Spec.EphemeralContainers[i].Name == container {
			return "spec.ephemeralContainers{" + container + "}"
		}
	}
	return "spec.containers{" + container + "}"
}
