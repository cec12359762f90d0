package volume

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/wherry-node/wherry/internal/core/pod"
)

// The overall time of a mount begins with the first try, also if the agent gave that try up, and includes the waits between the tries. A later
// mount of the same volume counts from its own first try. Nothing is kept of a volume that is mounted, or of a pod that is gone.
func TestOverallTimeOfAMount(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var last Operation
		v := New(Config{RootDir: t.TempDir(), Host: &growing{}, Operated: func(op Operation) { last = op }})
		vol := &v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "s"}}}
		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "uid"}}
		try := func(ctx context.Context, err error) time.Duration {
			began := time.Now()
			time.Sleep(time.Second)
			last = Operation{}
			v.mounted(ctx, p, vol, began, err)
			return last.Overall
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		no := errors.New("no")
		for i, step := range []struct {
			ctx  context.Context
			err  error
			want time.Duration
		}{
			{t.Context(), nil, time.Second}, // succeeds at the first try
			{gone, no, 0},
			{t.Context(), no, 0},
			{t.Context(), nil, 23 * time.Second}, // three tries of a second, with two waits of 10 seconds
			{t.Context(), nil, time.Second},
			{t.Context(), no, 0},
		} {
			if got := try(step.ctx, step.err); got != step.want {
				t.Errorf("step %d: overall %v, want %v", i, got, step.want)
			}
			if kept := len(v.tries.pods) == 1; kept != (step.err != nil) {
				t.Errorf("step %d: kept are %v", i, v.tries.pods)
			}
			time.Sleep(10 * time.Second)
		}
		if err := v.TearDown(t.Context(), pod.RefOf(p)); err != nil {
			t.Fatal(err)
		}
		if len(v.tries.pods) != 0 {
			t.Errorf("kept of a pod that is gone are %v", v.tries.pods)
		}
	})
}
