package agent

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/edge/pleg"
)

// EventInspectionHangs is the event on the node when the runtime does not answer for some pods.
const EventInspectionHangs = "PodInspectionHangs"

// hung records an event about the pods for which an inspection by the runtime hangs. The node stays ready, because other pods can start
// and run. Without such pods it logs that the runtime answers for all pods again.
func (a *Agent) hung(pods []pod.Ref) {
	if len(pods) == 0 {
		a.log.Info("the runtime answers for all pods again")
		return
	}
	const named = 5
	names := make([]string, 0, named)
	for _, ref := range pods[:min(named, len(pods))] {
		names = append(names, ref.Namespace+"/"+ref.Name)
	}
	what := strings.Join(names, ", ")
	if more := len(pods) - named; more > 0 {
		what += fmt.Sprintf(" and %d more", more)
	}
	a.log.Warn("the runtime does not answer for some pods; they are neither started nor reported", "pods", what)
	a.events.NodeEvent(v1.EventTypeWarning, EventInspectionHangs,
		fmt.Sprintf("the runtime has not answered for %v about the state of %d pods (%s); check their runtime class, or try crictl inspectp", pleg.HungFor, len(pods), what))
}
