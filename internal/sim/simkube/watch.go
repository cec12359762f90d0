package simkube

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
)

// bookmarkEvery is how often an idle watch gets a bookmark with the newest version.
const bookmarkEvery = time.Minute

// change is one entry of the history.
type change struct {
	kind     *kind
	typ      watch.EventType
	old, cur *object
}

// subscription is an open watch. It is the body of the response. It has no goroutine: its method Read waits for events and returns them.
type subscription struct {
	k         *Kube
	kind      *kind
	sel       selector
	ctx       context.Context
	bookmarks bool
	until     time.Time
	delay     time.Duration

	mu     sync.Mutex
	frames []frame
	rest   []byte // the rest of a frame that was read only in part
	err    error  // Read returns it after the frames
	mark   time.Time
	wake   chan struct{} // wakes Read when frames or err changes; capacity 1
}

// frame is one encoded event, and the time when it arrives.
type frame struct {
	due  time.Time
	data []byte
}

var _ io.ReadCloser = (*subscription)(nil)

// watch opens a watch. It begins with the history after the version, or with all objects if sendInitialEvents is set.
func (k *Kube) watch(ctx context.Context, kd *kind, req *request) (answer, error) {
	sel, err := readSelector(kd, req)
	if err != nil {
		return answer{}, err
	}
	rv, err := version(req)
	if err != nil {
		return answer{}, err
	}
	streamed := req.query.Get("sendInitialEvents") == "true"
	if streamed && (k.cfg.NoStreamedLists || req.query.Get("resourceVersionMatch") != string(metav1.ResourceVersionMatchNotOlderThan)) {
		return answer{}, apierrors.NewInvalid(schema.GroupKind{Group: "meta.k8s.io", Kind: "ListOptions"}, "", nil)
	}
	s := &subscription{k: k, kind: kd, sel: sel, ctx: ctx, bookmarks: req.query.Get("allowWatchBookmarks") == "true",
		delay: k.cfg.WatchLatency, wake: make(chan struct{}, 1), mark: time.Now().Add(bookmarkEvery)}
	if n, err := strconv.Atoi(req.query.Get("timeoutSeconds")); err == nil && n > 0 {
		s.until = time.Now().Add(time.Duration(n) * time.Second)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case rv > k.rv:
		return answer{}, tooLarge(rv, k.rv)
	case streamed, rv == 0:
		for _, o := range selected(kd, &sel) {
			s.push(watch.Added, o.json)
		}
		if streamed && s.bookmarks {
			s.push(watch.Bookmark, bookmark(kd, k.rv, map[string]string{metav1.InitialEventsAnnotationKey: "true"}))
		}
	case rv < k.oldest:
		e := apierrors.NewResourceExpired(fmt.Sprintf("too old resource version: %d (%d)", rv, k.oldest))
		s.push(watch.Error, encode(schema.GroupVersionKind{Version: "v1", Kind: "Status"}, &e.ErrStatus))
		s.err = io.EOF
		return answer{http.StatusOK, s}, nil
	default:
		for _, c := range k.log {
			if c.cur.rv > rv {
				s.offer(c)
			}
		}
	}
	if k.outage != nil { // the outage began while this request was on its way
		s.frames, s.err = nil, errReset
		return answer{http.StatusOK, s}, nil
	}
	k.watches[s] = true
	return answer{http.StatusOK, s}, nil
}

func bookmark(kd *kind, rv uint64, annotations map[string]string) []byte {
	obj := kd.new()
	if m, ok := obj.(metav1.Object); ok {
		m.SetResourceVersion(strconv.FormatUint(rv, 10))
		m.SetAnnotations(annotations)
	}
	return encode(kd.gvk, obj)
}

// offer passes a change to the watch if it matches. An object that begins to match is Added, one that ceases to match is
// Deleted.
func (s *subscription) offer(c change) {
	if c.kind != s.kind {
		return
	}
	was := c.typ != watch.Added && s.sel.matches(c.old)
	is := c.typ != watch.Deleted && s.sel.matches(c.cur)
	switch {
	case is && was:
		s.push(watch.Modified, c.cur.json)
	case is:
		s.push(watch.Added, c.cur.json)
	case was:
		s.push(watch.Deleted, c.cur.json)
	}
}

func (s *subscription) push(typ watch.EventType, obj []byte) {
	data := make([]byte, 0, len(obj)+32)
	data = append(append(append(data, `{"type":"`...), typ...), `","object":`...)
	data = append(append(data, obj...), "}\n"...)
	s.mu.Lock()
	if s.err == nil {
		s.frames = append(s.frames, frame{time.Now().Add(s.delay), data})
	}
	s.mu.Unlock()
	s.nudge()
}

func (s *subscription) nudge() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// end makes the reader fail: with io.EOF after it has read all frames, with another error at once. It may be called with the lock of k held.
func (s *subscription) end(err error) {
	s.mu.Lock()
	if s.err == nil {
		s.err = err
	}
	if err != io.EOF {
		s.frames = nil // a broken connection loses the frames that were not read
	}
	s.mu.Unlock()
	s.nudge()
}

// Read waits for the next event.
func (s *subscription) Read(p []byte) (int, error) {
	for {
		n, wait, err := s.next(p)
		if n > 0 || err != nil {
			return n, err
		}
		t := time.NewTimer(wait)
		select {
		case <-s.wake:
		case <-t.C:
		case <-s.ctx.Done():
			t.Stop()
			s.leave()
			return 0, s.ctx.Err()
		}
		t.Stop()
	}
}

// next reads the frames that have arrived, or returns how long to wait.
func (s *subscription) next(p []byte) (n int, wait time.Duration, err error) {
	s.k.mu.Lock()
	rv := s.k.rv
	s.k.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if len(s.rest) == 0 && len(s.frames) > 0 && !s.frames[0].due.After(now) {
		s.rest, s.frames = s.frames[0].data, s.frames[1:]
		s.mark = now.Add(bookmarkEvery)
	}
	if len(s.rest) > 0 {
		n = copy(p, s.rest)
		s.rest = s.rest[n:]
		return n, 0, nil
	}
	if len(s.frames) > 0 {
		return 0, s.frames[0].due.Sub(now), nil
	}
	switch {
	case s.err != nil:
		return 0, 0, s.err
	case !s.until.IsZero() && !s.until.After(now):
		return 0, 0, io.EOF
	case s.bookmarks && !s.mark.After(now) && s.delay == 0:
		s.mark = now.Add(bookmarkEvery)
		data := append([]byte(`{"type":"BOOKMARK","object":`), bookmark(s.kind, rv, nil)...)
		s.rest = append(data, "}\n"...)
		n = copy(p, s.rest)
		s.rest = s.rest[n:]
		return n, 0, nil
	}
	wait = time.Hour
	if s.bookmarks && s.delay == 0 {
		wait = s.mark.Sub(now)
	}
	if !s.until.IsZero() {
		wait = min(wait, s.until.Sub(now))
	}
	return 0, wait, nil
}

// Close ends the watch.
func (s *subscription) Close() error {
	s.leave()
	s.end(io.EOF)
	return nil
}

func (s *subscription) leave() {
	s.k.mu.Lock()
	delete(s.k.watches, s)
	s.k.mu.Unlock()
}

// Watches returns how many watches are open.
func (k *Kube) Watches() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.watches)
}
