package server

import (
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// settleWithin is how long after the server has begun to serve requests about containers wait at most for the node to know them.
	settleWithin = 10 * time.Second
	// settleLook is the time between two looks whether it does.
	settleLook = 50 * time.Millisecond
)

// settling is the time after the start in which the node does not know all of its pods and containers yet.
type settling struct {
	once sync.Once
	end  time.Time // zero: it has not begun
	over atomic.Bool
}

// begin begins the time when the server begins to serve. Between New and that moment the agent may wait for a runtime that starts, too.
func (t *settling) begin() {
	t.once.Do(func() { t.end = time.Now().Add(settleWithin) })
}

// wait lets a request about the containers of a pod wait until the node knows its pods and what the runtime has of them. Otherwise kubectl exec would say,
// right after a restart of the agent, that a container that has been running all the time does not exist.
func (s *Server) wait(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		for !s.settling.over.Load() {
			if s.cfg.Pods.Settled() || !time.Now().Before(s.settling.end) {
				s.settling.over.Store(true)
				break
			}
			select {
			case <-time.After(settleLook):
			case <-r.Context().Done():
				return
			}
		}
		next(w, r)
	}
}
