package server

import (
	"bytes"
	"encoding/json"
	"net/http"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// servePods answers /pods: a PodList of the desired pods with their statuses.
func (s *Server) servePods(w http.ResponseWriter, _ *http.Request) { writePods(w, s.cfg.Pods.List()) }

// serveRunningPods answers /runningpods: a PodList of the pods that the runtime has.
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

// writeJSON encodes before it writes, so that an encoding error can still become an HTTP status.
func writeJSON(w http.ResponseWriter, v any) {
	var b bytes.Buffer
	if err := json.NewEncoder(&b).Encode(v); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	_, _ = b.WriteTo(w) // an error means that the client is gone
}

// serveConfigz answers /configz: the configuration in effect, under the key that clients expect.
func (s *Server) serveConfigz(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, map[string]any{"kubeletconfig": s.cfg.Sources.Configz()})
}
