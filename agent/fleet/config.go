package fleet

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"path/filepath"
	"slices"
	"time"

	"k8s.io/client-go/rest"

	"github.com/wherry-node/wherry/agent/simulated"
	"github.com/wherry-node/wherry/internal/base/kubeclient"
	"github.com/wherry-node/wherry/internal/edge/config"
)

const userAgent = "wherry-fleet/" + config.WherryVersion + " (kubelet " + config.KubernetesVersion + ")"

// Identity says as which user the nodes send requests to the API server.
type Identity string

// These are the identities.
const (
	// Impersonate: each node acts as system:node:NAME, so that the Node authorizer and NodeRestriction check its requests as they check
	// those of a real node. The user of Config.Client needs the right to impersonate users and groups.
	Impersonate Identity = "impersonate"
	// Shared: all nodes act as the user of Config.Client. The API server does not check that a node changes only its own
	// objects.
	Shared Identity = "shared"
	// Certificate: each node has a key and a client certificate of its own, which it gets and renews as a real node does (TLS bootstrap),
	// and a connection of its own. The keys are in memory only. Run creates a bootstrap token and bindings of cluster roles for the nodes,
	// and removes them at its end; for this the user of Config.Client needs the rights of cluster-admin.
	Certificate Identity = "certificate"
)

// Config configures a fleet.
type Config struct {
	// Name is the fleet's name; "fleet" when empty. It is part of the nodes' names, and the value of the label wherry.dev/fleet of the
	// Nodes and pods that the fleet creates.
	Name string
	// Groups are the nodes; at least one.
	Groups []Group
	// Client configures the access to the API server. Required. Its rate limit is not used: each node has the limit of its
	// KubeletConfiguration.
	Client *rest.Config
	// ServerBegan is when the API server began, if it is one that only this process uses: a lease that was renewed before does not show that another
	// process runs the fleet. The zero value: nothing is known about that.
	ServerBegan time.Time
	// Identity is Impersonate when empty.
	Identity Identity
	// OwnWatches makes each node open its own watches of its pods, its Node, and the objects that its pods refer to, as real nodes do.
	// Otherwise all nodes share watches that the user of Client opens: one of all pods, one of all Nodes, and one of each other object.
	OwnWatches bool
	// Taint gives all nodes the taint wherry.dev/simulated=true:NoSchedule, so that pods of a real cluster do not come to them.
	Taint bool
	// Keep leaves Nodes and pods in the cluster when Run ends.
	Keep bool
	// Shard makes the fleet one of several processes that run its nodes together. Its zero value means that this process runs all nodes.
	// Such a fleet leaves its Nodes in the cluster, as with Keep.
	Shard Shard
	// Storage lets Run do what a provisioner, an attacher and a resizer do, for the CSI drivers of the groups: it makes the volumes of claims,
	// says that they are attached, and lets them grow. Run also creates, for each driver, a CSIDriver and a StorageClass of the driver's name,
	// unless they exist, and removes them at its end. The cluster must have the controllers of Kubernetes, and the user of Client rights on
	// these objects. Processes that share a fleet cannot have it.
	Storage bool
	// Address is an address of this host at which the API server reaches the nodes' HTTPS APIs, each on a port of its own, for kubectl
	// logs, exec, attach and port-forward, and for metrics. If it is the zero Addr, the nodes serve no HTTPS API, and their address is
	// 127.0.0.1.
	Address netip.Addr
	// Dir is a directory for the logs of containers; "": the nodes have no logs. Address needs it.
	Dir string
	// Rules say what containers and images do on all nodes; nil: there are no rules.
	Rules *simulated.Rules
	// Seed is the seed of all random values in the runtimes.
	Seed uint64
	// Changed, when set, is called for each change of a node or pod of the fleet. The calls for nodes and the calls for pods may be concurrent;
	// they must return quickly.
	Changed func(Change)
	// Settle, when set, is called before a scenario looks at the fleet or injects a fault. It returns when all that happens at the present instant of
	// virtual time has happened, as synctest.Wait does. Calls may be concurrent.
	Settle func()
	// Log is the fleet's own log, NodeLog the log of its agents. Nil: nothing is logged.
	Log, NodeLog *slog.Logger
}

// check sets the defaults, and returns a *simulated.FieldError for each field that is not valid.
func (c *Config) check() error {
	if c.Name == "" {
		c.Name = "fleet"
	}
	if c.Identity == "" {
		c.Identity = Impersonate
	}
	if c.Log == nil {
		c.Log = discard()
	}
	if c.NodeLog == nil {
		c.NodeLog = discard()
	}
	if err := checkName(c.Name); err != nil {
		return wrongConfig("Name", "%q: %w", c.Name, err)
	}
	if err := c.Shard.check(); err != nil {
		return err
	}
	switch {
	case c.Client == nil:
		return wrongConfig("Client", "it is required")
	case len(c.Groups) == 0:
		return wrongConfig("Groups", "there must be at least one")
	case c.Address.IsValid() && c.Dir == "":
		return wrongConfig("Address", "it needs Config.Dir")
	case c.Identity != Impersonate && c.Identity != Shared && c.Identity != Certificate:
		return wrongConfig("Identity", "%q: use %s, %s or %s", c.Identity, Impersonate, Shared, Certificate)
	case c.Storage && c.Shard.Name != "":
		return wrongConfig("Storage", "of processes that share a fleet, none makes volumes: run a fleet of one process, or other controllers for the CSI drivers")
	case c.Identity == Certificate && c.Shard.Name != "":
		return wrongConfig("Identity", "processes that share a fleet cannot give its nodes certificates: use %s, %s, or one process", Impersonate, Shared)
	}
	c.Groups = slices.Clone(c.Groups)
	var errs []error
	err := checkGroups(c.Groups, func(i int, field, text string) {
		errs = append(errs, wrongConfig(fmt.Sprintf("Groups[%d].%s", i, field), "%s", text))
	})
	for i := range c.Groups {
		c.Groups[i].setDefaults()
	}
	return errors.Join(append(errs, err)...)
}

// wrongConfig returns an error about one field of Config.
func wrongConfig(field, format string, args ...any) error {
	return fmt.Errorf("fleet: Config.%w", wrong(field, format, args...))
}

// logs returns the directory of the logs of a node's containers.
func (c *Config) logs(node string) string { return filepath.Join(c.Dir, "logs", node) }

// newClient returns a client without a rate limit. wrap, if it is not nil, may change the client's configuration first.
func newClient(cfg *rest.Config, wrap func(*rest.Config)) (*kubeclient.Client, error) {
	own := rest.CopyConfig(cfg)
	own.QPS, own.Burst, own.RateLimiter, own.UserAgent = -1, -1, nil, userAgent
	if wrap != nil {
		wrap(own)
	}
	c, err := kubeclient.New(own)
	if err != nil {
		return nil, wrongConfig("Client", "%w", err)
	}
	return c, nil
}
