package kubeclient_test

import (
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/wherry-node/wherry/internal/base/kubeclient"
)

// A request is made again while its error may not last, for about a second at most, and other errors are returned at once.
func TestInsist(t *testing.T) {
	t.Parallel()
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "persistentvolumeclaims"}, "c", errors.New("no relationship found"))
	other := errors.New("another error")
	for name, c := range map[string]struct {
		fails    int // the first requests fail
		err      error
		also     func(error) bool
		requests int
		want     error
	}{
		"the authorizer is late":             {2, forbidden, nil, 3, nil},
		"the agent closed the connection":    {1, &net.OpError{Op: "read", Err: net.ErrClosed}, nil, 2, nil},
		"the authorizer refuses for good":    {100, forbidden, nil, 7, forbidden},
		"another error":                      {1, other, nil, 1, other},
		"another error that may not last":    {1, other, func(err error) bool { return err == other }, 2, nil}, //nolint:errorlint // the very error
		"an error that also does not select": {1, other, func(error) bool { return false }, 1, other},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				requests, began := 0, time.Now()
				err := kubeclient.Insist(t.Context(), func() error {
					if requests++; requests <= c.fails {
						return c.err
					}
					return nil
				}, c.also)
				if !errors.Is(err, c.want) || requests != c.requests {
					t.Errorf("%d requests, error %v; want %d, %v", requests, err, c.requests, c.want)
				}
				if took := time.Since(began); took > time.Second {
					t.Errorf("it took %s", took)
				}
			})
		})
	}
}
