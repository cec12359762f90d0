package nodefacts

import (
	"cmp"
	"log/slog"
	"os"
	"sync"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/wherry-node/wherry/internal/core/crispec"
)

// Resolver reads the node's resolver configuration (resolvConf). Its methods may be called concurrently.
type Resolver struct {
	// Path is the path of resolvConf; "": there is no such file. The search list of pods also has three domains below ClusterDomain,
	// which count against the limits of the list. Set may change both fields at any time.
	Path, ClusterDomain string
	// Event records an event on the node.
	Event func(eventType, reason, message string)
	Log   *slog.Logger

	mu   sync.Mutex // guards Path, ClusterDomain and last
	last string     // the problem of the last read
}

// Set replaces the fields Path and ClusterDomain.
func (r *Resolver) Set(path, clusterDomain string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Path, r.ClusterDomain = path, clusterDomain
}

// Read returns the configuration that the DNS of pods builds on, or nil if Path is empty. If the file has a problem, Read returns the
// valid part of it; the error says that the file cannot be read at all. Read reports a problem once, and again when the problem changes, with
// the event CheckLimitsForResolvConf.
func (r *Resolver) Read() (*runtimeapi.DNSConfig, error) {
	r.mu.Lock()
	path, domain := r.Path, r.ClusterDomain
	r.mu.Unlock()
	if path == "" {
		return nil, nil
	}
	wrong := ""
	text, err := os.ReadFile(path)
	c, invalid := crispec.ParseResolvConf(text) // if the file cannot be read, text and c are empty
	if problem := cmp.Or(err, invalid); problem != nil {
		wrong = problem.Error()
	} else {
		wrong = crispec.ResolvConfWarning(path, c, domain)
	}
	r.mu.Lock()
	report := wrong != "" && wrong != r.last
	r.last = wrong
	r.mu.Unlock()
	if report {
		r.Log.Warn("resolvConf has a problem; pods get the valid part of it", "path", path, "problem", wrong)
		r.Event(v1.EventTypeWarning, "CheckLimitsForResolvConf", wrong)
	}
	return c, err
}
