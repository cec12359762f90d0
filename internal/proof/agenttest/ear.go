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

// ear is the body of an answer about pods, as the agent reads it. It notes a pod when the agent has read the last byte of
// what is said of it.
type ear struct {
	io.ReadCloser
	w     *Witness
	told  *told
	watch bool
	first bool // the pods that there are come first, and count when all have come
	line  []byte
	pods  []podMeta
}

// podMeta is what of a pod tells of its end.
type podMeta struct {
	Metadata struct {
		UID                        types.UID
		DeletionTimestamp          *metav1.Time
		DeletionGracePeriodSeconds *int64
		Annotations                map[string]string
	}
}

// hear listens to an answer where it tells of the pods of the node.
func (w *Witness) hear(t *told, r *http.Request, resp *http.Response) {
	if !listsPods(r) || resp.StatusCode != http.StatusOK {
		return
	}
	q := r.URL.Query()
	resp.Body = &ear{ReadCloser: resp.Body, w: w, told: t, watch: q.Get("watch") == "true" || q.Get("watch") == "1", first: q.Get("sendInitialEvents") == "true"}
}

// listsPods reports whether a request is the one by which an agent learns of its pods.
func listsPods(r *http.Request) bool {
	return r.Method == http.MethodGet && r.URL.Path == "/api/v1/pods"
}

// Read reads on, and notes what is complete.
func (e *ear) Read(p []byte) (int, error) {
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

// end notes a line that is complete.
func (e *ear) end() {
	line := e.line
	e.line = e.line[:0]
	if len(line) == 0 {
		return
	}
	if !e.watch {
		var list struct{ Items []podMeta }
		if json.Unmarshal(line, &list) == nil {
			e.w.toldAll(e.told, list.Items)
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
		e.w.toldAll(e.told, e.pods)
		e.pods = nil
	case event.Type == "ERROR" || event.Type == "BOOKMARK":
	case e.first:
		e.pods = append(e.pods, event.Object)
	default:
		e.w.toldOne(e.told, event.Type == "DELETED", &event.Object)
	}
}

// toldAll notes that the agent is told of all pods that there are.
func (w *Witness) toldAll(t *told, pods []podMeta) {
	there := map[types.UID]bool{}
	for i := range pods {
		there[pods[i].Metadata.UID] = true
		w.toldOne(t, false, &pods[i])
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for uid := range t.known {
		if !there[uid] {
			t.end(uid)
		}
	}
}

// toldOne notes that the agent is told of a pod.
func (w *Witness) toldOne(t *told, gone bool, p *podMeta) {
	w.mu.Lock()
	defer w.mu.Unlock()
	m := &p.Metadata
	again := t.known[m.UID] && !gone && m.DeletionTimestamp == nil
	t.known[m.UID] = true
	if again && !t.ending[m.UID].IsZero() { // it was restored
		delete(t.ending, m.UID)
	}
	if gone || m.DeletionTimestamp != nil {
		t.end(m.UID)
	}
	if m.DeletionTimestamp == nil || m.DeletionGracePeriodSeconds == nil {
		return
	}
	// An agent may take the period from when it learned of the deletion, or from when the API says that it began.
	grace := time.Duration(*m.DeletionGracePeriodSeconds) * time.Second
	began := m.DeletionTimestamp.Add(-grace)
	if now := time.Now(); now.Before(began) {
		began = now
	}
	w.endOf(m.UID).tell(began, grace)
}

// endOf is what is known of the end of a pod. It is called with the lock held.
func (w *Witness) endOf(uid types.UID) *ends {
	e := w.ends[uid]
	if e == nil {
		e = &ends{}
		w.ends[uid] = e
	}
	return e
}
