package kubeadm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/wherry-node/wherry/tools/internal/build"
	"github.com/wherry-node/wherry/tools/internal/cgroup"
	"github.com/wherry-node/wherry/tools/internal/debian"
	"github.com/wherry-node/wherry/tools/internal/proc"
	"github.com/wherry-node/wherry/tools/internal/sysctl"
	"github.com/wherry-node/wherry/tools/internal/vm"
)

// patience is how long one step may take: kubeadm's own bounds are four minutes, and a machine with two busy processors is slow.
// answerPatience is how long a wait may take for something that usually takes a second.
const (
	patience       = 8 * time.Minute
	answerPatience = 2 * time.Minute
)

// cgroup returns the cgroup above all cgroups of the node.
func (n *node) cgroup() string { return n.cluster.cgroup() + "/" + n.name }

// Up builds what is missing, makes the two nodes, and runs kubeadm init and join on them. It returns when both nodes, kube-proxy and the
// cluster's DNS are ready. If the cluster is up, Up returns at once.
func (c *Cluster) Up(ctx context.Context) error {
	unlock, err := c.lock()
	if err != nil {
		return err
	}
	defer unlock()
	return c.up(ctx)
}

func (c *Cluster) up(ctx context.Context) error {
	if os.Geteuid() != 0 {
		return errors.New("make a cluster with kubeadm: its nodes need namespaces, mounts and containers, so root")
	}
	if _, err := os.Stat(c.ready()); err == nil {
		return nil
	}
	if _, err := os.Stat(c.Dir); err == nil {
		return fmt.Errorf("an earlier run has left files in %s: bin/wherry-dev kubeadm down", c.Dir)
	}
	if err := c.build(ctx); err != nil {
		return err
	}
	if err := os.MkdirAll(c.Dir, 0o755); err != nil {
		return err
	}
	if err := c.makeImages(ctx); err != nil {
		return err
	}
	if err := c.makeMachines(ctx); err != nil {
		return err
	}
	token, err := c.init(ctx)
	if err != nil {
		return err
	}
	if err := c.join(ctx, c.nodes[1], token); err != nil {
		return err
	}
	if err := c.awaitSystem(ctx); err != nil {
		return err
	}
	return os.WriteFile(c.ready(), nil, 0o644)
}

// ready returns the path of a file that exists once the cluster is up.
func (c *Cluster) ready() string { return c.path("ready") }

func (c *Cluster) build(ctx context.Context) error {
	if err := debian.Install(ctx, debian.Needed(), c.Progress); err != nil || c.NoBuild {
		return err
	}
	names := []string{"wherry", "kubernetes", "csrapprover", "CoreDNS", "runc", "containerd", "CNI plugins", "crictl", "kubectl", "image programs"}
	if c.Agent == "kubelet" {
		names = append(names, "kubelet")
	}
	c.say("building into %s (the first time takes a quarter of an hour)", filepath.Join(c.Checkout, "bin"))
	if err := build.Run(ctx, c.Checkout, names, c.Progress); err != nil {
		return err
	}
	_, err := build.Images(ctx, c.Checkout)
	return err
}

// makeMachines makes the nodes as machines: namespaces, network, runtime, and the unit of an agent that does not run yet.
func (c *Cluster) makeMachines(ctx context.Context) error {
	if err := errors.Join(c.noteSysctls(), c.user().open(ctx)); err != nil {
		return err
	}
	if err := cgroup.Make(c.cgroup()); err != nil {
		return err
	}
	for _, n := range c.nodes {
		if err := errors.Join(n.programs(), n.prepare(ctx)); err != nil {
			return err
		}
		if err := errors.Join(n.writeUnit(), cgroup.Make(n.cgroup())); err != nil {
			return err
		}
	}
	if err := c.connect(ctx); err != nil {
		return err
	}
	var runtimes errgroup.Group
	for _, n := range c.nodes {
		runtimes.Go(func() error { return n.startRuntime(ctx) })
	}
	if err := runtimes.Wait(); err != nil {
		return err
	}
	c.say("two machines with a container runtime each")
	return nil
}

// noteSysctls stores the kernel settings that the node agents change, although their namespaces are not the machine's.
func (c *Cluster) noteSysctls() error {
	data, err := json.Marshal(sysctl.Read())
	if err != nil {
		return err
	}
	return os.WriteFile(c.sysctls(), data, 0o644)
}

func (c *Cluster) restoreSysctls() error {
	data, err := os.ReadFile(c.sysctls())
	if errors.Is(err, os.ErrNotExist) { // no node has been made
		return nil
	}
	var before map[string]string
	if err == nil {
		err = json.Unmarshal(data, &before)
	}
	if err != nil {
		return fmt.Errorf("read the kernel settings before the cluster: %w", err)
	}
	return sysctl.Restore(before)
}

func (c *Cluster) sysctls() string { return c.path("sysctls.json") }

// kubeadm runs kubeadm on the node and keeps what it prints in a log.
func (n *node) kubeadm(ctx context.Context, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	began := time.Now()
	out, err := n.run(ctx, "kubeadm", args...)
	log := n.cluster.path("kubeadm.log")
	file, openErr := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600) // init prints a token
	if openErr == nil {
		_, writeErr := fmt.Fprintf(file, "# on %s: kubeadm %s\n%s\n", n.name, strings.Join(args, " "), out)
		openErr = errors.Join(writeErr, file.Close())
	}
	if err = errors.Join(err, openErr); err != nil {
		return fmt.Errorf("%w\nit printed:\n%s\nlast lines of %s:\n%s", err, lastLines(out, 20), n.log(), lastLines(read(n.log()), 20))
	}
	n.cluster.say("%s: kubeadm %s took %.0f s", n.name, strings.Join(args, " "), time.Since(began).Seconds())
	return nil
}

func read(file string) string {
	data, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	return string(data)
}

func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return "  " + strings.Join(lines[max(0, len(lines)-n):], "\n  ")
}

// init runs kubeadm init on the first node, and returns the token with which other nodes join.
func (c *Cluster) init(ctx context.Context) (token string, err error) {
	token = newToken()
	config, err := c.first().configure(initConfig, map[string]any{"Token": token})
	if err != nil {
		return "", err
	}
	if err := c.first().kubeadm(ctx, "init", "--config="+config); err != nil {
		return "", err
	}
	return token, c.takeKubeconfig()
}

// takeKubeconfig copies the administrator's kubeconfig that kubeadm wrote.
func (c *Cluster) takeKubeconfig() error {
	data, err := os.ReadFile(c.first().own("etc/kubernetes/admin.conf"))
	if err != nil {
		return err
	}
	return os.WriteFile(c.Kubeconfig(), data, 0o600)
}

func (c *Cluster) join(ctx context.Context, n *node, token string) error {
	hash, err := c.caHash()
	if err != nil {
		return err
	}
	config, err := n.configure(joinConfig, map[string]any{"Token": token, "Server": c.first().address, "CAHash": hash})
	if err != nil {
		return err
	}
	return n.kubeadm(ctx, "join", "--config="+config)
}

// await calls look every half second until done is true.
func (c *Cluster) await(ctx context.Context, what string, look func(context.Context) (done bool, state string)) error {
	began := time.Now()
	err := vm.Await(ctx, what, answerPatience, 500*time.Millisecond, look)
	if err == nil {
		c.say("%s, after %.1f s", what, time.Since(began).Seconds())
	}
	return err
}

// awaitRollout waits until an object of a workload has all its pods ready.
func (c *Cluster) awaitRollout(ctx context.Context, namespace, object string) error {
	began := time.Now()
	if _, err := c.Kubectl(ctx, "", "rollout", "status", "-n", namespace, object, "--timeout="+patience.String()); err != nil {
		return err
	}
	c.say("%s is ready, after %.1f s", object, time.Since(began).Seconds())
	return nil
}

// awaitSystem waits until both nodes are Ready and run kube-proxy, and the cluster's DNS runs.
func (c *Cluster) awaitSystem(ctx context.Context) error {
	if _, err := c.Kubectl(ctx, "", "wait", "--for=condition=Ready", "node", "--all", "--timeout="+patience.String()); err != nil {
		return err
	}
	c.say("both nodes are Ready")
	if err := c.awaitRollout(ctx, "kube-system", "daemonset/kube-proxy"); err != nil {
		return err
	}
	return c.awaitRollout(ctx, "kube-system", "deployment/coredns")
}

// Down ends the nodes with all their pods and removes everything but the logs.
func (c *Cluster) Down(ctx context.Context) error {
	unlock, err := c.lock()
	if err != nil {
		return err
	}
	defer unlock()
	return c.down(ctx)
}

func (c *Cluster) down(ctx context.Context) error {
	var errs []error
	for _, n := range c.nodes {
		errs = append(errs, n.end(ctx))
	}
	errs = append(errs, cgroup.Remove(ctx, c.cgroup()), c.user().close(ctx), c.restoreSysctls())
	if err := errors.Join(errs...); err != nil {
		return err // the directory stays, because the next Down needs its files
	}
	logs := filepath.Join(filepath.Dir(c.Dir), "logs")
	if err := os.MkdirAll(logs, 0o755); err != nil {
		return err
	}
	kept := map[string]string{c.path("kubeadm.log"): "kubeadm.log"}
	for _, n := range c.nodes {
		kept[n.log()], kept[n.path("containerd", "containerd.log")] = "kubeadm-"+n.name+".log", "kubeadm-"+n.name+"-containerd.log"
	}
	for from, to := range kept {
		_ = os.Rename(from, filepath.Join(logs, to)) // a log that cannot be kept is no error of Down
	}
	if err := errors.Join(os.RemoveAll(c.Dir), os.Remove(c.Dir+".lock")); err != nil {
		return err
	}
	c.say("down; logs of the last run: %s", logs)
	return nil
}

// running returns the container IDs of the node's containers that run, by pod and container name.
func (n *node) running(ctx context.Context) (map[string]string, error) {
	out, err := n.crictl(ctx, "ps", "-o", "json")
	if err != nil {
		return nil, err
	}
	return parseContainers(out)
}

// alive reports whether the node agent runs.
func (n *node) alive() bool {
	_, runs := proc.Find(n.agentPID())
	return runs
}
