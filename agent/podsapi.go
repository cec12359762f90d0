package agent

import (
	"context"
	"fmt"
	"path/filepath"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/edge/podsapi"
	"github.com/wherry-node/wherry/internal/edge/server"
	"github.com/wherry-node/wherry/internal/edge/socket"
)

// podsAPISocket is the socket of the Pods API, below the agent's directory, as with upstream's kubelet.
const podsAPISocket = "pods-api/pods-api.sock"

// openPodsAPI opens the socket of the Pods API if the feature gate PodsAPI is on.
func (a *Agent) openPodsAPI(context.Context) error {
	if !gates(&a.cfg).Enabled("PodsAPI") || !a.cfg.Listen || a.cfg.RootDir == "" {
		return nil
	}
	path := filepath.Join(a.cfg.RootDir, podsAPISocket)
	l, err := socket.Listen(path, filepath.Dir(path))
	if err != nil {
		return fmt.Errorf("socket of the Pods API (feature gate PodsAPI): %w", err)
	}
	a.deps.PodsAPI = l
	a.opened.closes = append(a.opened.closes, func() { _ = l.Close() })
	a.log.Info("Pods API", "path", path)
	return nil
}

// buildPodsAPI wires the Pods API, which programs of the machine use to list and watch the pods of the node.
func (a *Agent) buildPodsAPI() error {
	if a.deps.PodsAPI != nil && gates(&a.cfg).Enabled("PodsAPI") {
		a.podsAPI = podsapi.New(nodePods{a}, a.metrics.PodWatchEnded)
	}
	return nil
}

func (a *Agent) servePodsAPI(ctx context.Context) error {
	return a.podsAPI.Serve(ctx, server.Lasting(ctx, a.deps.PodsAPI, a.log)) // one connection that fails must not end the agent
}

// nodePods has the pods of the node for the Pods API.
type nodePods struct{ a *Agent }

var _ podsapi.Pods = nodePods{}

// List returns all pods, each with its newest status.
func (n nodePods) List() []*v1.Pod { return n.a.view().List() }

// ByUID returns a pod with its newest status, or nil.
func (n nodePods) ByUID(uid types.UID) *v1.Pod {
	p, _ := n.a.pods.Get(uid)
	if p == nil {
		return nil
	}
	return n.a.view().withStatus(p)
}
