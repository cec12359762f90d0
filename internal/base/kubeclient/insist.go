package kubeclient

import (
	"context"
	"errors"
	"net"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

const (
	// InsistMin is the first pause of Insist. Each next pause is twice as long.
	InsistMin = 10 * time.Millisecond
	// insistTries is how often Insist makes a request at most; all its pauses together take about a second.
	insistTries = 7
)

// Insist makes a request again, after short pauses, while its error may not last: the API server's authorizer does not know yet which objects the
// pods of this node refer to (the watch of pods may be earlier), or the agent itself closed the connection (net.ErrClosed), to use a new certificate or
// to connect again. It also does so while also, unless nil, returns true for the error. It returns the last error, without a pause after it. ask must
// be a request that may be made twice.
func Insist(ctx context.Context, ask func() error, also func(error) bool) error {
	wait := InsistMin
	for try := 1; ; try++ {
		err := ask()
		again := apierrors.IsForbidden(err) || errors.Is(err, net.ErrClosed) || err != nil && also != nil && also(err)
		if err == nil || try == insistTries || !again || !Pause(ctx, wait) {
			return err
		}
		wait *= 2
	}
}
