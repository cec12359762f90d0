package event_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/time/rate"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/edge/event"
)

// server is a fake of the events API that records the requests.
type server struct {
	mu     sync.Mutex
	began  time.Time
	lines  []string
	events map[string]*v1.Event
	fail   func() error
}

func (s *server) say(format string, args ...any) error {
	s.lines = append(s.lines, time.Since(s.began).String()+" "+fmt.Sprintf(format, args...))
	if s.fail != nil {
		return s.fail()
	}
	return nil
}

func (s *server) Create(_ context.Context, ev *v1.Event, _ metav1.CreateOptions) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.say("create %d %s", ev.Count, ev.Message); err != nil {
		return err
	}
	if s.events[ev.Name] != nil {
		return apierrors.NewAlreadyExists(schema.GroupResource{Resource: "events"}, ev.Name)
	}
	s.events[ev.Name] = ev
	return nil
}

func (s *server) Patch(_ context.Context, name string, _ types.PatchType, body []byte, _ metav1.PatchOptions) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	ev := s.events[name]
	if ev == nil {
		_ = s.say("patch of what is gone")
		return apierrors.NewNotFound(schema.GroupResource{Resource: "events"}, name)
	}
	if err := json.Unmarshal(body, ev); err != nil {
		return err
	}
	return s.say("patch %d %s", ev.Count, ev.Message)
}

func (s *server) take() string {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	out := strings.Join(s.lines, "\n")
	s.lines = nil
	return out
}

func (s *server) set(fail func() error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = fail
}

// run calls f in a synctest bubble (virtual time). tell records an event through an open Recorder, which sends its requests to s.
func run(t *testing.T, limit *rate.Limiter, f func(s *server, tell func(object, reason, message string))) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &server{began: time.Now(), events: map[string]*v1.Event{}}
		r := event.New(event.Config{API: func(string) event.API { return s }, Rate: limit, Source: v1.EventSource{Component: "kubelet", Host: "n1"}})
		ctx, cancel := context.WithCancel(t.Context())
		join := r.Open(ctx)
		f(s, func(object, reason, message string) {
			r.Record(&v1.ObjectReference{Kind: "Pod", Namespace: "ns", Name: object, UID: types.UID(object)}, "Normal", reason, message)
			synctest.Wait() // events of different objects may be sent in any order, so wait after each
		})
		cancel()
		join()
	})
}

func want(t *testing.T, s *server, lines ...string) {
	t.Helper()
	if diff := cmp.Diff(strings.Join(lines, "\n"), s.take()); diff != "" {
		t.Error(diff)
	}
}

func TestTheSameAgainIsCounted(t *testing.T) {
	run(t, nil, func(s *server, tell func(object, reason, message string)) {
		tell("a", "Started", "x")
		tell("a", "Started", "y")
		tell("b", "Started", "x")
		want(t, s, "0s create 1 x", "0s create 1 y", "0s create 1 x")
		time.Sleep(time.Minute)
		tell("a", "Started", "x")
		want(t, s, "1m0s patch 2 x")
		if len(s.events) != 3 {
			t.Errorf("%d events, want 3: %v", len(s.events), s.events)
		}
		for name, ev := range s.events {
			if ev.Count == 2 && (!strings.HasPrefix(name, "a.") || ev.LastTimestamp.Sub(ev.FirstTimestamp.Time) != time.Minute || ev.Namespace != "ns" ||
				ev.ReportingController != "kubelet" || ev.ReportingInstance != "n1" || ev.Source.Host != "n1" || ev.InvolvedObject.UID != "a") {
				t.Errorf("%v", ev)
			}
		}
		clear(s.events) // an API server drops events after an hour
		tell("a", "Started", "x")
		want(t, s, "1m0s patch of what is gone", "1m0s create 3 x")
	})
}

func TestManyTextsOfOneReasonAreCombined(t *testing.T) {
	run(t, nil, func(s *server, tell func(object, reason, message string)) {
		for i := range 12 {
			tell("a", "Failed", fmt.Sprint(i))
		}
		lines := strings.Split(s.take(), "\n")
		if diff := cmp.Diff([]string{"0s create 1 8", "0s create 1 (combined from similar events): 9", "0s patch 2 (combined from similar events): 10",
			"0s patch 3 (combined from similar events): 11"}, lines[8:]); diff != "" {
			t.Error(diff)
		}
		tell("a", "Pulled", "other")
		tell("b", "Failed", "12")
		want(t, s, "0s create 1 other", "0s create 1 12")
		time.Sleep(11 * time.Minute)
		tell("a", "Failed", "13")
		want(t, s, "11m0s create 1 13")
	})
}

func TestOneObjectDoesNotFloodTheOthers(t *testing.T) {
	run(t, nil, func(s *server, tell func(object, reason, message string)) {
		for range 100 {
			tell("a", "BackOff", "x")
		}
		if n := strings.Count(s.take(), "\n") + 1; n != 25 {
			t.Errorf("%d requests, want 25", n)
		}
		tell("b", "BackOff", "x")
		want(t, s, "0s create 1 x")
		time.Sleep(5 * time.Minute)
		tell("a", "BackOff", "x")
		tell("a", "BackOff", "x")
		want(t, s, "5m0s patch 101 x")
	})
}

func TestAnAPIServerThatIsAway(t *testing.T) {
	run(t, nil, func(s *server, tell func(object, reason, message string)) {
		s.set(func() error { return errors.New("connection refused") })
		tell("a", "Started", "x")
		tell("a", "Started", "y")
		time.Sleep(45 * time.Second)
		s.take()
		s.set(nil)
		time.Sleep(10 * time.Second)
		if got := s.take(); strings.Count(got, "create 1 x") != 1 || strings.Count(got, "create 1 y") != 1 {
			t.Errorf("when it was back:\n%s", got)
		}
		s.set(func() error { return errors.New("connection refused") })
		tell("b", "Started", "lost")
		time.Sleep(10 * time.Minute)
		if n := strings.Count(s.take(), "lost"); n != 12 {
			t.Errorf("tried %d times, want 12", n)
		}
		s.set(func() error { return apierrors.NewForbidden(schema.GroupResource{Resource: "events"}, "", nil) })
		tell("c", "Started", "x")
		time.Sleep(10 * time.Minute)
		want(t, s, "10m55s create 1 x")
	})
}

// An event whose sending has to be repeated delays other events of its object and of its queue, but not those of other queues.
func TestOneEventDoesNotDelayAll(t *testing.T) {
	run(t, nil, func(s *server, tell func(object, reason, message string)) {
		s.set(func() error { return errors.New("connection refused") })
		tell("a", "Pulled", "first")
		want(t, s, "0s create 1 first")
		s.set(nil)
		tell("a", "Started", "second")
		for i := range 16 {
			tell(fmt.Sprintf("other-%d", i), "Started", "x")
		}
		at := s.take()
		if n := strings.Count(at, "0s create 1 x"); n < 8 || n == 16 || strings.Contains(at, "second") {
			t.Errorf("at once, of 16 others and none of its own:\n%s", at)
		}
		time.Sleep(10 * time.Second)
		if later := s.take(); strings.Count(at+later, "create 1 x") != 16 || !regexp.MustCompile(`(?s)^\S+ create 1 first\n\S+ create 1 second\n`).MatchString(later) {
			t.Errorf("then:\n%s", later)
		}
	})
}

// The Recorder sends no more events per second than its limit: "eventRecordQPS is the maximum event creations per second."
func TestPace(t *testing.T) {
	run(t, rate.NewLimiter(1, 2), func(s *server, tell func(object, reason, message string)) {
		for i := range 4 {
			tell(fmt.Sprint(i), "Started", "x")
		}
		time.Sleep(time.Minute)
		want(t, s, "0s create 1 x", "0s create 1 x", "1s create 1 x", "2s create 1 x")
	})
}

func TestClosed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &server{began: time.Now(), events: map[string]*v1.Event{}}
		r := event.New(event.Config{API: func(string) event.API { return s }})
		ref := &v1.ObjectReference{Kind: "Node", Name: strings.Repeat("n", 252)}
		r.Record(ref, "Normal", "Early", "")
		ctx, cancel := context.WithCancel(t.Context())
		join := r.Open(ctx)
		r.Record(ref, "Normal", "Started", "x")
		want(t, s, "0s create 1 x")
		for name, ev := range s.events {
			if len(name) > 253 || ev.Namespace != "default" {
				t.Errorf("%d characters, namespace %q", len(name), ev.Namespace)
			}
		}
		cancel()
		r.Record(ref, "Normal", "Late", "")
		join()
		want(t, s)
	})
}

// The log has a line for each event that is sent, from -v=2 on.
func TestEventsAreLogged(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		verbosity int
		want      string
	}{
		{2, "event pod=default/web type=Warning reason=Unhealthy message=\"it fails\"\n" +
			"event pod=default/web type=Warning reason=Unhealthy message=\"it fails\" count=2\n" +
			"event pod=default/web container=app type=Normal reason=Started message=\"Container started\"\n" +
			"event type=Normal reason=NodeReady message=\"it is ready\"\n"},
		{1, ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			var out bytes.Buffer
			plain := func(_ []string, a slog.Attr) slog.Attr {
				if a.Key == slog.TimeKey || a.Key == slog.LevelKey {
					return slog.Attr{}
				}
				return a
			}
			s := &server{began: time.Now(), events: map[string]*v1.Event{}}
			r := event.New(event.Config{
				API: func(string) event.API { return s },
				Log: slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.Level(-c.verbosity), ReplaceAttr: plain})),
			})
			ctx, cancel := context.WithCancel(t.Context())
			wait := r.Open(ctx)
			pod := &v1.ObjectReference{Kind: "Pod", Namespace: "default", Name: "web", UID: "u"}
			for range 2 {
				r.Record(pod, v1.EventTypeWarning, "Unhealthy", "it fails")
				synctest.Wait()
			}
			pod.FieldPath = "spec.containers{app}"
			r.Record(pod, v1.EventTypeNormal, "Started", "Container started")
			synctest.Wait()
			r.Record(&v1.ObjectReference{Kind: "Node", Name: "n1", UID: "n1"}, v1.EventTypeNormal, "NodeReady", "it is ready")
			synctest.Wait()
			cancel()
			wait()
			if got := strings.ReplaceAll(out.String(), "msg=", ""); got != c.want {
				t.Errorf("at -v=%d:\n%swant:\n%s", c.verbosity, got, c.want)
			}
		})
	}
}
