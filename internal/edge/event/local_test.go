package event_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/internal/edge/event"
)

// local calls f with a Local, and with a function that records an event through a Recorder that sends its events to the Local.
func local(t *testing.T, f func(l *event.Local, record func(object, message string))) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := event.NewLocal(event.Kept)
		r := event.New(event.Config{API: func(string) event.API { return l }})
		ctx, cancel := context.WithCancel(t.Context())
		join := r.Open(ctx)
		f(l, func(object, message string) {
			r.Record(&v1.ObjectReference{Kind: "Pod", Namespace: "ns", Name: object}, "Normal", "Pulled", message)
			synctest.Wait()
		})
		cancel()
		join()
	})
}

// ask makes one request; it returns the events as "object message count".
func ask(t *testing.T, l *event.Local, query string) (events []string, version string) {
	t.Helper()
	w := httptest.NewRecorder()
	l.ServeHTTP(w, httptest.NewRequest("GET", "/events"+query, nil))
	var list v1.EventList
	if err := json.Unmarshal(w.Body.Bytes(), &list); err != nil || list.Items == nil {
		t.Fatalf("%s: %v: %s", query, err, w.Body)
	}
	for _, e := range list.Items {
		events = append(events, fmt.Sprint(e.InvolvedObject.Name, " ", e.Message, " ", e.Count))
	}
	return events, list.ResourceVersion
}

func TestLocalEvents(t *testing.T) {
	local(t, func(l *event.Local, record func(object, message string)) {
		record("a", "x")
		record("b", "x")
		record("a", "x") // the event occurs again: it is counted, and becomes the newest one
		got, version := ask(t, l, "")
		if d := cmp.Diff([]string{"b x 1", "a x 2"}, got); d != "" || version != "3" {
			t.Errorf("version %s: %s", version, d)
		}
		if got, version := ask(t, l, "?after=2"); version != "3" || cmp.Diff([]string{"a x 2"}, got) != "" {
			t.Errorf("after 2: %v, %s", got, version)
		}
		if got, _ := ask(t, l, "?after=90"); len(got) != 2 { // a version that an earlier agent returned
			t.Errorf("after a version of an earlier agent: %v", got)
		}
		began := time.Now()
		if got, _ := ask(t, l, "?after=3&wait=1000000000000"); len(got) != 0 || time.Since(began) != time.Minute {
			t.Errorf("waited %v for %v", time.Since(began), got)
		}
		go func() {
			time.Sleep(5 * time.Second)
			record("c", "y")
		}()
		began = time.Now()
		if got, version := ask(t, l, "?after=3&wait=30"); version != "4" || time.Since(began) != 5*time.Second || cmp.Diff([]string{"c y 1"}, got) != "" {
			t.Errorf("after %v: %v, %s", time.Since(began), got, version)
		}
		for _, bad := range []string{"?after=x", "?wait=-1", "?after=99999999999999999999"} {
			w := httptest.NewRecorder()
			if l.ServeHTTP(w, httptest.NewRequest("GET", "/events"+bad, nil)); w.Code != 400 {
				t.Errorf("%s: %d", bad, w.Code)
			}
		}
	})
}

// A client that waits with the resourceVersion of an earlier agent gets the first event of the new agent.
func TestLocalEventsOfANewAgent(t *testing.T) {
	local(t, func(l *event.Local, record func(object, message string)) {
		go func() {
			time.Sleep(5 * time.Second)
			record("a", "x")
		}()
		began := time.Now()
		if got, version := ask(t, l, "?after=90&wait=30"); version != "1" || time.Since(began) != 5*time.Second || cmp.Diff([]string{"a x 1"}, got) != "" {
			t.Errorf("after %v: %v, %s", time.Since(began), got, version)
		}
	})
}

// The newest 512 events stay, and an event that was dropped is created again when it occurs again.
func TestLocalEventsAreBounded(t *testing.T) {
	local(t, func(l *event.Local, record func(object, message string)) {
		record("first", "x")
		for i := range 511 {
			record(fmt.Sprint(i), "x")
		}
		record("first", "x") // the event occurs again and becomes the newest one, so another one is dropped
		record("last", "x")
		got, _ := ask(t, l, "")
		if len(got) != 512 || got[0] != "1 x 1" || got[510] != "first x 2" || got[511] != "last x 1" {
			t.Errorf("%d events, first %s, last %v", len(got), got[0], got[len(got)-2:])
		}
		record("0", "x")
		if got, _ := ask(t, l, ""); len(got) != 512 || got[511][:4] != "0 x " {
			t.Errorf("%d events, last %v", len(got), got[len(got)-1])
		}
	})
}

// A Recorder with Keep keeps each event that it sends, once with its count, also while the API server is away, and only the newest ones.
func TestEventsOfAServerAreKept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := event.NewLocal(3)
		away := &server{began: time.Now(), events: map[string]*v1.Event{}, fail: func() error { return errors.New("connection refused") }}
		r := event.New(event.Config{API: func(string) event.API { return away }, Keep: l})
		ctx, cancel := context.WithCancel(t.Context())
		join := r.Open(ctx)
		shown := func() (out []string) {
			for _, e := range l.Newest(100) {
				out = append(out, fmt.Sprintf("%s %s %d", e.InvolvedObject.Name, e.Message, e.Count))
			}
			return out
		}
		say := func(object, message string) {
			r.Record(&v1.ObjectReference{Kind: "Pod", Namespace: "ns", Name: object}, "Warning", "Failed", message)
			time.Sleep(10 * time.Minute) // longer than all tries
		}
		say("a", "one")
		say("b", "two")
		say("a", "one")
		if diff := cmp.Diff([]string{"b two 1", "a one 2"}, shown()); diff != "" {
			t.Error(diff)
		}
		say("c", "three")
		say("d", "four")
		if diff := cmp.Diff([]string{"a one 2", "c three 1", "d four 1"}, shown()); diff != "" {
			t.Error(diff)
		}
		if len(away.events) > 0 || len(away.lines) == 0 {
			t.Errorf("the server has %d events after %d requests", len(away.events), len(away.lines))
		}
		cancel()
		join()
	})
}
