package push

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"syscall"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/core/manifest"
	"github.com/wherry-node/wherry/internal/core/pod"
)

// Answer is the answer to a push: what was done, and what was wrong. If a manifest has errors, none of its objects was stored.
type Answer struct {
	Items  []Pushed `json:"items"`
	Errors []Error  `json:"errors,omitempty"`
	// Notes lists the fields that were left out of stored objects.
	Notes []string `json:"notes,omitempty"`
}

// Error is one error. Line and Document are 0, and Field and Object empty, if they are not known.
type Error struct {
	Line     int    `json:"line,omitempty"`
	Document int    `json:"document,omitempty"`
	Object   string `json:"object,omitempty"`
	Field    string `json:"field,omitempty"`
	Message  string `json:"message"`
}

// Routes returns the endpoints of the source by ServeMux pattern. finished reports whether a pod has run to its end.
//
//	POST   /pods                            a manifest: Pods, ConfigMaps, Secrets; ?name= is the manifest's name in errors
//	PUT    /pods/{namespace}/{name}         one Pod of that name
//	DELETE /pods/{namespace}/{name}         ends and removes; ?gracePeriodSeconds=
//	POST   /pods/{namespace}/{name}/stop    ends and keeps for its logs; ?gracePeriodSeconds=
//	GET    /pushed                          names of all that was pushed
//	DELETE /configmaps/{namespace}/{name}, /secrets/{namespace}/{name}
func (p *Source) Routes(finished func(types.UID) bool) map[string]http.Handler {
	routes := map[string]http.HandlerFunc{
		"POST /pods":                         func(w http.ResponseWriter, r *http.Request) { p.servePost(w, r, finished, "") },
		"PUT /pods/{namespace}/{name}":       func(w http.ResponseWriter, r *http.Request) { p.servePut(w, r, finished) },
		"DELETE /pods/{namespace}/{name}":    func(w http.ResponseWriter, r *http.Request) { p.serveEnd(w, r, false) },
		"POST /pods/{namespace}/{name}/stop": func(w http.ResponseWriter, r *http.Request) { p.serveEnd(w, r, true) },
		"GET /pushed":                        func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, Answer{Items: p.list()}) },
		"DELETE /configmaps/{namespace}/{name}": func(w http.ResponseWriter, r *http.Request) {
			p.serveDeleteObject(w, r, kindConfigMap)
		},
		"DELETE /secrets/{namespace}/{name}": func(w http.ResponseWriter, r *http.Request) { p.serveDeleteObject(w, r, kindSecret) },
	}
	out := make(map[string]http.Handler, len(routes))
	for pattern, h := range routes {
		out[pattern] = p.whenLoaded(h)
	}
	return out
}

// whenLoaded refuses requests until Run has read the stored objects of earlier pushes.
func (p *Source) whenLoaded(h http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-p.loaded:
			h(w, r)
		default:
			w.Header().Set("Retry-After", "1")
			refuse(w, http.StatusServiceUnavailable, errors.New("the agent has not read the earlier pushed pods yet; try again in a moment"))
		}
	})
}

func (p *Source) servePut(w http.ResponseWriter, r *http.Request, finished func(types.UID) bool) {
	p.servePost(w, r, finished, r.PathValue("namespace")+"/"+r.PathValue("name"))
}

// servePost stores a manifest. If only is set, it names the one pod that the manifest may have.
func (p *Source) servePost(w http.ResponseWriter, r *http.Request, finished func(types.UID) bool, only string) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, manifest.MaxBytes))
	if tooBig := (*http.MaxBytesError)(nil); errors.As(err, &tooBig) {
		refuse(w, http.StatusRequestEntityTooLarge, fmt.Errorf("the manifest has more than %d bytes; split it", manifest.MaxBytes))
		return
	}
	if err != nil {
		refuse(w, http.StatusBadRequest, fmt.Errorf("read the manifest: %w", err))
		return
	}
	name := r.URL.Query().Get("name")
	if name == "" {
		name = "manifest"
	}
	m := manifest.Decode(name, body)
	if len(m.Errors) > 0 {
		refuseManifest(w, m)
		return
	}
	if len(m.Pods)+len(m.ConfigMaps)+len(m.Secrets) == 0 {
		refuse(w, http.StatusBadRequest, fmt.Errorf("%s: it is empty: a manifest has a Pod, ConfigMap or Secret", name))
		return
	}
	if err := once(m); err != nil {
		refuse(w, http.StatusBadRequest, fmt.Errorf("%s: %w", name, err))
		return
	}
	if only != "" && (len(m.Pods) != 1 || m.Pods[0].Namespace+"/"+m.Pods[0].Name != only) {
		refuse(w, http.StatusBadRequest, fmt.Errorf("%s: it must have one Pod, %s", name, only))
		return
	}
	items, err := p.put(m, finished)
	if err != nil {
		refuseWith(w, statusOf(err), items, err)
		return
	}
	a := Answer{Items: items}
	for _, note := range m.Notes {
		a.Notes = append(a.Notes, note.Error())
	}
	answer(w, http.StatusOK, a)
}

// once refuses a manifest that has two objects of the same kind and name.
func once(m *manifest.Manifest) error {
	seen := map[string]bool{}
	for _, list := range []struct {
		kind  string
		names []string
	}{{kindPod, namesOf(m.Pods)}, {kindConfigMap, namesOf(m.ConfigMaps)}, {kindSecret, namesOf(m.Secrets)}} {
		for _, n := range list.names {
			if seen[list.kind+n] {
				return fmt.Errorf("%s %s is in the manifest twice; remove one or give it another name", list.kind, n)
			}
			seen[list.kind+n] = true
		}
	}
	return nil
}

func namesOf[T interface {
	GetNamespace() string
	GetName() string
}](list []T) []string {
	var out []string
	for _, o := range list {
		out = append(out, o.GetNamespace()+"/"+o.GetName())
	}
	return out
}

// serveEnd stops or removes a pod, and answers with the changed pod.
func (p *Source) serveEnd(w http.ResponseWriter, r *http.Request, keep bool) {
	ns, name := r.PathValue("namespace"), r.PathValue("name")
	grace, err := graceOf(r)
	if err != nil {
		refuse(w, http.StatusBadRequest, err)
		return
	}
	got, err := p.end(ns, name, grace, keep)
	if errors.Is(err, errNotPushed) {
		if src := p.other(ns, name); src != pod.SourceNone {
			refuse(w, http.StatusConflict, fmt.Errorf("pod %s/%s was not pushed: it comes from source %s and ends when it is removed there", ns, name, src))
			return
		}
		refuse(w, http.StatusNotFound, fmt.Errorf("pod %s/%s is not on this node", ns, name))
		return
	}
	if err != nil {
		refuse(w, statusOf(err), err)
		return
	}
	writeAnswer(w, http.StatusAccepted, got)
}

// graceOf reads the parameter gracePeriodSeconds of a request; nil: the request has none, so the pod's own applies.
func graceOf(r *http.Request) (*int64, error) {
	text := r.URL.Query().Get("gracePeriodSeconds")
	if text == "" {
		return nil, nil
	}
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil || n < 0 {
		return nil, fmt.Errorf("gracePeriodSeconds: %q is not a number of seconds, 0 or more", text)
	}
	return &n, nil
}

func (p *Source) serveDeleteObject(w http.ResponseWriter, r *http.Request, kind string) {
	if err := p.deleteObject(kind, r.PathValue("namespace"), r.PathValue("name")); err != nil {
		refuse(w, http.StatusNotFound, err)
		return
	}
	answer(w, http.StatusOK, Answer{Items: []Pushed{{Kind: kind, Namespace: r.PathValue("namespace"), Name: r.PathValue("name"), Result: "deleted"}}})
}

// statusOf returns the HTTP status for an error of put or end.
func statusOf(err error) int {
	var other errOther
	var missing errMissing
	switch {
	case errors.As(err, &missing):
		return http.StatusUnprocessableEntity
	case errors.As(err, &other):
		return http.StatusConflict
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return http.StatusInsufficientStorage
	}
	return http.StatusInternalServerError
}

func refuse(w http.ResponseWriter, status int, err error) { refuseWith(w, status, nil, err) }

func refuseWith(w http.ResponseWriter, status int, done []Pushed, err error) {
	answer(w, status, Answer{Items: done, Errors: []Error{{Message: err.Error()}}})
}

func refuseManifest(w http.ResponseWriter, m *manifest.Manifest) {
	a := Answer{}
	for _, e := range m.Errors {
		a.Errors = append(a.Errors, Error{Line: e.Line, Document: e.Document, Object: e.Object, Field: e.Field, Message: e.Error()})
	}
	answer(w, http.StatusBadRequest, a)
}

func answer(w http.ResponseWriter, status int, a Answer) {
	if a.Items == nil {
		a.Items = []Pushed{}
	}
	writeAnswer(w, status, a)
}

func writeAnswer(w http.ResponseWriter, status int, v any) {
	if p, ok := v.(*v1.Pod); ok {
		p = p.DeepCopy()
		p.APIVersion, p.Kind = "v1", kindPod
		v = p
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	_ = enc.Encode(v) // an error means that the client is gone
}
