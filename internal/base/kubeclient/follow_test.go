package kubeclient_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"github.com/wherry-node/wherry/internal/base/kubeclient"
	"github.com/wherry-node/wherry/internal/sim/simkube"
)

// mirror is a Followed (a set of objects that Follow keeps up to date) with the Services of a cluster.
type mirror struct {
	api *kubeclient.Resource[*v1.Service, *v1.ServiceList]

	mu       sync.Mutex
	have     map[string]bool
	lists    []time.Time
	failures int
}

func (m *mirror) List(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	m.mu.Lock()
	m.lists = append(m.lists, time.Now())
	m.mu.Unlock()
	return m.api.List(ctx, opts)
}

func (m *mirror) Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	return m.api.Watch(ctx, opts)
}

func (m *mirror) Replace(items []runtime.Object) bool {
	m.mu.Lock()
	m.have = map[string]bool{}
	m.mu.Unlock()
	for _, item := range items {
		m.Apply(watch.Added, item)
	}
	return false
}

func (m *mirror) Apply(event watch.EventType, obj runtime.Object) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.have[obj.(*v1.Service).Name] = true
	if event == watch.Deleted {
		delete(m.have, obj.(*v1.Service).Name)
	}
	return false
}

func (m *mirror) Failed(error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.failures++
}

// takeLists returns the times at which Follow has called List since the last call of takeLists.
func (m *mirror) takeLists() []time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := m.lists
	m.lists = nil
	return out
}

// Follow keeps a set correct after watches end, after an outage of the API server, and after a compaction of its history. It lists the
// objects again only if necessary.
func TestFollowKeepsUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := simkube.New(simkube.Config{})
		c, err := kubeclient.New(k.RESTConfig("t"))
		if err != nil {
			t.Fatal(err)
		}
		m := &mirror{api: c.Services("")}
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { kubeclient.Follow(ctx, m, 10*time.Second) })
		defer wg.Wait()
		defer cancel()

		var want []string
		see := func(what string, wait time.Duration, lists bool) {
			t.Helper()
			name := fmt.Sprintf("s%d", len(want))
			want = append(want, name)
			if _, err := c.Services("default").Create(ctx, &v1.Service{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"}}, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(wait)
			synctest.Wait()
			m.mu.Lock()
			for _, n := range want {
				if !m.have[n] {
					t.Errorf("%s: %s is not known", what, n)
				}
			}
			if len(m.have) != len(want) {
				t.Errorf("%s: %d are known, want %d", what, len(m.have), len(want))
			}
			m.mu.Unlock()
			if got := len(m.takeLists()); got > 0 != lists {
				t.Errorf("%s: %d lists, want any: %v", what, got, lists)
			}
		}
		see("the first", time.Second, true)
		time.Sleep(30 * time.Minute) // the server ends its watches
		see("after half an hour", time.Second, false)
		k.CutWatches()
		see("after a cut", time.Second, false)
		for range 10 { // changes of other objects, so that only bookmarks report newer versions
			if _, err := c.ConfigMaps("default").Create(ctx, &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "c-", Namespace: "default"}}, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(2 * time.Minute)
		k.Compact()
		k.CutWatches()
		see("after a compaction of what a bookmark was beyond", time.Second, false)
		k.SetOutage(true)
		time.Sleep(time.Hour)
		synctest.Wait()
		k.SetOutage(false)
		if m.failures < 200 || m.failures > 400 {
			t.Errorf("%d tries within an hour of outage, want one in 10 s to 15 s", m.failures)
		}
		see("after an outage", 15*time.Second, false)
		k.SetOutage(true)
		time.Sleep(time.Minute)
		k.SetOutage(false)
		if err := c.Services("default").Delete(ctx, want[0], metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		want = want[1:]
		k.Compact()
		time.Sleep(15 * time.Second)
		want = slices.Clone(want)
		m.mu.Lock()
		_, kept := m.have["s0"]
		m.mu.Unlock()
		if lists := m.takeLists(); kept || len(lists) != 1 {
			t.Errorf("after an outage and a compaction: the deleted one is there: %v, lists: %d", kept, len(lists))
		}
	})
}

// script is a Followed (a set of objects that Follow keeps up to date) whose lists and watches are functions of the test. It logs each
// call.
type script struct {
	list  func(opts metav1.ListOptions) (runtime.Object, error)
	watch func(opts metav1.ListOptions) (watch.Interface, error)
	log   []string
	most  int // number of log lines after which Follow ends
	end   context.CancelFunc
}

func (s *script) say(format string, args ...any) bool {
	s.log = append(s.log, fmt.Sprintf(format, args...))
	if len(s.log) >= s.most {
		s.end()
	}
	return false
}

func (s *script) List(_ context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	return s.list(opts)
}

func (s *script) Watch(_ context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	s.say("watch from %s", opts.ResourceVersion)
	return s.watch(opts)
}

func (s *script) Replace(items []runtime.Object) bool                { return s.say("replace by %d", len(items)) }
func (s *script) Apply(event watch.EventType, _ runtime.Object) bool { return s.say("%s", event) }
func (s *script) Failed(err error)                                   { s.say("failed: %v", err) }

func services(version, next string, n int) *v1.ServiceList {
	return &v1.ServiceList{ListMeta: metav1.ListMeta{ResourceVersion: version, Continue: next}, Items: make([]v1.Service, n)}
}

// follow runs Follow until the script has ended.
func (s *script) follow(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	s.end = cancel
	kubeclient.Follow(ctx, s, time.Minute)
}

// Follow lists again if the server no longer has a version or, after a restore from a backup, does not have it yet. After other
// failures it only watches again.
func TestWhereFollowContinues(t *testing.T) {
	t.Parallel()
	services7 := func(metav1.ListOptions) (runtime.Object, error) { return services("7", "", 1), nil }
	tooLarge := apierrors.NewTimeoutError("Too large resource version: 7, current: 3", 1)
	tooLarge.ErrStatus.Details = &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge}}}
	for name, c := range map[string]struct {
		err   error
		again bool
	}{
		"expired":      {apierrors.NewResourceExpired("old"), true},
		"gone":         {apierrors.FromObject(&metav1.Status{Status: metav1.StatusFailure, Reason: metav1.StatusReasonGone, Code: http.StatusGone, Message: "old"}), true},
		"too new":      {tooLarge, true},
		"not answered": {errors.New("connection refused"), false},
		"too many":     {apierrors.NewTooManyRequests("wait", 1), false},
		"forbidden":    {apierrors.NewForbidden(schema.GroupResource{Resource: "services"}, "", errors.New("no")), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := &script{list: services7, watch: func(metav1.ListOptions) (watch.Interface, error) { return nil, c.err }, most: 4}
				s.follow(t)
				want := []string{"replace by 1", "watch from 7", "failed: " + c.err.Error(), "replace by 1"}
				if !c.again {
					want[3] = "watch from 7"
				}
				if d := cmp.Diff(want, s.log[:4]); d != "" {
					t.Error(d)
				}
			})
		})
	}
}

// A list in pages is read completely, and endless pages are a failure.
func TestFollowReadsPages(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		never := func(metav1.ListOptions) (watch.Interface, error) { return watch.NewFake(), nil }
		s := &script{most: 1, watch: never, list: func(opts metav1.ListOptions) (runtime.Object, error) {
			switch opts.Continue {
			case "":
				return services("7", "two", 500), nil
			case "two":
				return services("7", "three", 500), nil
			}
			return services("7", "", 3), nil
		}}
		s.follow(t)
		if d := cmp.Diff([]string{"replace by 1003"}, s.log[:1]); d != "" {
			t.Error(d)
		}
		pages := 0
		s = &script{watch: never, list: func(metav1.ListOptions) (runtime.Object, error) {
			if pages++; pages > 3000 {
				return services("8", "", 0), nil
			}
			return services("7", "on", 0), nil
		}, most: 2}
		s.follow(t)
		if d := cmp.Diff([]string{"failed: read list: more than 2000 pages", "replace by 0"}, s.log[:2]); d != "" {
			t.Error(d)
		}
	})
}

// The waits between failures grow, even if each failing request takes a long time.
func TestFollowBacksOffWhereFailuresTakeTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began, tries := time.Now(), 0
		s := &script{list: func(metav1.ListOptions) (runtime.Object, error) {
			if time.Sleep(2 * time.Second); time.Since(began) > 50*time.Minute {
				return services("1", "", 0), nil
			}
			tries++
			return nil, errors.New("slow")
		}, most: 10000}
		s.watch = func(metav1.ListOptions) (watch.Interface, error) { return watch.NewFake(), nil }
		s.follow(t)
		if tries < 30 || tries > 80 {
			t.Errorf("%d tries in 50 minutes, want one in 60 to 90 s", tries)
		}
	})
}

// An endless answer causes an error; an endless watch does not.
func TestAnswersAreBounded(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Query().Get("watch") != "" {
			fmt.Fprintln(w, `{"type":"ADDED","object":{"kind":"Service","apiVersion":"v1","metadata":{"name":"s"}}}`)
			return
		}
		chunk := []byte(strings.Repeat(" ", 1<<20))
		for {
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
	}))
	t.Cleanup(server.Close)
	c, err := kubeclient.New(&rest.Config{Host: server.URL, QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Services("").List(t.Context(), metav1.ListOptions{}); err == nil || !strings.Contains(err.Error(), "longer than") {
		t.Errorf("a list without an end: %v", err)
	}
	w, err := c.Services("").Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	if e := <-w.ResultChan(); e.Type != watch.Added {
		t.Errorf("the watch says %v", e)
	}
}
