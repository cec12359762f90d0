package agent

import (
	"context"
	"sync"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	typedv1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"

	"github.com/wherry-node/wherry/internal/pod"
)

// events records events on pods and on the node. Unless it is open, and without an API server, they are dropped: the
// timeline has them.
type events struct {
	client   kubernetes.Interface
	nodeName string
	scheme   *runtime.Scheme

	mu       sync.RWMutex
	recorder record.EventRecorder
}

func newEvents(client kubernetes.Interface, nodeName string) (*events, error) {
	s := runtime.NewScheme()
	if err := v1.AddToScheme(s); err != nil {
		return nil, err
	}
	return &events{client: client, nodeName: nodeName, scheme: s}, nil
}

// open begins to record; close ends it when all who record have ended.
func (e *events) open(ctx context.Context) (close func()) {
	if e.client == nil {
		return func() {}
	}
	b := record.NewBroadcaster(record.WithContext(ctx))
	sink := b.StartRecordingToSink(&typedv1.EventSinkImpl{Interface: e.client.CoreV1().Events("")})
	e.set(b.NewRecorder(e.scheme, v1.EventSource{Component: "kubelet", Host: e.nodeName}))
	return func() {
		e.set(nil)
		sink.Stop()
		b.Shutdown()
	}
}

func (e *events) set(r record.EventRecorder) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.recorder = r
}

func (e *events) record(ref *v1.ObjectReference, eventType, reason, message string) {
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
