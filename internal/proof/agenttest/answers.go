package agenttest

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"slices"
	"time"

	"google.golang.org/grpc/test/bufconn"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/core/why"
)

// settled is how long a pod has to be in the same situation before the agent's answer about the pod is judged.
const settled = 10 * time.Second

// answers judges what an agent answers to "why does this pod not run?" (package why). It compares each answer with the situation of the
// pod, which the Witness determines: it observes the runtime and the API from outside the agent.
type answers struct {
	since map[types.UID]time.Time // when each pod was first seen in its present situation
	last  map[types.UID]string    // field what of the present situation of each pod
	tally map[string]*judged      // judged answers, by the field what of the situation
	early int                     // number of answers that were not judged, because the situation or the agent was too new
	blind int                     // number of answers that were not judged, because the agent could not know the situation
	wrong []string                // texts of the first five wrong answers
}

// judged counts the answers that were given in one situation.
type judged struct {
	well         bool // in this situation the pod is well
	right, wrong int
	instead      map[why.Cause]int // wrong answers by the cause that they name
	unwell       int               // number of wrong answers that say that the pod is not well
	rightUnwell  int               // number of right answers that say that the pod is not well
}

func newAnswers() *answers {
	return &answers{since: map[types.UID]time.Time{}, last: map[types.UID]string{}, tally: map[string]*judged{}}
}

// explainedPod is the part of an answer of /explain that the tests read.
type explainedPod struct {
	Name   string
	UID    types.UID
	Answer why.Answer
}

// Explain asks the running agent about all its pods.
func (w *World) Explain() (out []explainedPod) {
	w.Helper()
	resp, err := w.askControl("/explain")
	if err != nil {
		return nil // the agent is ending
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&out); err != nil && w.Alive() {
		w.Errorf("explain: %s: %v", resp.Status, err)
	}
	return out
}

// askControl sends a GET request for path to the control socket of the running agent.
func (w *World) askControl(path string) (*http.Response, error) {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: w.dialControl}}
	return client.Get("http://agent" + path)
}

// dialControl connects to the control socket of the running agent.
func (w *World) dialControl(ctx context.Context, _, _ string) (net.Conn, error) {
	return w.control.DialContext(ctx)
}

// newControl returns the listener that becomes the control socket of the next agent.
func (w *World) newControl() *bufconn.Listener {
	w.control = bufconn.Listen(1 << 16)
	return w.control
}

// check asks the agent why each pod does not run. It judges the answer about a pod only if the pod has been in the same situation for the
// time settled.
func (a *answers) check(w *World) {
	if !w.Alive() {
		return
	}
	before := w.situations()
	list := w.Explain()
	if !w.Alive() {
		return
	}
	after := w.situations()
	seen := map[types.UID]bool{}
	for _, e := range list {
		s, ok := after[e.UID]
		seen[e.UID] = true
		switch {
		case !ok:
			a.blind++
			continue
		case before[e.UID].what != s.what || a.last[e.UID] != s.what:
			a.last[e.UID], a.since[e.UID] = s.what, time.Now()
			a.early++
			continue
		case time.Since(a.since[e.UID]) < settled || w.Witness.young():
			a.early++
			continue
		}
		a.judge(w, s, e.Name, &e.Answer)
	}
	for uid := range a.last {
		if !seen[uid] {
			delete(a.last, uid)
			delete(a.since, uid)
		}
	}
}

func (a *answers) judge(w *World, s situation, name string, answer *why.Answer) {
	j := a.tally[s.what]
	if j == nil {
		j = &judged{well: s.well, instead: map[why.Cause]int{}}
		a.tally[s.what] = j
	}
	if slices.Contains(s.causes, answer.Cause) {
		j.right++
		if answer.Cause.Level() != why.Well {
			j.rightUnwell++
		}
		return
	}
	j.wrong++
	j.instead[answer.Cause]++
	if answer.Cause.Level() != why.Well {
		j.unwell++
	}
	if len(a.wrong) < 5 {
		a.wrong = append(a.wrong, fmt.Sprintf("seed %d, %s pod %s: %s, and the agent answers %s: %s", w.cfg.Seed, time.Now().Format(time.TimeOnly), name, s.what, answer.Cause, answer.Line))
	}
}

// situations returns, for each pod that the Witness knows, what keeps the pod from running (see situation).
func (w *World) situations() map[types.UID]situation {
	out := map[types.UID]situation{}
	files := w.disk.UIDs()
	held := func(uid types.UID) bool { return slices.Contains(files, uid) }
	for _, uid := range w.Witness.subjects() {
		if s, ok := w.Witness.situation(uid, held); ok {
			out[uid] = s
		}
	}
	return out
}

// subjects returns the UIDs of all pods of the API, and of all static pods that ever ran.
func (w *Witness) subjects() (out []types.UID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for uid, s := range w.pods {
		if !s.gone {
			out = append(out, uid)
		}
	}
	for uid := range w.statics {
		out = append(out, uid)
	}
	return out
}

// young reports whether the agent has run for less than the constant settled, or no agent runs.
func (w *Witness) young() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.noAgent || time.Since(w.agentAt) < settled
}
