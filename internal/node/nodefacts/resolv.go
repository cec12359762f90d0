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
	// Path is the file; "": there is none. ClusterDomain comes first in the search list of pods, and counts against its limits.
	Path, ClusterDomain string
	// Event records an event on the node.
	Event func(eventType, reason, message string)
	Log   *slog.Logger

	mu   sync.Mutex
	last string // the problem of the last read
}

// Read returns the configuration that the DNS of pods builds on, or nil if there is none. It reports a problem once, and again
// when the problem changes, with the event CheckLimitsForResolvConf.
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
	report := wrong != "" && wrong != r.last
	r.last = wrong
	r.mu.Unlock()
	if report {
		r.Log.Warn("resolvConf has a problem; pods get the valid part of it", "path", r.Path, "problem", wrong)
		r.Event(v1.EventTypeWarning, "CheckLimitsForResolvConf", wrong)
	}
	return c
}
