package fleet

import (
	"context"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"

	"k8s.io/client-go/rest"

	"github.com/wherry-node/wherry/internal/sim/simkube"
)

// A shard whose start is interrupted after it has joined deletes its lease, so that the next process of its name need not wait.
func TestInterruptedStartOfAShard(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		kube := simkube.New(simkube.Config{})
		ctx, cancel := context.WithCancel(t.Context())
		client := &rest.Config{Host: "http://simkube", Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			if strings.HasSuffix(r.URL.Path, "/extension-apiserver-authentication") {
				cancel()
				return nil, ctx.Err()
			}
			return kube.RoundTrip(r)
		})}
		f, err := New(Config{
			Name: "f", Client: client, Identity: Shared, Groups: []Group{{Count: 2}}, Shard: Shard{Name: "a"}, Address: netip.MustParseAddr("127.0.0.1"), Dir: t.TempDir(),
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Run(ctx); err != nil {
			t.Error(err)
		}
		all, err := f.shard.list(t.Context(), "")
		if err != nil || len(all) != 1 || all[fleetLease("f")] == nil {
			t.Errorf("%d leases are left: %v", len(all), err)
		}
	})
}
