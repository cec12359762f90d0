package volume_test

import (
	"path/filepath"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/edge/volume"
	"github.com/wherry-node/wherry/internal/sim/simcsi"
)

// A driver that says for certain that it did not stage a volume is not asked to unstage it. After any other error it is.
func TestUnstageAfterFailedStage(t *testing.T) {
	t.Parallel()
	for code, want := range map[codes.Code]int{codes.InvalidArgument: 0, codes.Internal: 0, codes.DeadlineExceeded: 1, codes.Unavailable: 1} {
		f := newCSI(t, simcsi.Config{Stage: true})
		f.disk("d", v1.ReadWriteOnce)
		p := podOf("a", claim("v", "d", false))
		f.driver.SetFault("NodeStageVolume", &simcsi.Fault{Err: status.Error(code, "no")})
		wantError(t, f.SetUp(t.Context(), volume.Pod{Pod: p}), "v", "NodeStageVolume: no")
		if err := f.TearDown(t.Context(), pod.RefOf(p)); err != nil {
			t.Errorf("%s: %v", code, err)
		}
		if n := f.driver.Count("NodeUnstageVolume"); n != want {
			t.Errorf("after %s the driver is asked to unstage %d times, want %d", code, n, want)
		}
		if left, _ := filepath.Glob(filepath.Join(f.root, "plugins/kubernetes.io/csi", driverName, "*")); len(left) != 0 {
			t.Errorf("%s: left: %v", code, left)
		}
	}
}
