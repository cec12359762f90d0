package kubeadm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/wherry-node/wherry/tools/internal/proc"
	"github.com/wherry-node/wherry/tools/internal/vm"
)

// spaces are the namespaces of a node or of the user. They exist as long as a process, the holder, sleeps in them.
type spaces struct {
	pidFile string   // of the holder
	kinds   []string // names of namespaces, as in the options of unshare and nsenter
}

func (c *Cluster) user() spaces {
	return spaces{pidFile: c.path("user.pid"), kinds: []string{"net"}}
}

func (n *node) spaces() spaces {
	return spaces{pidFile: filepath.Join(n.dir, "node.pid"), kinds: []string{"mount", "net", "uts"}}
}

// open starts the holder, unless it runs, and waits until it is in its namespaces.
func (s spaces) open(ctx context.Context) error {
	if _, running := proc.Find(s.pidFile); !running {
		var args []string
		for _, kind := range s.kinds {
			args = append(args, "--"+kind)
		}
		if _, err := proc.Start(proc.Spec{PIDFile: s.pidFile, Log: s.pidFile + ".log", Path: "unshare", Args: append(args, "sleep", "infinity")}); err != nil {
			return err
		}
	}
	return vm.Await(ctx, "new namespaces", 30*time.Second, 10*time.Millisecond, func(context.Context) (bool, string) {
		_, err := s.holder()
		return err == nil, fmt.Sprint(err)
	})
}

// holder returns the holder. It is an error if it does not run, or has not left the namespaces of this process: a program that enters its
// namespaces would change the machine's mounts.
func (s spaces) holder() (proc.Process, error) {
	holder, running := proc.Find(s.pidFile)
	if !running {
		return holder, fmt.Errorf("the cluster is down (%s)", s.pidFile)
	}
	for _, kind := range s.kinds {
		file := kind
		if kind == "mount" {
			file = "mnt"
		}
		own, err := os.Readlink("/proc/self/ns/" + file)
		if err != nil {
			return holder, err
		}
		if its, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", holder.PID, file)); err != nil || its == own {
			return holder, errors.Join(fmt.Errorf("process %d (%s) has no %s namespace of its own", holder.PID, s.pidFile, kind), err)
		}
	}
	return holder, nil
}

// close ends the holder.
func (s spaces) close(ctx context.Context) error { return proc.Stop(ctx, s.pidFile, 0) }

// inside returns a command line that runs a program in the namespaces.
func (s spaces) inside(name string, args ...string) ([]string, error) {
	holder, err := s.holder()
	if err != nil {
		return nil, fmt.Errorf("run %s: %w", filepath.Base(name), err)
	}
	line := []string{"nsenter", "--target=" + strconv.Itoa(holder.PID)}
	for _, kind := range s.kinds {
		line = append(line, "--"+kind)
	}
	return slices.Concat(line, []string{"--", name}, args), nil
}

// run runs a program in the namespaces.
func (s spaces) run(ctx context.Context, name string, args ...string) error {
	line, err := s.inside(name, args...)
	if err != nil {
		return err
	}
	_, err = proc.Output(exec.CommandContext(ctx, line[0], line[1:]...), proc.Line(name, args...))
	return err
}

// ip runs the program ip in the namespaces, once for each line.
func (s spaces) ip(ctx context.Context, lines ...string) error {
	for _, line := range lines {
		if err := s.run(ctx, "ip", strings.Fields(line)...); err != nil {
			return err
		}
	}
	return nil
}

// connect makes the network: a bridge in the user's namespace, and a pair of interfaces between it and each node. Each node routes to the
// pods of the other one, and the user's namespace to all pods and Services.
func (c *Cluster) connect(ctx context.Context) error {
	user := c.user()
	if err := user.ip(ctx, "link set lo up", "link add "+bridge+" type bridge", "addr add "+UserAddress+"/24 dev "+bridge, "link set "+bridge+" up"); err != nil {
		return err
	}
	for _, n := range c.nodes {
		holder, err := n.spaces().holder()
		if err != nil {
			return err
		}
		if err := user.ip(ctx, fmt.Sprintf("link add %s type veth peer name eth0 netns %d", n.name, holder.PID),
			"link set "+n.name+" master "+bridge+" up", "route add "+n.pods+" via "+n.address); err != nil {
			return err
		}
		lines := []string{"link set lo up", "addr add " + n.address + "/24 dev eth0", "link set eth0 up", "route add default via " + UserAddress}
		for _, other := range c.nodes {
			if other != n {
				lines = append(lines, "route add "+other.pods+" via "+other.address)
			}
		}
		if err := n.spaces().ip(ctx, lines...); err != nil {
			return err
		}
		if err := n.spaces().run(ctx, "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward"); err != nil {
			return err
		}
	}
	// Services have addresses of their own, which only kube-proxy on a node knows.
	return user.ip(ctx, "route add 10.96.0.0/12 via "+c.first().address)
}
