package probe

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/internal/core/pod"
)

// A pod has a hundred containers with exec probes that hang. Only eight of its commands run at once, and the probes of another pod run on
// time.
func TestExecProbesAreBoundedPerPod(t *testing.T) {
	inBubble(t, Config{MaxParallel: 16}, func(t *testing.T, r *rig) {
		r.took = 900 * time.Millisecond
		var many []Target
		for i := range 100 {
			many = append(many, Target{ContainerID: fmt.Sprint("hostile-", i), Spec: &v1.Container{LivenessProbe: execProbe("l", 1, 6, 1)}, StartedAt: time.Now()})
		}
		r.Set(ref, many)
		other := pod.Ref{Namespace: "ns", Name: "other", UID: "other"}
		r.Set(other, []Target{{ContainerID: "good", Spec: &v1.Container{LivenessProbe: execProbe("l", 10, 6, 1)}, StartedAt: time.Now()}})
		pass(2 * time.Minute)
		synctest.Wait()
		r.mu.Lock()
		defer r.mu.Unlock()
		good := 0
		for _, e := range r.execs {
			if strings.Contains(e, "good") {
				good++
			}
		}
		if r.top > execsPerPod+1 || good < 10 {
			t.Errorf("%d commands at once, %d probes of the other pod in two minutes", r.top, good)
		}
		if hostile := len(r.execs) - good; hostile < 100 {
			t.Errorf("only %d of the pod's own commands have run; each must get its turn", hostile)
		}
	})
}
