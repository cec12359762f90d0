package kubeclient_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/wherry-node/wherry/internal/base/kubeclient"
)

// noted is a Meter that records its calls.
type noted struct {
	mu    sync.Mutex
	lines []string
}

func (n *noted) note(format string, args ...any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lines = append(n.lines, fmt.Sprintf(format, args...))
}

func (n *noted) Answered(method, host string, status int) {
	n.note("answered %s %s %d", method, host, status)
}

func (n *noted) Repeated(method, host string, status int) {
	n.note("repeated %s %s %d", method, host, status)
}

func (n *noted) Read(method, host string, _ time.Duration, sent, received int64) {
	n.note("read %s %s %t %d", method, host, sent > 0, received)
}

func (n *noted) Limited(method, host string, _ time.Duration) { n.note("limited %s %s", method, host) }

// take returns the calls since the last take, sorted, with HOST for the server.
func (n *noted) take(host string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	slices.Sort(n.lines)
	out := strings.ReplaceAll(strings.Join(n.lines, "; "), host, "HOST")
	n.lines = nil
	return out
}

// Each answer to a request is counted once. If client-go repeats a request, each of the answers is counted. For a watch, Read is not
// called.
func TestMeter(t *testing.T) {
	t.Parallel()
	tries := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tries++
		switch {
		case r.Method == http.MethodDelete && tries == 1:
			w.Header().Set("Retry-After", "0")
			w.WriteHeader(http.StatusTooManyRequests)
		case r.URL.Query().Get("watch") != "":
			w.WriteHeader(http.StatusOK)
		default:
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(`{}`))
		}
	}))
	defer server.Close()
	host := strings.TrimPrefix(server.URL, "http://")
	meter := &noted{}
	c, err := kubeclient.NewMetered(&rest.Config{Host: server.URL, QPS: 1000, Burst: 1000}, meter)
	if err != nil {
		t.Fatal(err)
	}
	pods, ctx := c.Pods("a"), t.Context()
	for _, step := range []struct {
		name string
		do   func() error
		want string
	}{
		{"get", func() error { _, err := pods.Get(ctx, "p", metav1.GetOptions{}); return err },
			"answered GET HOST 200; limited GET HOST; read GET HOST false 2"},
		{"patch", func() error {
			_, err := pods.Patch(ctx, "p", types.MergePatchType, []byte(`{}`), metav1.PatchOptions{})
			return err
		}, "answered PATCH HOST 200; limited PATCH HOST; read PATCH HOST true 2"},
		{"create", func() error { _, err := pods.Create(ctx, &v1.Pod{}, metav1.CreateOptions{}); return err },
			"answered POST HOST 200; limited POST HOST; read POST HOST true 2"},
		{"update", func() error {
			_, err := pods.Update(ctx, &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}}, metav1.UpdateOptions{})
			return err
		}, "answered PUT HOST 200; limited PUT HOST; read PUT HOST true 2"},
		{"delete", func() error { tries = 0; return pods.Delete(ctx, "p", metav1.DeleteOptions{}) },
			"answered DELETE HOST 200; answered DELETE HOST 429; limited DELETE HOST; limited DELETE HOST; read DELETE HOST true 0; read DELETE HOST true 2; repeated DELETE HOST 429"},
		{"watch", func() error {
			w, err := pods.Watch(ctx, metav1.ListOptions{})
			if err == nil {
				w.Stop()
			}
			return err
		}, "answered GET HOST 200"}, // client-go does not limit watches
	} {
		if err := step.do(); err != nil {
			t.Errorf("%s: %v", step.name, err)
		}
		if got := meter.take(host); got != step.want {
			t.Errorf("%s:\n%s\nwant\n%s", step.name, got, step.want)
		}
	}
	server.Close()
	if _, err := pods.Get(ctx, "p", metav1.GetOptions{}); err == nil {
		t.Error("a server that is gone answered")
	}
	if got, want := meter.take(host), "answered GET HOST 0; limited GET HOST"; !strings.HasPrefix(got, want[:18]) || strings.Contains(got, "read") {
		t.Errorf("without a server: %s, want %s", got, want)
	}
}

// A server that redirects requests to other hosts adds no series to the metrics.
func TestMeterKnowsOneHost(t *testing.T) {
	t.Parallel()
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{}`))
	}))
	defer other.Close()
	server := httptest.NewServer(http.RedirectHandler(other.URL, http.StatusFound))
	defer server.Close()
	host := strings.TrimPrefix(server.URL, "http://")
	meter := &noted{}
	c, err := kubeclient.NewMetered(&rest.Config{Host: server.URL, QPS: -1}, meter)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Nodes().Get(t.Context(), "n", metav1.GetOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := meter.take(host); strings.Contains(got, strings.TrimPrefix(other.URL, "http://")) || !strings.Contains(got, "answered GET HOST 302") {
		t.Errorf("counted: %s", got)
	}
}
