package server

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	authnv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/core/pod"
)

// beginning is a node that has begun. It knows its pods after a time, or never.
type beginning struct {
	began, knows time.Time
	looks        int
}

func (b *beginning) List() []*v1.Pod                          { return nil }
func (b *beginning) Pod(string, string) (*v1.Pod, bool)       { return nil, false }
func (b *beginning) Observed(types.UID) (*pod.Observed, bool) { return nil, false }
func (b *beginning) Settled() bool {
	b.looks++
	return !b.knows.IsZero() && !time.Now().Before(b.knows)
}
func (b *beginning) server() *Server {
	s := &Server{cfg: Config{Pods: b}}
	s.settling.end = b.began.Add(settleWithin)
	return s
}

// A request about a container waits until the node knows its containers. It waits only once, and only soon after the start.
func TestRequestsWaitForTheNodeToSettle(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ knows, asks, want time.Duration }{
		"the node knows at once":       {0, 0, 0},
		"it knows soon":                {730 * time.Millisecond, 0, 750 * time.Millisecond},
		"it does not know for long":    {time.Hour, 0, settleWithin},
		"the request comes later":      {time.Hour, 7 * time.Second, 3 * time.Second},
		"the request comes much later": {time.Hour, time.Minute, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				node := &beginning{began: time.Now(), knows: time.Now().Add(tt.knows)}
				served := 0
				h := node.server().wait(func(http.ResponseWriter, *http.Request) { served++ })
				time.Sleep(tt.asks)
				asked := time.Now()
				h(nil, (&http.Request{}).WithContext(t.Context()))
				if took := time.Since(asked); took != tt.want || served != 1 {
					t.Errorf("served %d times after %s, want %s", served, took, tt.want)
				}
				looks := node.looks
				h(nil, (&http.Request{}).WithContext(t.Context()))
				if served != 2 || node.looks != looks || time.Since(asked) != tt.want {
					t.Error("the second request waits too")
				}
			})
		})
	}
}

// everybody authenticates every request.
type everybody struct{}

func (everybody) Authenticate(*http.Request) (*authnv1.UserInfo, error) {
	return &authnv1.UserInfo{Username: "somebody"}, nil
}

// The time to settle begins when the server begins to serve. Before that the agent waits for its runtime, which may have been restarted with it,
// and clients that have connected meanwhile wait, too.
func TestTheTimeToSettleBeginsWithTheService(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const starts = 20 * time.Second
		node := &beginning{began: time.Now(), knows: time.Now().Add(starts + 3*time.Second)}
		s, err := New(Config{NodeName: "n", Authenticator: everybody{}, Authorizer: AlwaysAllow{}, Pods: node, Enable: Enable{Debugging: true}, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(starts)
		h, asked := s.Handler(), time.Now()
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/containerLogs/ns/web/main", nil))
		if took := time.Since(asked); took != 3*time.Second {
			t.Errorf("the request was answered after %s, want 3s", took)
		}
	})
}
