package server

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/wherry-node/wherry/internal/core/pod"
)

// checkpointed is the answer to a request for a checkpoint.
type checkpointed struct {
	Items []string `json:"items"`
}

// serveCheckpoint answers POST /checkpoint/NAMESPACE/POD/CONTAINER: it makes the runtime write a checkpoint of the container, and
// answers with the path of the file. The HTTP statuses are those of upstream's kubelet. As there, the number of checkpoints is not
// bounded, so a client with the right to create nodes/checkpoint can fill the disk.
func (s *Server) serveCheckpoint(w http.ResponseWriter, r *http.Request) {
	namespace, podName, name := r.PathValue("namespace"), r.PathValue("pod"), r.PathValue("container")
	p, ok := s.cfg.Pods.Pod(namespace, podName)
	if !ok {
		http.Error(w, "pod does not exist", http.StatusNotFound)
		return
	}
	if pod.SpecOf(p, name) == nil {
		http.Error(w, fmt.Sprintf("container %v does not exist", name), http.StatusNotFound)
		return
	}
	var timeout time.Duration
	if values := r.URL.Query()["timeout"]; len(values) > 0 { // as in upstream's kubelet, the last value of timeout counts
		seconds, err := strconv.ParseInt(values[len(values)-1], 10, 64)
		if err != nil {
			http.Error(w, "cannot parse value of timeout parameter", http.StatusNotFound)
			return
		}
		timeout = time.Duration(min(seconds, int64(math.MaxInt64/time.Second))) * time.Second
	}
	fail := func(err error) {
		http.Error(w, fmt.Sprintf("checkpointing of %v/%v/%v failed (%v)", namespace, podName, name, err), http.StatusInternalServerError)
	}
	if timeout < 0 {
		fail(fmt.Errorf("timeout: %s: must not be negative", timeout))
		return
	}
	id := ""
	if o, ok := s.cfg.Pods.Observed(p.UID); ok {
		for i := range o.Containers { // the list has the newest attempt of a container first
			if c := &o.Containers[i]; c.Name == name && c.Alive() {
				id = c.ID
				break
			}
		}
	}
	if id == "" {
		fail(fmt.Errorf("container %v not found", name))
		return
	}
	path, err := s.cfg.Sources.Checkpoint(r.Context(), p, id, name, timeout)
	if err != nil {
		fail(err)
		return
	}
	body, err := json.Marshal(checkpointed{[]string{path}})
	if err != nil {
		fail(err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(body) // an error means that the client is gone
}
