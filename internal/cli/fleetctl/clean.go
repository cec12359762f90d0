package fleetctl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/wherry-node/wherry/agent/fleet"
)

// Clean is the command `wherry fleet clean`.
type Clean struct {
	Name                string
	Kubeconfig, Context string
	All                 bool // remove the nodes of every fleet, not only those of the fleet Name
	// ShardNamespace is the namespace of the leases with which several processes share a fleet; "": all namespaces, or kube-system if the
	// user may not list leases in all.
	ShardNamespace string
	// Force removes the nodes even if they renew their leases, so that the fleet seems to run. It does not do so while a shard runs.
	Force bool
}

// Run removes the nodes and pods of fleets that no longer run, and what let their nodes get certificates. It removes nothing, and returns an error, if
// one of the fleets runs. It writes to said if it has to wait to know that.
func (c *Clean) Run(ctx context.Context, out, said io.Writer) error {
	if c.Kubeconfig == "" {
		return errors.New("name the cluster with --kubeconfig: what a fleet leaves in a control plane of its own is gone with it")
	}
	client, err := loadKubeconfig(c.Kubeconfig, c.Context)
	if err != nil {
		return err
	}
	name := c.Name
	if c.All {
		name = ""
	}
	if !c.Force {
		err := fleet.CheckEnded(ctx, client, name, func(atMost time.Duration) {
			fmt.Fprintf(said, "the fleet may run: looking for up to %s whether a node renews its lease\n", atMost.Round(time.Second))
		})
		if err != nil {
			return fmt.Errorf("%w (--force: remove its nodes without this check)", err)
		}
	}
	if err := fleet.CleanShards(ctx, client, c.ShardNamespace, name); err != nil {
		return err
	}
	done, err := fleet.Clean(ctx, client, name)
	fmt.Fprintf(out, "removed from %s: %d nodes, %d pods\n", client.Host, done.Nodes, done.Pods)
	if done.Unchecked != "" {
		fmt.Fprintf(out, "this user may not remove %s: if the fleet had --identity certificate or --storage, some may be left\n", done.Unchecked)
	}
	return err
}
