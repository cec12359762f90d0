package server

import (
	"net/http"
	"sync/atomic"
	"time"
)

const (
	// settleWithin is how long after the start of the server requests about containers wait at most for the node to know them.
	settleWithin = 10 * time.Second
	// settleLook is the time between two looks whether it does.
	settleLook = 50 * time.Millisecond
)

// settling is the time after the start in which the node does not know all of its pods and containers yet. The zero value is not usable.
type settling struct {
	end  time.Time
	over atomic.Bool
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
