package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/internal/core/inorder"
	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/core/replay"
	"github.com/wherry-node/wherry/internal/core/timeline"
	"github.com/wherry-node/wherry/internal/core/why"
	"github.com/wherry-node/wherry/internal/node/podworker"
)

// explanation is the answer of /explain, which says why a pod is in its state.
type explanation struct {
	Namespace string            `json:"namespace"`
	Name      string            `json:"name"`
	UID       string            `json:"uid"`
	Answer    why.Answer        `json:"answer"`
	Dropped   int               `json:"dropped,omitempty"` // how many older records the pod's timeline no longer has
	Records   []timeline.Record `json:"records,omitempty"`
	// UnderWay are the actions in flight, each with the time that it has taken so far.
	UnderWay []podworker.UnderWay `json:"underWay,omitempty"`
	// Inspection describes a problem with the inspections of the pod. While there is one, the node's view of the pod may be old.
	Inspection string `json:"inspection,omitempty"`
	// LastKnown is when the API server last answered. It is set if the node has started without the API server and knows the pod only
	// from that time. Expired are the credentials of the pod that have expired since.
	LastKnown *time.Time `json:"lastKnown,omitempty"`
	Expired   []string   `json:"expired,omitempty"`
}

// explanations returns the endpoints that say why pods are in their state.
func (a *Agent) explanations(view *podView) map[string]http.Handler {
	return map[string]http.Handler{
		"GET /explain": a.explainAll(view), "GET /explain/node": http.HandlerFunc(a.explainNode), "GET /explain/{namespace}/{pod}": a.explain(view), "GET /explain/{namespace}/{pod}/turn": a.exportTurn(view),
	}
}

// explain serves the answer for a pod and its timeline as JSON, oldest record first.
func (a *Agent) explain(view *podView) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ns, name := r.PathValue("namespace"), r.PathValue("pod")
		p, ok := view.Pod(ns, name)
		if !ok {
			http.Error(w, a.notHere(r.Context(), view, ns, name), http.StatusNotFound)
			return
		}
		records, dropped, ok := a.timelineOf(p.UID)
		if !ok {
			http.Error(w, "pod "+ns+"/"+name+" has no worker yet", http.StatusNotFound)
			return
		}
		out := a.answers(r.Context(), []*v1.Pod{p})[0]
		if out.Answer.Ended != "" {
			out.Answer.Output(a.lastOutput(r.Context(), p.UID, out.Answer.Ended))
		}
		out.Dropped, out.Records = dropped, records
		writeJSON(w, out)
	})
}

// nodeExplanation is the answer of /explain/node.
type nodeExplanation struct {
	Changes []why.Change `json:"changes"`
}

// explainNode serves what would change the conditions of the node. It measures the node.
func (a *Agent) explainNode(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), answerWithin)
	defer cancel()
	a.refreshNode(ctx)
	in := why.NodeInput{
		Node: a.nodeObject(), Signals: a.platform.signals(ctx), Pressure: a.evictor.Pressure(ctx),
		Runtime: a.runtime.Facts(), Endpoint: a.cfg.Kubelet.ContainerRuntimeEndpoint, Down: a.goesDown(),
	}
	policy := a.evictor.Policy()
	in.Thresholds, in.Transition = policy.Thresholds, policy.TransitionPeriod
	if err := a.pleg.Healthy(); err != nil {
		in.Inspections = err.Error()
	}
	writeJSON(w, nodeExplanation{why.NodeChanges(&in)})
}

// exportTurn serves the present turn of a pod in the format of package replay: the inputs of the decision, and the decision.
func (a *Agent) exportTurn(view *podView) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ns, name := r.PathValue("namespace"), r.PathValue("pod")
		p, ok := view.Pod(ns, name)
		var worker *podworker.Worker
		if ok {
			worker = a.loop.Worker(p.UID)
		}
		if worker == nil {
			http.Error(w, a.notHere(r.Context(), view, ns, name), http.StatusNotFound)
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), answerWithin)
		defer cancel()
		turns := make(chan *replay.Turn, 1)
		worker.AskExport(func(t *podworker.Turn) { turns <- t.Export })
		var turn *replay.Turn
		select {
		case turn = <-turns:
		case <-ctx.Done():
		}
		if turn == nil {
			http.Error(w, "nothing is decided about pod "+ns+"/"+name+" yet: wherry explain says what the node waits for", http.StatusServiceUnavailable)
			return
		}
		turn.Agent = a.cfg.KubeletVersion
		data, err := turn.Encode()
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(data) // an error means that the client is gone
	})
}

// explainAll serves the answers for all pods of the node as JSON: pods in trouble first; among equals, the pod that is
// longest in its state first.
func (a *Agent) explainAll(view *podView) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		out := a.answers(r.Context(), view.List())
		inorder.Sort(out, func(x, y explanation) int {
			return cmp.Or(-cmp.Compare(x.Answer.Level, y.Answer.Level), x.Answer.Since.Compare(y.Answer.Since),
				cmp.Compare(x.Namespace, y.Namespace), cmp.Compare(x.Name, y.Name))
		})
		writeJSON(w, out)
	})
}

// answerWithin bounds how long the workers of pods may take to answer. A turn takes less than a millisecond; a worker takes longer
// only if it measures the node to admit its pod.
const answerWithin = 2 * time.Second

// answers explains pods. It asks all their workers at once.
func (a *Agent) answers(ctx context.Context, pods []*v1.Pod) []explanation {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	turns := make([]chan *why.Turn, len(pods))
	for i, p := range pods {
		if w := a.loop.Worker(p.UID); w != nil {
			c := make(chan *why.Turn, 1)
			turns[i] = c
			w.Ask(func(t *podworker.Turn) { c <- turnOf(t) })
		}
	}
	out := make([]explanation, len(pods))
	for i, p := range pods {
		var t *why.Turn
		if turns[i] != nil {
			select {
			case t = <-turns[i]:
			case <-ctx.Done():
			}
		}
		out[i] = a.answer(p, t)
	}
	return out
}

// turnOf copies the fields of a worker's turn that an explanation needs.
func turnOf(t *podworker.Turn) *why.Turn {
	return &why.Turn{
		Observed: t.Observed, Memory: t.Memory.Clone(), Node: t.Node, Phase: t.Plan.Phase, WakeAt: t.Plan.WakeAt,
		Queued: t.Queued, Place: t.Place, Waiting: t.Waiting, Looked: t.Looked,
	}
}

// answer explains one pod. t is the turn that the pod's worker has taken; nil: the worker did not answer.
func (a *Agent) answer(p *v1.Pod, t *why.Turn) explanation {
	out := explanation{Namespace: p.Namespace, Name: p.Name, UID: string(p.UID)}
	if _, src := a.pods.Get(p.UID); src == pod.SourceAPI {
		out.LastKnown, out.Expired = a.offline.outdated(p.UID)
	}
	if worker := a.loop.Worker(p.UID); worker != nil {
		out.UnderWay = worker.UnderWay()
	}
	if t != nil {
		for _, f := range out.UnderWay {
			t.Flights = append(t.Flights, why.Flight{Action: f.Action, Began: f.Began})
		}
	}
	in := why.Input{Pod: p, Turn: t, Pulls: a.imagePulls(), Standalone: a.deps.Client == nil, Now: time.Now()}
	for _, f := range a.probes.Failing(p.UID) {
		in.Failing = append(in.Failing, why.FailingProbe{
			Container: f.Container, Kind: strings.ToLower(f.Kind.String()), Times: f.Times, Threshold: f.Threshold, Output: f.Output,
		})
	}
	if oomKilled(&p.Status) {
		in.MemoryPeak, _ = a.stats.MemoryPeak(p.UID)
	}
	switch trouble := a.pleg.Trouble(p.UID); {
	case trouble.Hangs > 0:
		in.Hangs = trouble.Hangs
		out.Inspection = fmt.Sprintf("the runtime has not answered for %v", trouble.Hangs.Round(time.Second))
	case trouble.Error != "":
		in.InspectionError = trouble.Error
		out.Inspection = "failed: " + trouble.Error
	}
	out.Answer = why.Explain(&in)
	return out
}

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	_ = enc.Encode(v) // an error means that the client is gone
}
