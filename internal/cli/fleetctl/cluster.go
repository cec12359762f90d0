package fleetctl

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/wherry-node/wherry/agent/simulated"
)

// usedCluster is the cluster that the nodes join.
type usedCluster struct {
	client     *rest.Config
	server     string    // the address of its API server
	kubeconfig string    // the file with which users reach it; "": they use their own
	plane      *plane    // nil: the cluster existed before
	began      time.Time // when the plane was started; zero: the cluster existed before
}

// cluster returns the cluster that the user names. If the user names none, it starts a control plane, which the caller stops.
func (r *Run) cluster(ctx context.Context, nodes int, said *progress) (c usedCluster, err error) {
	if r.joins() {
		if c.client, err = r.given(nodes); err != nil {
			return c, err
		}
		c.server, c.kubeconfig = c.client.Host, absolute(r.Kubeconfig)
		return c, nil
	}
	program, err := findPlane(r.ControlPlane)
	if err != nil {
		return c, err
	}
	said.line("starting a control plane")
	c.began = time.Now()
	if c.plane, err = startPlane(ctx, program, r.DataDir, nodes); err != nil {
		return usedCluster{}, err
	}
	c.kubeconfig = absolute(c.plane.kubeconfig)
	if c.client, err = loadKubeconfig(c.kubeconfig, ""); err != nil {
		return usedCluster{}, errors.Join(err, c.plane.stop())
	}
	c.server = c.client.Host
	said.line("control plane ready: export KUBECONFIG=%s", c.kubeconfig)
	return c, nil
}

// absolute returns the path of a file for users who are in another directory.
func absolute(path string) string {
	if whole, err := filepath.Abs(path); err == nil && path != "" {
		return whole
	}
	return path
}

// joins reports whether the fleet joins a cluster that exists.
func (r *Run) joins() bool { return r.Kubeconfig != "" || r.InCluster }

// given returns the client configuration of the cluster that the user names.
func (r *Run) given(nodes int) (client *rest.Config, err error) {
	if r.InCluster {
		if client, err = rest.InClusterConfig(); err != nil {
			return nil, fmt.Errorf("--in-cluster: %w", err)
		}
	} else if client, err = loadKubeconfig(r.Kubeconfig, r.Context); err != nil {
		return nil, err
	}
	end := ", and removes them at the end"
	if r.Keep || r.Shard != "" {
		end = ""
	}
	if !r.Yes {
		return nil, fmt.Errorf("this adds %d simulated nodes to the cluster at %s%s: repeat the command with --yes", nodes, client.Host, end)
	}
	return client, nil
}

// loadKubeconfig reads a kubeconfig.
func loadKubeconfig(file, context string) (*rest.Config, error) {
	rules := clientcmd.ClientConfigLoadingRules{ExplicitPath: file}
	cfg, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(&rules, &clientcmd.ConfigOverrides{CurrentContext: context}).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig: %w", err)
	}
	return cfg, nil
}

// hostAddress returns the address at which an API server reaches this host. Without a network it is the loopback address. Then logs and
// exec work on this machine, but the API server's proxy to a node does not.
func hostAddress() netip.Addr {
	if a := simulated.HostAddress(); a.IsValid() {
		return a
	}
	return netip.AddrFrom4([4]byte{127, 0, 0, 1})
}
