package simcri

import (
	"context"
	"io"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// backlog is how many unread events a subscriber may have. With more, its stream ends with an error.
const backlog = 4096

// subscription is one reader of events. The reader either calls next again and again, or calls follow once.
type subscription struct {
	mu     sync.Mutex
	events []*runtimeapi.ContainerEventResponse
	err    error
	wake   chan struct{} // wakes next when events or err changes; capacity 1
	// event and ended are the functions that follow was called with; nil: it was not called. delivers says that a goroutine calls them.
	event    func(*runtimeapi.ContainerEventResponse)
	ended    func(error)
	delivers bool
}

func (s *subscription) push(e *runtimeapi.ContainerEventResponse) {
	s.mu.Lock()
	if len(s.events) >= backlog {
		s.err = status.Error(codes.ResourceExhausted, "the subscriber reads events too slowly")
	} else if s.err == nil {
		s.events = append(s.events, e)
	}
	s.nudge()
	s.mu.Unlock()
}

func (s *subscription) end(err error) {
	s.mu.Lock()
	if s.err == nil {
		s.err = err
	}
	s.nudge()
	s.mu.Unlock()
}

// nudge makes the reader get what is new. The caller holds the lock.
func (s *subscription) nudge() {
	if s.event != nil {
		if !s.delivers {
			s.delivers = true
			go s.deliver()
		}
		return
	}
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// take returns the next event, or why there will be no more; nil and nil: there is no event now. The caller holds the lock.
func (s *subscription) take() (*runtimeapi.ContainerEventResponse, error) {
	if len(s.events) == 0 {
		return nil, s.err
	}
	e := s.events[0]
	if s.events = s.events[1:]; len(s.events) == 0 {
		s.events = nil
	}
	return e, nil
}

// next returns the next event. It blocks until there is one.
func (s *subscription) next(ctx context.Context) (*runtimeapi.ContainerEventResponse, error) {
	for {
		s.mu.Lock()
		e, err := s.take()
		s.mu.Unlock()
		if e != nil || err != nil {
			return e, err
		}
		select {
		case <-s.wake:
		case <-ctx.Done():
			return nil, status.FromContextError(ctx.Err()).Err()
		}
	}
}

// follow calls event for each event, one after another, and ended when there will be no more.
func (s *subscription) follow(event func(*runtimeapi.ContainerEventResponse), ended func(error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.event, s.ended = event, ended
	s.nudge() // events may have come before
}

// deliver calls event until there is no event, and ended after the last one.
func (s *subscription) deliver() {
	for {
		s.mu.Lock()
		e, err := s.take()
		if e == nil && err == nil {
			s.delivers = false
			s.mu.Unlock()
			return
		}
		s.mu.Unlock()
		if err != nil { // delivers stays set, so that ended is called once
			s.ended(err)
			return
		}
		s.event(e)
	}
}

// emit sends an event to all subscribers. The caller holds the lock and has already made the change that the event reports.
func (r *Runtime) emit(s *sandbox, id string, typ runtimeapi.ContainerEventType) {
	if len(r.subs) == 0 && r.cfg.Observe == nil {
		return
	}
	e := &runtimeapi.ContainerEventResponse{
		ContainerId: id, ContainerEventType: typ, CreatedAt: time.Now().UnixNano(), PodSandboxStatus: sandboxStatus(s),
	}
	for _, c := range s.containers {
		e.ContainersStatuses = append(e.ContainersStatuses, containerStatus(c))
	}
	if r.cfg.Observe != nil {
		r.cfg.Observe(e)
	}
	if len(r.faults) > 0 && r.fault(MethodEvent, target{pod: s.meta.Name}) != nil {
		return
	}
	for _, sub := range r.subs {
		sub.push(e)
	}
}

// subscribe starts a subscription to events.
func (r *Runtime) subscribe(ctx context.Context) (*subscription, func(), error) {
	if r.cfg.NoEvents {
		return nil, nil, status.Error(codes.Unimplemented, "this runtime has no container events")
	}
	if _, err := r.enter(ctx, "GetContainerEvents", nil); err != nil {
		return nil, nil, err
	}
	sub := &subscription{wake: make(chan struct{}, 1)}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, nil, status.Error(codes.Unavailable, "the runtime is closed")
	}
	r.subs = append(r.subs, sub)
	return sub, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.subs = slices.DeleteFunc(r.subs, func(s *subscription) bool { return s == sub })
	}, nil
}

// dropSubscribers ends all event streams. The caller holds the lock.
func (r *Runtime) dropSubscribers(err error) {
	for _, s := range r.subs {
		s.end(err)
	}
	r.subs = nil
}

// Disconnect ends all event streams, as a restart of the runtime does.
func (r *Runtime) Disconnect() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.dropSubscribers(status.Error(codes.Unavailable, "the runtime was restarted"))
}

// GetContainerEvents sends events from now on until the caller's context ends.
func (r *Runtime) GetContainerEvents(_ *runtimeapi.GetEventsRequest, stream runtimeapi.RuntimeService_GetContainerEventsServer) error {
	ctx := stream.Context()
	sub, leave, err := r.subscribe(ctx)
	if err != nil {
		return err
	}
	defer leave()
	for {
		e, err := sub.next(ctx)
		if err != nil {
			return err
		}
		if err := stream.Send(e); err != nil {
			return err
		}
	}
}

// clientStream is a stream of answers in process. It needs no goroutine: Recv produces the answers.
type clientStream[T any] struct {
	ctx  context.Context
	recv func(context.Context) (*T, error)
}

// Recv returns the next answer, and io.EOF after the last.
func (s *clientStream[T]) Recv() (*T, error) { return s.recv(s.ctx) }

// Context returns the context of the call.
func (s *clientStream[T]) Context() context.Context { return s.ctx }

// Header returns no headers.
func (s *clientStream[T]) Header() (metadata.MD, error) { return nil, nil }

// Trailer returns no trailers.
func (s *clientStream[T]) Trailer() metadata.MD { return nil }

// CloseSend does nothing, because the client sends nothing.
func (s *clientStream[T]) CloseSend() error { return nil }

// SendMsg returns an error, because the stream is read only.
func (s *clientStream[T]) SendMsg(any) error {
	return status.Error(codes.Unimplemented, "this stream is read only")
}

// RecvMsg returns an error. Generated code does not call it here.
func (s *clientStream[T]) RecvMsg(any) error {
	return status.Error(codes.Unimplemented, "use Recv")
}

// once returns a stream of one answer.
func once[T any](ctx context.Context, answer *T) *clientStream[T] {
	sent := false
	return &clientStream[T]{ctx: ctx, recv: func(context.Context) (*T, error) {
		if sent {
			return nil, io.EOF
		}
		sent = true
		return answer, nil
	}}
}

// empty returns a stream without answers.
func empty[T any](ctx context.Context) *clientStream[T] {
	return &clientStream[T]{ctx: ctx, recv: func(context.Context) (*T, error) { return nil, io.EOF }}
}
