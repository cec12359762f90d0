package agent

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/wherry-node/wherry/internal/core/timeline"
	"github.com/wherry-node/wherry/internal/node/podworker"
)

// explanation is the answer of /explain, which says why a pod is in its state.
type explanation struct {
	Namespace string            `json:"namespace"`
	Name      string            `json:"name"`
	UID       string            `json:"uid"`
	Dropped   int               `json:"dropped,omitempty"` // number of older records that the ring has dropped
	Records   []timeline.Record `json:"records"`
	// UnderWay are the actions in flight, each with the time that it has taken so far.
	UnderWay []podworker.UnderWay `json:"underWay,omitempty"`
	// Inspection describes a problem with the inspections of the pod. While there is one, the node's view of the pod may be old.
	Inspection string `json:"inspection,omitempty"`
}

// explain serves the timeline of a pod as JSON, oldest record first.
func (a *Agent) explain(view *podView) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ns, name := r.PathValue("namespace"), r.PathValue("pod")
		p, ok := view.Pod(ns, name)
		if !ok {
			http.Error(w, "pod "+ns+"/"+name+" is not on this node", http.StatusNotFound)
			return
		}
		records, dropped, ok := a.timelineOf(p.UID)
		if !ok {
			http.Error(w, "pod "+ns+"/"+name+" has no worker yet", http.StatusNotFound)
			return
		}
		var underWay []podworker.UnderWay
		if worker := a.loop.Worker(p.UID); worker != nil {
			underWay = worker.UnderWay()
		}
		var inspection string
		switch t := a.pleg.Trouble(p.UID); {
		case t.Hangs > 0:
			inspection = fmt.Sprintf("the runtime has not answered for %v", t.Hangs.Round(time.Second))
		case t.Error != "":
			inspection = "failed: " + t.Error
		}
		w.Header().Set("Content-Type", "application/json")
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		// An error means that the client is gone.
		_ = enc.Encode(explanation{Namespace: ns, Name: name, UID: string(p.UID), Dropped: dropped, Records: records, UnderWay: underWay, Inspection: inspection})
	})
}
