package kubeadm

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/wherry-node/wherry/tools/internal/cgroup"
	"github.com/wherry-node/wherry/tools/internal/proc"
)

// UserAddress is the address of the user's network namespace on the bridge, to which the nodes are connected. Pods have addresses in podCIDR,
// in which each node has a part.
const (
	UserAddress = "10.78.0.1"
	podCIDR     = "10.244.0.0/16"
	bridge      = "br0"
)

// Options configure the cluster.
type Options struct {
	Checkout string
	// Dir is the directory of all files; "": .wherry/kubeadm in the checkout.
	Dir string
	// Agent is the node agent of both nodes: wherry, or kubelet (upstream's).
	Agent string
	// NoBuild uses the programs in bin/ without building them.
	NoBuild bool
	// Archives are files with images that each node gets in addition. Registries is the directory for runtime.Config.Registries.
	Archives   []string
	Registries string
	Progress   io.Writer
}

// Cluster is the cluster of one checkout.
type Cluster struct {
	Options
	began time.Time
	nodes []*node
}

// New checks the options and sets their defaults. It starts nothing.
func New(o Options) (*Cluster, error) {
	if o.Agent != "wherry" && o.Agent != "kubelet" {
		return nil, fmt.Errorf("node agent %q is neither wherry nor kubelet", o.Agent)
	}
	if o.Dir == "" {
		o.Dir = filepath.Join(o.Checkout, ".wherry", "kubeadm")
	}
	c := &Cluster{Options: o, began: time.Now()}
	for i, name := range []string{"one", "two"} {
		c.nodes = append(c.nodes, &node{
			cluster: c, name: name, address: fmt.Sprintf("10.78.0.%d", 11+i), pods: fmt.Sprintf("10.244.%d.0/24", i), dir: filepath.Join(o.Dir, name),
		})
	}
	return c, nil
}

func (c *Cluster) path(elem ...string) string {
	return filepath.Join(append([]string{c.Dir}, elem...)...)
}

func (c *Cluster) bin(name string) string { return filepath.Join(c.Checkout, "bin", name) }

// first returns the node with the control plane.
func (c *Cluster) first() *node { return c.nodes[0] }

// Kubeconfig returns the path of the administrator's kubeconfig. Its server can be reached only from the user's network namespace.
func (c *Cluster) Kubeconfig() string { return c.path("admin.kubeconfig") }

// cgroup returns the cgroup above all cgroups of the nodes.
func (c *Cluster) cgroup() string { return cgroup.Name(c.Dir) }

func (c *Cluster) say(format string, args ...any) {
	fmt.Fprintf(c.Progress, "%6.1f s  %s\n", time.Since(c.began).Seconds(), fmt.Sprintf(format, args...))
}

// lock makes sure that no other command works on the cluster at the same time. The lock file is beside the directory, because Down removes
// the directory.
func (c *Cluster) lock() (unlock func(), err error) {
	return proc.Lock(c.Dir+".lock", "another make kubeadm is at work in this checkout")
}

// Command returns a command that runs in the user's network namespace. Its environment names the administrator's kubeconfig.
func (c *Cluster) Command(ctx context.Context, name string, args ...string) (*exec.Cmd, error) {
	line, err := c.user().inside(name, args...)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, line[0], line[1:]...)
	cmd.Env, cmd.WaitDelay = append(os.Environ(), "KUBECONFIG="+c.Kubeconfig(), "KUBECACHEDIR="+c.path("cache")), 10*time.Second
	return cmd, nil
}

// Listen listens at a TCP port of the user's network namespace, which the nodes reach at UserAddress.
func (c *Cluster) Listen(port int) (net.Listener, error) {
	holder, err := c.user().holder()
	if err != nil {
		return nil, err
	}
	return proc.Listen(fmt.Sprintf("/proc/%d/ns/net", holder.PID), fmt.Sprintf("%s:%d", UserAddress, port))
}

// Kubectl runs kubectl as the administrator, with input as its standard input, and returns its output.
func (c *Cluster) Kubectl(ctx context.Context, input string, args ...string) (string, error) {
	cmd, err := c.Command(ctx, c.bin("kubectl"), args...)
	if err != nil {
		return "", err
	}
	cmd.Stdin = strings.NewReader(input)
	return proc.Output(cmd, proc.Line("kubectl", args...))
}
