package server

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"mime"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// servePods answers /pods: a PodList of the desired pods with their statuses.
func (s *Server) servePods(w http.ResponseWriter, _ *http.Request) { writePods(w, s.cfg.Pods.List()) }

// serveRunningPods answers /runningpods: a PodList of what the runtime runs.
func (s *Server) serveRunningPods(w http.ResponseWriter, r *http.Request) {
	pods, err := s.cfg.Sources.RunningPods(r.Context())
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	writePods(w, pods)
}

func writePods(w http.ResponseWriter, pods []*v1.Pod) {
	list := v1.PodList{
		TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"},
		Items:    make([]v1.Pod, 0, len(pods)),
	}
	for _, p := range pods {
		list.Items = append(list.Items, *p)
	}
	writeJSON(w, &list)
}

// writeJSON encodes before it writes, so that an error can still be a status.
func writeJSON(w http.ResponseWriter, v any) {
	var b bytes.Buffer
	if err := json.NewEncoder(&b).Encode(v); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	_, _ = b.WriteTo(w) // the client is gone: nothing to tell it
}

// serveConfigz answers /configz: the configuration in effect under the key that clients look for.
func (s *Server) serveConfigz(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, map[string]any{"kubeletconfig": s.cfg.Sources.Configz()})
}

// serveFlagz answers /flagz as text, one flag a line.
func (s *Server) serveFlagz(w http.ResponseWriter, r *http.Request) {
	if !acceptsText(w, r) {
		return
	}
	writeText(w)
	writeTitle(w, "flagz")
	flags := s.cfg.Sources.Flags()
	for _, name := range slices.Sorted(maps.Keys(flags)) {
		fmt.Fprintf(w, "%s=%s\n", name, flags[name])
	}
}

// serveStatusz answers /statusz as text: since when, how long, what version, which paths.
func (s *Server) serveStatusz(w http.ResponseWriter, r *http.Request) {
	if !acceptsText(w, r) {
		return
	}
	src := &s.cfg.Sources
	writeText(w)
	writeTitle(w, "statusz")
	if !src.Started.IsZero() {
		up := time.Since(src.Started).Truncate(time.Second)
		fmt.Fprintf(w, "Started: %s\n", src.Started.UTC().Format(time.UnixDate))
		fmt.Fprintf(w, "Up: %d hr %02d min %02d sec\n", up/time.Hour, up%time.Hour/time.Minute, up%time.Minute/time.Second)
	}
	fmt.Fprintf(w, "Go version: %s\n", runtime.Version())
	if src.Version != "" {
		fmt.Fprintf(w, "Binary version: %s\n", strings.TrimPrefix(src.Version, "v"))
	}
	paths := map[string]bool{}
	for _, rt := range append(s.openRoutes(), s.guardedRoutes()...) {
		path := rt.pattern[strings.IndexByte(rt.pattern, '/'):]
		if !strings.Contains(path, "{") {
			paths[path] = true
		}
	}
	fmt.Fprintf(w, "Paths: %s\n", strings.Join(slices.Sorted(maps.Keys(paths)), " "))
}

func writeTitle(w http.ResponseWriter, what string) {
	fmt.Fprintf(w, "\nkubelet %s\nWarning: This endpoint is not meant to be machine parseable, has no formatting "+
		"compatibility guarantees and is for debugging purposes only.\n\n", what)
}

// acceptsText answers 406 to a client that asks for something else than text.
func acceptsText(w http.ResponseWriter, r *http.Request) bool {
	accept := r.Header.Values("Accept")
	for _, h := range accept {
		for part := range strings.SplitSeq(h, ",") {
			if media, _, err := mime.ParseMediaType(part); err == nil && (media == "text/plain" || media == "text/*" || media == "*/*") {
				return true
			}
		}
	}
	if len(accept) == 0 || strings.Join(accept, "") == "" {
		return true
	}
	http.Error(w, "only text/plain is served here", http.StatusNotAcceptable)
	return false
}
