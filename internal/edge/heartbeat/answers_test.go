package heartbeat

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// An API server that answers with an error, such as that of a webhook which is down, has a connection that works. The agent closes none, because
// that would end its watches. If the server does not know the client any more, a new connection may have a newer certificate.
func TestAnAnswerClosesNoConnection(t *testing.T) {
	t.Parallel()
	for want, refusal := range map[bool]error{
		false: apierrors.NewInternalError(errors.New(`failed calling webhook "nodes.example.com": connection refused`)), true: apierrors.NewUnauthorized("expired"),
	} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t)
			b.run()
			time.Sleep(time.Second)
			b.take()
			b.set(func() {
				b.ready = false
				b.fail = func(verb, _ string) error {
					if verb == "get" {
						return nil
					}
					return refusal
				}
			})
			time.Sleep(time.Minute)
			lines := b.take("patch nodes", "update leases", "close")
			if !strings.Contains(lines, "patch nodes") || !strings.Contains(lines, "update leases") || strings.Contains(lines, "close") != want {
				t.Errorf("%v: want connections closed: %t:\n%s", refusal, want, lines)
			}
			b.stop()
		})
	}
}
