package nodefacts

import (
	"log/slog"
	"os"
	"sync"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/wherry-node/wherry/internal/core/crispec"
)

// Resolver reads the node's resolver configuration (resolvConf). Its methods may be called concurrently.
type Resolver struct {
	// Path is the file; "": there is none. ClusterDomain stands before what it says.
	Path, ClusterDomain string
	// Event records an event on the node.
	Event func(eventType, reason, message string)
	Log   *slog.Logger

	mu   sync.Mutex
	said string // what was wrong at the last reading
}

// Read returns what pods' DNS builds on: nil where there is none. What is wrong is told once, and again when it is something
// else: "CheckLimitsForResolvConf".
func (r *Resolver) Read() *runtimeapi.DNSConfig {
	if r.Path == "" {
		return nil
	}
	c, wrong := &runtimeapi.DNSConfig{}, ""
	text, err := os.ReadFile(r.Path)
	if err == nil {
		c, err = crispec.ParseResolvConf(text)
	}
	if err != nil {
		wrong = err.Error()
	} else {
		wrong = crispec.ResolvConfWarning(r.Path, c, r.ClusterDomain)
	}
	r.mu.Lock()
	tell := wrong != "" && wrong != r.said
	r.said = wrong
	r.mu.Unlock()
	if tell {
		r.Log.Warn("pods get what can be used of resolvConf", "path", r.Path, "wrong", wrong)
		r.Event(v1.EventTypeWarning, "CheckLimitsForResolvConf", wrong)
	}
	return c
}
