package agenttest

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// podsBody is the body of the API server's answer to a list or a watch of pods. When the agent has read the last byte about a pod, podsBody
// tells the Witness (the observer of the test run) that the agent knows this version of the pod.
type podsBody struct {
	io.ReadCloser
	w     *Witness
	known *learned
	watch bool
	first bool // the existing pods come first; they count as known when the agent has read all of them
	line  []byte
	pods  []podMeta
}

// podMeta has the fields of a pod that show whether and when it ends.
type podMeta struct {
	Metadata struct {
		UID                        types.UID
		DeletionTimestamp          *metav1.Time
		DeletionGracePeriodSeconds *int64
		Annotations                map[string]string
	}
}

// hear replaces the body of an answer that lists or watches the node's pods by a podsBody.
func (w *Witness) hear(t *learned, r *http.Request, resp *http.Response) {
	if !listsPods(r) || resp.StatusCode != http.StatusOK {
		return
	}
	q := r.URL.Query()
	resp.Body = &podsBody{ReadCloser: resp.Body, w: w, known: t, watch: q.Get("watch") == "true" || q.Get("watch") == "1", first: q.Get("sendInitialEvents") == "true"}
}

// listsPods reports whether a request lists or watches the pods of the node.
func listsPods(r *http.Request) bool {
	return r.Method == http.MethodGet && r.URL.Path == "/api/v1/pods"
}

// Read reads from the answer, and records each complete line.
func (e *podsBody) Read(p []byte) (int, error) {
	n, err := e.ReadCloser.Read(p)
	for rest := p[:n]; len(rest) > 0; {
		i := bytes.IndexByte(rest, '\n')
		if i < 0 {
			e.line = append(e.line, rest...)
			break
		}
		e.line = append(e.line, rest[:i]...)
		rest = rest[i+1:]
		e.end()
	}
	if err == io.EOF {
		e.end()
	}
	return n, err
}

// end handles a complete line: it tells the Witness what the line says.
func (e *podsBody) end() {
	line := e.line
	e.line = e.line[:0]
	if len(line) == 0 {
		return
	}
	if !e.watch {
		var list struct{ Items []podMeta }
		if json.Unmarshal(line, &list) == nil {
			e.w.learnsAll(e.known, list.Items)
		}
		return
	}
	var event struct {
		Type   string
		Object podMeta
	}
	if json.Unmarshal(line, &event) != nil {
		return
	}
	switch {
	case event.Type == "BOOKMARK" && e.first && event.Object.Metadata.Annotations[metav1.InitialEventsAnnotationKey] == "true":
		e.first = false
		e.w.learnsAll(e.known, e.pods)
		e.pods = nil
	case event.Type == "ERROR" || event.Type == "BOOKMARK":
	case e.first:
		e.pods = append(e.pods, event.Object)
	default:
		e.w.learnsPod(e.known, event.Type == "DELETED", &event.Object)
	}
}

// learnsAll records that the agent knows all existing pods. A pod that is not among them is gone.
func (w *Witness) learnsAll(t *learned, pods []podMeta) {
	there := map[types.UID]bool{}
	for i := range pods {
		there[pods[i].Metadata.UID] = true
		w.learnsPod(t, false, &pods[i])
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for uid := range t.known {
		if !there[uid] {
			t.end(uid)
		}
	}
}

// learnsPod records that the agent knows a new version of a pod; gone is true if the version says that the pod is deleted from the API.
func (w *Witness) learnsPod(t *learned, gone bool, p *podMeta) {
	w.mu.Lock()
	defer w.mu.Unlock()
	m := &p.Metadata
	again := t.known[m.UID] && !gone && m.DeletionTimestamp == nil
	t.known[m.UID] = true
	if again && !t.ending[m.UID].IsZero() { // the pod was restored
		delete(t.ending, m.UID)
	}
	if gone || m.DeletionTimestamp != nil {
		t.end(m.UID)
	}
	if m.DeletionTimestamp == nil || m.DeletionGracePeriodSeconds == nil {
		return
	}
	// An agent may count the grace period from the deletion in the API or from the time when it learned of the deletion.
	grace := time.Duration(*m.DeletionGracePeriodSeconds) * time.Second
	began := m.DeletionTimestamp.Add(-grace)
	if now := time.Now(); now.Before(began) {
		began = now
	}
	w.endOf(m.UID).note(began, grace)
}

// endOf returns what agents know about the end of a pod; it creates the entry if there is none. The caller holds w.mu.
func (w *Witness) endOf(uid types.UID) *ends {
	e := w.ends[uid]
	if e == nil {
		e = &ends{}
		w.ends[uid] = e
	}
	return e
}
