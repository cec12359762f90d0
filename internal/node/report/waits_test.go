package report

import (
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/wherry-node/wherry/internal/core/decide"
	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/node/podworker"
)

func TestTheReasonThatEndsAPodIsAnEvent(t *testing.T) {
	t.Parallel()
	b := &events{}
	r := New(Config{Recorder: b, Mirror: func(*v1.Pod) *v1.Pod { return nil }, RuntimeName: func() string { return "" },
		HostIPs: func() []string { return nil }, RecursiveReadOnly: func(*v1.Pod) bool { return false }})
	turn := func(stop *decide.Stop) {
		r.Turn(&podworker.Turn{Pod: &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u"}}, Observed: &pod.Observed{}, Memory: &decide.Memory{}, Plan: &decide.Plan{Stop: stop}, Now: time.Unix(1, 0)})
	}
	turn(&decide.Stop{Reason: "Evicted", Message: "the node is low on memory"}) // the code that evicts the pod records the event for this reason
	turn(&decide.Stop{Reason: decide.ReasonDeadlineExceeded, Message: decide.MessageDeadlineExceeded})
	turn(&decide.Stop{Reason: decide.ReasonVolumeLimit, Message: "no room"})
	turn(nil)
	if len(b.seen) != 2 || !strings.Contains(b.seen[0], "DeadlineExceeded") || !strings.Contains(b.seen[1], decide.ReasonVolumeLimit) {
		t.Errorf("events %q, want one of each reason whose event the plan's turn records", b.seen)
	}
}
