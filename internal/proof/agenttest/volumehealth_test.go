package agenttest

import (
	"slices"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/agent"
	"github.com/wherry-node/wherry/internal/sim/simcsi"
)

// abnormalEvents returns the messages of the events VolumeConditionAbnormal about a pod, without repetitions.
func (w *World) abnormalEvents(name string) (messages []string) {
	for _, e := range w.Kube.Events(Namespace, name) {
		if e.Reason == "VolumeConditionAbnormal" && e.Type == v1.EventTypeWarning {
			messages = append(messages, e.Message)
		}
	}
	slices.Sort(messages)
	return messages
}

// withHealth runs f on a node whose CSI driver reports a condition of its volumes, which is normal at first. The pod "db" uses a volume.
func withHealth(t *testing.T, gates map[string]bool, f func(w *World)) {
	t.Helper()
	cfg := Config{
		CSI: &simcsi.Config{
			Name: diskDriver, NodeID: "disks-" + NodeName, Stage: true, Usage: []*csi.VolumeUsage{{Unit: csi.VolumeUsage_BYTES, Total: 10, Used: 1, Available: 9}},
			Condition: &csi.VolumeCondition{Message: "all is well"},
		},
		Agent: func(c *agent.Config) { c.Kubelet.FeatureGates = gates },
	}
	Run(t, cfg, func(w *World) {
		w.createDisk("data", diskDriver, false)
		w.Create(Pod("db", withClaim("data")))
		w.WaitReady("db")
		f(w)
		w.Delete("db", 1)
		w.WaitGone("db")
		asked := w.CSI.Count("NodeGetVolumeStats")
		time.Sleep(time.Hour)
		if more := w.CSI.Count("NodeGetVolumeStats") - asked; more > 0 {
			w.Errorf("after the end of the pod, the driver was asked %d times", more)
		}
	})
}

// When a driver begins to report that something is wrong with a volume, or reports another problem, there is one event on the pod.
func TestVolumeHealth(t *testing.T) {
	t.Parallel()
	withHealth(t, map[string]bool{"CSIVolumeHealth": true}, func(w *World) {
		time.Sleep(10 * time.Minute)
		if got := w.abnormalEvents("db"); len(got) != 0 {
			t.Errorf("events of a volume that works: %q", got)
		}
		if n := w.CSI.Count("NodeGetVolumeStats"); n < 8 || n > 12 {
			t.Errorf("the driver was asked %d times in 10 minutes, want once a minute", n)
		}
		w.CSI.SetCondition(&csi.VolumeCondition{Abnormal: true, Message: "the disk has bad sectors\x1b[31m"})
		time.Sleep(10 * time.Minute)
		if got, want := w.abnormalEvents("db"), []string{"Volume data: the disk has bad sectors\ufffd[31m"}; !slices.Equal(got, want) {
			t.Errorf("events %q, want %q", got, want)
		}
		w.CSI.SetCondition(&csi.VolumeCondition{Abnormal: true, Message: "the disk is gone"})
		time.Sleep(10 * time.Minute)
		if got := w.abnormalEvents("db"); len(got) != 2 || got[1] != "Volume data: the disk is gone" {
			t.Errorf("events %q, want a second one", got)
		}
	})
}

// Without the feature gate, the driver is not asked, and there is no event.
func TestVolumeHealthNeedsItsGate(t *testing.T) {
	t.Parallel()
	withHealth(t, map[string]bool{"CSIVolumeHealth": false}, func(w *World) {
		w.CSI.SetCondition(&csi.VolumeCondition{Abnormal: true, Message: "the disk is gone"})
		time.Sleep(10 * time.Minute)
		if got := w.abnormalEvents("db"); len(got) != 0 || w.CSI.Count("NodeGetVolumeStats") != 0 {
			t.Errorf("events %q, %d questions", got, w.CSI.Count("NodeGetVolumeStats"))
		}
	})
}
