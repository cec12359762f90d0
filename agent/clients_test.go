package agent

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
)

// away is an API server that refuses each connection.
type away struct{}

func (away) RoundTrip(*http.Request) (*http.Response, error) {
	return nil, errors.New("connection refused")
}

// However many requests for objects and tokens wait for their turn, the status of a pod does not wait behind them. If the caller has made
// one limiter for all requests of the node, that limiter holds for statuses too.
func TestStatusesHaveALimitOfTheirOwn(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		client      rest.Config
		least, most time.Duration // how long the status waits
	}{
		"a limit":               {client: rest.Config{QPS: 50, Burst: 100}},
		"the default of a rate": {client: rest.Config{}},
		"no limit":              {client: rest.Config{QPS: -1}},
		"a limiter for all":     {client: rest.Config{RateLimiter: flowcontrol.NewTokenBucketRateLimiter(50, 100)}, least: 7 * time.Second, most: 9 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			tt.client.Host, tt.client.Transport = "http://api", away{}
			c, err := newClients(&Deps{Client: &tt.client}, &ServerLimits{}, nil)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			for range 500 {
				go func() { _, _ = c.api.Secrets("ns").Get(ctx, "s", metav1.GetOptions{}) }()
			}
			synctest.Wait()
			began := time.Now()
			_, err = c.statusPods("ns").Patch(ctx, "p", types.StrategicMergePatchType, []byte("{}"), metav1.PatchOptions{}, "status")
			if err == nil {
				t.Errorf("%s: the API server is away, but a status was written", name)
			}
			if took := time.Since(began); took > tt.most || took < tt.least {
				t.Errorf("%s: a status waited for %s behind 500 other requests, want %s to %s", name, took, tt.least, tt.most)
			}
		})
	}
}
