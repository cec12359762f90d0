package agent

import (
	"context"

	"golang.org/x/time/rate"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	kubelet "k8s.io/kubelet/config/v1beta1"

	"github.com/wherry-node/wherry/internal/core/admit"
	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/edge/event"
)

// events records events on pods and on the node. Before open is called, and after the function that open returns, it drops events; the
// pod's timeline still has them. Without an API server, the field local keeps the newest events.
type events struct {
	nodeName string
	recorder *event.Recorder
	local    *event.Local // nil: events go to the API server
	shown    *event.Local // the events that the console shows; nil: none, because the node has an API server and no console
}

// maxReason is the API server's limit for the length of an event's reason.
const maxReason = 128

// buildEvents makes the event recorder.
func (a *Agent) buildEvents() error {
	e := &events{nodeName: a.cfg.NodeName}
	a.events = e
	a.eventRate = rate.NewLimiter(eventLimit(&a.cfg.Kubelet))
	cfg := event.Config{Source: v1.EventSource{Component: "kubelet", Host: e.nodeName}, Clock: a.clock(), Log: a.log}
	if a.clients.beats == nil {
		e.local = event.NewLocal(event.Kept)
		e.shown = e.local
		cfg.API = func(string) event.API { return e.local }
	} else {
		cfg.API, cfg.Rate, cfg.Turn, cfg.Before = a.clients.events, a.eventRate, a.deps.EventTurn, a.statusFirst
		if a.cfg.Console {
			e.shown = event.NewLocal(maxShownEvents)
			cfg.Keep = e.shown
		}
	}
	e.recorder = event.New(cfg)
	return nil
}

// statusFirst delays a warning about a pod that cannot start until the pod's first status is written, so that users who see the event
// also find the pod's conditions. Warnings about a missing name server or pull secret are not delayed, because the pod may start in spite
// of them.
func (a *Agent) statusFirst(ctx context.Context, ref *v1.ObjectReference, eventType, reason string) {
	switch reason {
	case "MissingClusterDNS", "DNSConfigForming", "FailedToRetrieveImagePullSecret":
		return
	}
	if ref.Kind == "Pod" && eventType == v1.EventTypeWarning {
		a.writer.First(ctx, ref.UID)
	}
}

// eventLimit returns the rate limit of events: eventRecordQPS and eventBurst. If no QPS is set, there is no limit.
func eventLimit(k *kubelet.KubeletConfiguration) (rate.Limit, int) {
	if k.EventRecordQPS == nil || *k.EventRecordQPS <= 0 {
		return rate.Inf, 0
	}
	return rate.Limit(*k.EventRecordQPS), int(max(1, k.EventBurst))
}

// open starts the sending of events. The returned function stops it and waits for the request in flight; it is called after ctx has
// ended.
func (e *events) open(ctx context.Context) (close func()) {
	return e.recorder.Open(ctx)
}

// record receives all events of the node and shortens their texts.
func (e *events) record(ref *v1.ObjectReference, eventType, reason, message string) {
	e.recorder.Record(ref, eventType, pod.TextMax(reason, maxReason), pod.Text(message))
}

// Event records an event on a pod. container is the name of the event's container, or "".
func (e *events) Event(p *v1.Pod, container, eventType, reason, message string) {
	ref := &v1.ObjectReference{Kind: "Pod", APIVersion: "v1", Namespace: p.Namespace, Name: p.Name, UID: p.UID, ResourceVersion: p.ResourceVersion}
	if container != "" {
		kind, _, _ := pod.KindOf(p, container)
		ref.FieldPath = kind.FieldPath(container)
	}
	e.record(ref, eventType, reason, message)
}

// evicted records the event of an evicted pod. Its annotations say which container used too much; tools read them.
func (e *events) evicted(p *v1.Pod, message string, annotations map[string]string) {
	ref := &v1.ObjectReference{Kind: "Pod", APIVersion: "v1", Namespace: p.Namespace, Name: p.Name, UID: p.UID, ResourceVersion: p.ResourceVersion}
	e.recorder.Annotated(ref, annotations, v1.EventTypeWarning, admit.ReasonEvicted, pod.Text(message))
}

// NodeEvent records an event on the node. The event's UID is the node's name, because kubectl describe node looks for it.
func (e *events) NodeEvent(eventType, reason, message string) {
	e.record(&v1.ObjectReference{Kind: "Node", Name: e.nodeName, UID: types.UID(e.nodeName)}, eventType, reason, message)
}
