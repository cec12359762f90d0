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

// maxChanged bounds how many pods may change while a client does not read. A node has far fewer pods, so that only a client that has not read
// for long exceeds it.
const maxChanged = 4096

// watcher is one open WatchPods.
type watcher struct {
	changed map[types.UID]bool // the pods that may have changed since take was last called; Server.mu guards it
	wake    chan struct{}      // holds a value while changed is not empty
	behind  chan struct{}      // closed when changed would have more than maxChanged pods; the watch then ends

	// Only the goroutine of send uses these.
	stream grpc.ServerStreamingServer[podsv1alpha1.WatchPodsEvent]
	seed   maphash.Seed
	told   map[types.UID]told // what the client was told of each pod that it knows
}

// told is what a client was told last of a pod.
type told struct {
	namespace, name string
	sum             uint64 // of the encoded pod
}

// Changed tells the watchers that a pod may have changed, may be new, or may be gone. It does not block. It ends the watch of a client that
// is too far behind.
func (s *Server) Changed(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for w := range s.watchers {
		if len(w.changed) >= maxChanged && !w.changed[uid] {
			close(w.behind)
			s.behind()
			delete(s.watchers, w)
			continue
		}
		w.changed[uid] = true
		select {
		case w.wake <- struct{}{}:
		default:
		}
	}
}

// WatchPods sends an ADDED event for each pod of the node, then INITIAL_SYNC_COMPLETE, and then an event for each change, until the client
// ends the call or is too far behind, or until the agent ends.
func (s *Server) WatchPods(_ *podsv1alpha1.WatchPodsRequest, stream grpc.ServerStreamingServer[podsv1alpha1.WatchPodsEvent]) error {
	w := s.join(stream)
	if w == nil {
		return status.Errorf(codes.ResourceExhausted, "%d clients watch the pods of the node already", maxWatchers)
	}
	defer s.leave(w)
	ended := make(chan error, 1)
	s.sends.Go(func() { ended <- s.send(w) }) // another goroutine, because only a return of WatchPods ends a Send for which the client has no room
	select {
	case err := <-ended:
		return err
	case <-w.behind:
		return status.Errorf(codes.ResourceExhausted, "more than %d pods have changed since the client last read an event: watch again", maxChanged)
	}
}

// send sends the events of a watch, until the stream ends.
func (s *Server) send(w *watcher) error {
	for _, p := range s.sorted() { // after join, so that no change is missed
		if err := w.tell(p.UID, p); err != nil {
			return err
		}
	}
	if err := w.stream.Send(&podsv1alpha1.WatchPodsEvent{Type: podsv1alpha1.EventType_INITIAL_SYNC_COMPLETE}); err != nil {
		return err
	}
	for {
		select {
		case <-w.stream.Context().Done():
			return status.FromContextError(w.stream.Context().Err()).Err()
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
	w := &watcher{
		changed: map[types.UID]bool{}, wake: make(chan struct{}, 1), behind: make(chan struct{}),
		stream: stream, seed: maphash.MakeSeed(), told: map[types.UID]told{},
	}
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
