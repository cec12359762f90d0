package podsapi

import (
	"hash/maphash"
	"maps"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	podsv1alpha1 "k8s.io/kubelet/pkg/apis/pods/v1alpha1"
)

// watcher is one open WatchPods.
type watcher struct {
	changed map[types.UID]bool // the pods that may have changed since take was last called; Server.mu guards it
	wake    chan struct{}      // holds a value while changed is not empty

	// Only the goroutine of the stream uses these.
	stream grpc.ServerStreamingServer[podsv1alpha1.WatchPodsEvent]
	seed   maphash.Seed
	told   map[types.UID]told // what the client was told of each pod that it knows
}

// told is what a client was told last of a pod.
type told struct {
	namespace, name string
	sum             uint64 // of the encoded pod
}

// Changed tells the watchers that a pod may have changed, may be new, or may be gone. It does not block.
func (s *Server) Changed(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for w := range s.watchers {
		w.changed[uid] = true
		select {
		case w.wake <- struct{}{}:
		default:
		}
	}
}

// WatchPods sends an ADDED event for each pod of the node, then INITIAL_SYNC_COMPLETE, and then an event for each change, until the client
// ends the call or the agent ends.
func (s *Server) WatchPods(_ *podsv1alpha1.WatchPodsRequest, stream grpc.ServerStreamingServer[podsv1alpha1.WatchPodsEvent]) error {
	w := s.join(stream)
	if w == nil {
		return status.Errorf(codes.ResourceExhausted, "%d clients watch the pods of the node already", maxWatchers)
	}
	defer s.leave(w)
	for _, p := range s.sorted() { // after join, so that no change is missed
		if err := w.tell(p.UID, p); err != nil {
			return err
		}
	}
	if err := stream.Send(&podsv1alpha1.WatchPodsEvent{Type: podsv1alpha1.EventType_INITIAL_SYNC_COMPLETE}); err != nil {
		return err
	}
	for {
		select {
		case <-stream.Context().Done():
			return status.FromContextError(stream.Context().Err()).Err()
		case <-w.wake:
		}
		for _, uid := range s.take(w) {
			if err := w.tell(uid, s.pods.ByUID(uid)); err != nil {
				return err
			}
		}
	}
}

// join adds a watcher. It returns nil if there are too many.
func (s *Server) join(stream grpc.ServerStreamingServer[podsv1alpha1.WatchPodsEvent]) *watcher {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.watchers) >= maxWatchers {
		return nil
	}
	w := &watcher{changed: map[types.UID]bool{}, wake: make(chan struct{}, 1), stream: stream, seed: maphash.MakeSeed(), told: map[types.UID]told{}}
	s.watchers[w] = true
	return w
}

func (s *Server) leave(w *watcher) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.watchers, w)
}

// take returns the pods that may have changed since the last call, in the order of their UIDs.
func (s *Server) take(w *watcher) []types.UID {
	s.mu.Lock()
	defer s.mu.Unlock()
	uids := slices.Sorted(maps.Keys(w.changed))
	clear(w.changed)
	return uids
}

// tell sends the event that is due about a pod, if any. p is nil if the node has no such pod. It blocks while the client does not read.
func (w *watcher) tell(uid types.UID, p *v1.Pod) error {
	was, known := w.told[uid]
	event := &podsv1alpha1.WatchPodsEvent{Type: podsv1alpha1.EventType_ADDED}
	switch {
	case p == nil && !known:
		return nil
	case p == nil: // "For DELETED events, only the pod name, namespace, and UID are guaranteed to be set."
		delete(w.told, uid)
		event.Type = podsv1alpha1.EventType_DELETED
		p = &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: was.namespace, Name: was.name, UID: uid}}
	case known:
		event.Type = podsv1alpha1.EventType_MODIFIED
	}
	b, err := encode(p)
	if err != nil {
		return err
	}
	if event.Type != podsv1alpha1.EventType_DELETED {
		sum := maphash.Bytes(w.seed, b)
		if known && sum == was.sum {
			return nil
		}
		w.told[uid] = told{namespace: p.Namespace, name: p.Name, sum: sum}
	}
	event.Pod = b
	return w.stream.Send(event)
}
