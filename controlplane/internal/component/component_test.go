package component

import (
	"testing"
	"time"
)

// etcd logs a request that takes longer than its limit, with its content. A limit of zero would make it log every request.
func TestEtcdLogsOnlySlowRequests(t *testing.T) {
	t.Parallel()
	if limit := (&etcdOptions{}).config().WarningUnaryRequestDuration; limit < 100*time.Millisecond {
		t.Errorf("etcd logs each request that takes %s", limit)
	}
}
