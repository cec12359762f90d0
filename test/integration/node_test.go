package integration

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/moby/sys/mountinfo"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// nodeConfig has the settings that may differ between the nodes of a run.
type nodeConfig struct {
	Name    string
	Runtime string // directory of the node's containerd
	Flags   []string
	Config  string // additional lines of the node's KubeletConfiguration
}

// node is a Wherry node. Its agent is a process of its own.
type node struct {
	nodeConfig
	env          *env
	dir          string
	cgroup       string
	port, health int
	process      *process
	starts       int // number of restarts of the agent
}

const kubeletConfiguration = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
failCgroupV1: false
cgroupRoot: /%[1]s
containerRuntimeEndpoint: unix://%[2]s/containerd.sock
authentication: {x509: {clientCAFile: %[3]s/ca.crt}}
clusterDomain: cluster.local
clusterDNS: [10.96.0.10]
podLogsDir: %[4]s/logs
port: %[5]d
healthzPort: %[6]d
allowedUnsafeSysctls: ["net.core.somaxconn"]
makeIPTablesUtilChains: false
imageGCHighThresholdPercent: 100
podPidsLimit: 300
containerLogMaxSize: 256Ki
containerLogMaxFiles: 3
containerLogMonitorInterval: 3s
`

// roomConfig lowers the disk thresholds. With the defaults a node refuses all pods if the disk of the machine is more than 85 % full. A test
// of eviction has thresholds of its own.
const roomConfig = "evictionHard: {memory.available: 100Mi, nodefs.available: 1%, nodefs.inodesFree: 1%, imagefs.available: 1%, imagefs.inodesFree: 1%}\n"

// startNode starts a node and does not wait until it is Ready.
func (e *env) startNode(cfg nodeConfig) (*node, error) {
	n := &node{nodeConfig: cfg, env: e, dir: filepath.Join(e.dir, cfg.Name)}
	n.cgroup = prefix + strconv.Itoa(e.id) + "/" + cfg.Name
	var err1, err2 error
	n.port, err1 = freePort()
	n.health, err2 = freePort()
	if err := errors.Join(err1, err2, os.MkdirAll(n.dir, 0o755), makeCgroups(n.cgroup)); err != nil {
		return nil, err
	}
	cp := filepath.Join(e.dir, "cp")
	config := fmt.Sprintf(kubeletConfiguration, n.cgroup, cfg.Runtime, cp, n.dir, n.port, n.health) + cfg.Config
	if !strings.Contains(cfg.Config, "evictionHard:") {
		config += roomConfig
	}
	if err := os.WriteFile(filepath.Join(n.dir, "config.yaml"), []byte(config), 0o644); err != nil {
		return nil, err
	}
	args := append([]string{"kubelet", "--config", filepath.Join(n.dir, "config.yaml"),
		"--bootstrap-kubeconfig", filepath.Join(cp, "bootstrap.kubeconfig"), "--kubeconfig", filepath.Join(n.dir, "kubeconfig"),
		"--root-dir", filepath.Join(n.dir, "root"), "--cert-dir", filepath.Join(n.dir, "pki"),
		"--hostname-override", cfg.Name, "-v=2"}, cfg.Flags...)
	var err error
	n.process, err = start(filepath.Join(e.dir, "node-"+cfg.Name+".log"), e.wherry, args...)
	if err != nil {
		return nil, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.nodes = append(e.nodes, n)
	return n, nil
}

// waitReady waits until the API server shows that the node is Ready.
func (n *node) waitReady(timeout time.Duration) error {
	err := wait(timeout, func() error {
		if err := n.process.alive(); err != nil {
			return fatal{err}
		}
		ready, err := n.ready()
		if err == nil && ready.Status != v1.ConditionTrue {
			err = fmt.Errorf("Ready is %s: %s", ready.Status, ready.Message)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("node %s: %w", n.Name, err)
	}
	return nil
}

// ready returns the node's Ready condition.
func (n *node) ready() (v1.NodeCondition, error) {
	obj, err := n.env.client.CoreV1().Nodes().Get(context.Background(), n.Name, metav1.GetOptions{})
	if err != nil {
		return v1.NodeCondition{}, err
	}
	for _, c := range obj.Status.Conditions {
		if c.Type == v1.NodeReady {
			return c, nil
		}
	}
	return v1.NodeCondition{}, errors.New("no Ready condition yet")
}

// crictl runs crictl with the node's runtime and returns its output.
func (n *node) crictl(args ...string) (string, error) { return n.env.crictl(n.Runtime, args...) }

// crictl runs crictl with the containerd in the directory runtime and returns its output.
func (e *env) crictl(runtime string, args ...string) (string, error) {
	endpoint := "unix://" + runtime + "/containerd.sock"
	out, errOut, err := output(command(e.tool("crictl"), append([]string{"--timeout", "30s", "--runtime-endpoint", endpoint, "--image-endpoint", endpoint}, args...)...))
	if err != nil {
		err = fmt.Errorf("crictl %v: %w: %s", args, err, errOut)
	}
	return out, err
}

// checkNothingLeft returns an error if pods that no longer exist have left something behind.
func (n *node) checkNothingLeft() error {
	var errs []error
	leftIn := func(where string, found []string) {
		if len(found) > 0 {
			errs = append(errs, fmt.Errorf("node %s: left in %s: %s", n.Name, where, strings.Join(found, ", ")))
		}
	}
	leftIn("pod directories", list(filepath.Join(n.dir, "root", "pods")))
	leftIn("log directories", list(filepath.Join(n.dir, "logs")))
	mounts, err := mountsBelow(filepath.Join(n.dir, "root", "pods"))
	errs = append(errs, err)
	leftIn("mounts", mounts)
	for _, c := range cgroupDirs(n.cgroup) {
		_ = filepath.WalkDir(c, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() && strings.HasPrefix(d.Name(), "pod") {
				leftIn("cgroups", []string{path})
				return fs.SkipDir
			}
			return nil
		})
	}
	for what, args := range map[string][]string{"containers": {"ps", "-a", "-q"}, "sandboxes": {"pods", "-q"}} {
		out, err := n.crictl(args...)
		errs = append(errs, err)
		leftIn(what, strings.Fields(out))
	}
	return errors.Join(errs...)
}

func list(dir string) (names []string) {
	entries, _ := os.ReadDir(dir)
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}

// mountsBelow returns the mount points below dir, innermost first.
func mountsBelow(dir string) (points []string, err error) {
	infos, err := mountinfo.GetMounts(mountinfo.PrefixFilter(dir))
	for _, m := range infos {
		points = append(points, m.Mountpoint)
	}
	slices.Reverse(points)
	return points, err
}

const cgroupFS = "/sys/fs/cgroup"

// unified reports whether the machine has cgroup v2.
func unified() bool {
	_, err := os.Stat(filepath.Join(cgroupFS, "cgroup.controllers"))
	return err == nil
}

// cgroupDirs returns the path of a cgroup in every hierarchy, whether it exists or not.
func cgroupDirs(name string) []string {
	if unified() {
		return []string{filepath.Join(cgroupFS, name)}
	}
	var dirs []string
	for _, controller := range list(cgroupFS) {
		if fi, err := os.Lstat(filepath.Join(cgroupFS, controller)); err == nil && fi.IsDir() {
			dirs = append(dirs, filepath.Join(cgroupFS, controller, name))
		}
	}
	return dirs
}

func makeCgroups(name string) error {
	var errs []error
	for _, dir := range cgroupDirs(name) {
		errs = append(errs, os.MkdirAll(dir, 0o755))
	}
	return errors.Join(errs...)
}

// removeTree removes the cgroup dir and all cgroups below it.
func removeTree(dir string) error {
	var dirs []string
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			dirs = append(dirs, path)
		}
		return nil
	})
	slices.Reverse(dirs)
	for _, d := range dirs {
		if err := os.Remove(d); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}
