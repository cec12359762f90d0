package simulated

import (
	"k8s.io/client-go/rest"

	"github.com/wherry-node/wherry/internal/sim/simkube"
)

// APIServer is an API server in memory, with the parts that nodes use. It has no scheduler and no controllers, answers at once, and works in virtual
// time (testing/synctest). Methods may be called concurrently.
type APIServer struct{ kube *simkube.Kube }

// NewAPIServer returns an API server without nodes. It starts nothing. The seed decides the UIDs.
func NewAPIServer(seed uint64) *APIServer {
	return &APIServer{simkube.New(simkube.Config{Seed: seed})}
}

// Client returns a client configuration. userAgent is the name of the program.
func (s *APIServer) Client(userAgent string) *rest.Config { return s.kube.RESTConfig(userAgent) }

// ExpireEvents removes all events. API servers remove each an hour after its last change; who runs a simulation for long calls it from time to time.
func (s *APIServer) ExpireEvents() { s.kube.ExpireEvents() }
