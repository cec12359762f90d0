package agenttest

import (
	"fmt"
	"testing"
	"time"

	"github.com/wherry-node/wherry/internal/sim/simcri"
)

// The containers and the sandbox of a pod that has ended are soon removed, even while many other pods take their whole grace period to end.
func TestRemovalsGoOnWhileOthersEnd(t *testing.T) {
	t.Parallel()
	Run(t, Config{}, func(w *World) {
		const slow = 20
		for i := range slow {
			w.Create(Pod(fmt.Sprint("slow-", i), Annotate(simcri.AnnotationStopAfter, "never")))
		}
		w.Create(Pod("quick"))
		for i := range slow {
			w.WaitReady(fmt.Sprint("slow-", i))
		}
		w.WaitReady("quick")
		for i := range slow {
			w.Delete(fmt.Sprint("slow-", i), 120)
		}
		time.Sleep(time.Second)
		began := time.Now()
		w.Delete("quick", 1)
		w.WaitGone("quick")
		w.Await("what is left of the quick pod is removed", time.Minute, func() bool { return len(w.Witness.Containers()) == slow })
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("the pod's end and the removal of what it left took %v", took)
		}
	})
}
