package agent

import (
	"log/slog"
	"os"
	"sync"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/wherry-node/wherry/internal/crispec"
)

// resolver reads the node's resolver configuration. It may be used concurrently.
type resolver struct {
	path, clusterDomain string
	event               func(eventType, reason, message string) // on the node
	log                 *slog.Logger

	mu   sync.Mutex
	said string // what was wrong at the last reading
}

// read returns what pods' DNS builds on: nil where there is none. What is wrong is told once, and again when it is something
// else: "CheckLimitsForResolvConf".
func (r *resolver) read() *runtimeapi.DNSConfig {
	if r.path == "" {
		return nil
	}
	c, wrong := &runtimeapi.DNSConfig{}, ""
	text, err := os.ReadFile(r.path)
	if err == nil {
		c, err = crispec.ParseResolvConf(text)
	}
	if err != nil {
		wrong = err.Error()
	} else {
		wrong = crispec.ResolvConfWarning(r.path, c, r.clusterDomain)
	}
	r.mu.Lock()
	tell := wrong != "" && wrong != r.said
	r.said = wrong
	r.mu.Unlock()
	if tell {
		r.log.Warn("pods get what can be used of resolvConf", "path", r.path, "wrong", wrong)
		r.event(v1.EventTypeWarning, "CheckLimitsForResolvConf", wrong)
	}
	return c
}
