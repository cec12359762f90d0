package agenttest

import (
	"fmt"
	"testing"
	"time"
)

// An agent that starts on a slow disk reads the checkpoints of all pods concurrently, and restarts no container. It admits new pods only
// when it knows the allocated resources of all pods from their checkpoints.
func TestSlowDiskForEveryPod(t *testing.T) {
	t.Parallel()
	Run(t, Config{}, func(w *World) {
		const pods, late = 8, 3
		for i := range pods {
			w.Create(Pod(fmt.Sprintf("web-%d", i), cpu("4")))
		}
		for i := range pods {
			w.WaitReady(fmt.Sprintf("web-%d", i))
		}
		starts := w.Witness.Starts()
		w.SetDiskSlow(3 * time.Second)
		for range 3 {
			w.StopAgent()
			for i := range late {
				w.Create(Pod(fmt.Sprintf("late-%d-%d", starts, i), cpu("1")))
			}
			w.StartAgent()
			w.WaitConverged(time.Minute)
			time.Sleep(time.Minute)
			if n := w.Witness.Starts(); n != starts+late {
				t.Fatalf("%d starts, want %d", n, starts+late)
			}
			starts += late
		}
	})
}
