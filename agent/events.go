package agent

import (
	"context"

	"golang.org/x/time/rate"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	kubelet "k8s.io/kubelet/config/v1beta1"

	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/edge/event"
)

// events records events on pods and on the node. Unless it is open they are dropped: the timeline has them. Without an API
// server the newest stay here.
type events struct {
	nodeName string
	recorder *event.Recorder
	local    *event.Local // nil: the API server has them
}

// maxReason is how long the API server lets the reason of an event be.
const maxReason = 128

// buildEvents makes what records events.
func (a *Agent) buildEvents() error {
	e := &events{nodeName: a.cfg.NodeName}
	a.events = e
	cfg := event.Config{Source: v1.EventSource{Component: "kubelet", Host: e.nodeName}, Log: a.log}
	if a.clients.beats == nil {
		e.local = event.NewLocal()
		cfg.API = func(string) event.API { return e.local }
	} else {
		cfg.API, cfg.Rate, cfg.Before = a.clients.events, eventRate(&a.cfg.Kubelet), a.statusFirst
	}
	e.recorder = event.New(cfg)
	return nil
}

// statusFirst lets no warning of what holds a pod up go before the pod's first status: who sees the event finds the
// conditions. A pod that only lacks a name server or a pull secret may start all the same, with one status.
func (a *Agent) statusFirst(ctx context.Context, ref *v1.ObjectReference, eventType, reason string) {
	switch reason {
	case "MissingClusterDNS", "DNSConfigForming", "FailedToRetrieveImagePullSecret":
		return
	}
	if ref.Kind == "Pod" && eventType == v1.EventTypeWarning {
		a.writer.First(ctx, ref.UID)
	}
}

// eventRate bounds the events sent: eventRecordQPS and eventBurst; no QPS, no bound.
func eventRate(k *kubelet.KubeletConfiguration) *rate.Limiter {
	if k.EventRecordQPS == nil || *k.EventRecordQPS <= 0 {
		return nil
	}
	return rate.NewLimiter(rate.Limit(*k.EventRecordQPS), int(max(1, k.EventBurst)))
}

// open begins to record; close ends it when ctx has ended, and waits for the request under way.
func (e *events) open(ctx context.Context) (close func()) {
	return e.recorder.Open(ctx)
}

// record is where all events of the node go through: here their texts are bounded, whoever wrote them.
func (e *events) record(ref *v1.ObjectReference, eventType, reason, message string) {
	e.recorder.Record(ref, eventType, pod.TextMax(reason, maxReason), pod.Text(message))
}

// Event records an event on a pod; container is "" or what it is about.
func (e *events) Event(p *v1.Pod, container, eventType, reason, message string) {
	ref := &v1.ObjectReference{Kind: "Pod", APIVersion: "v1", Namespace: p.Namespace, Name: p.Name, UID: p.UID, ResourceVersion: p.ResourceVersion}
	if container != "" {
		kind, _, _ := pod.KindOf(p, container)
		ref.FieldPath = kind.FieldPath(container)
	}
	e.record(ref, eventType, reason, message)
}

// NodeEvent records an event on the node. Its UID is the node's name, as kubectl describe node looks for it.
func (e *events) NodeEvent(eventType, reason, message string) {
	e.record(&v1.ObjectReference{Kind: "Node", Name: e.nodeName, UID: types.UID(e.nodeName)}, eventType, reason, message)
}
