package dev

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/wherry-node/wherry/tools/internal/cgroup"
	"github.com/wherry-node/wherry/tools/internal/images"
	"github.com/wherry-node/wherry/tools/internal/proc"
	"github.com/wherry-node/wherry/tools/internal/runtime"
)

// These are the values of Options.Runtime. It may also be the path of a CRI socket.
const (
	runtimeContainerd2 = string(runtime.Containerd2)
	runtimeDebian      = string(runtime.Debian)
	runtimeSimulated   = "simulated"
)

// The pod CIDRs of the nodes are parts of the cluster's range clusterCIDR. The second node is that of the CSI example.
const (
	clusterCIDR  = "10.244.0.0/16"
	firstSubnet  = "10.244.0.0/24"
	secondSubnet = "10.244.1.0/24"
)

// Options configure the environment.
type Options struct {
	Checkout string
	// Runtime is containerd2, debian, simulated, or the path of a CRI socket; "" is containerd2.
	Runtime string
	// NodeName is the name of the node; "": the host name.
	NodeName string
	// SkipExample leaves the example out.
	SkipExample bool
	// SkipDNS leaves the cluster's DNS server out, which takes long to build the first time.
	SkipDNS bool
	// Bare leaves out the builds, the summary and the cluster's DNS server, for a caller that has built the programs itself.
	Bare bool
	// Dir is the directory of all files; "": .wherry in the checkout.
	Dir string
	// Agent is the program of the node agent and its first arguments; nil: wherry kubelet.
	Agent []string
	// NodeFlags are additional flags of the node agent.
	NodeFlags []string
	// PodLogs is the node's directory of container logs; "": one below Dir.
	PodLogs string
	// NodeConfig has additional fields of the node's KubeletConfiguration: name to value in JSON.
	NodeConfig map[string]string
	// Registries is the directory for runtime.Config.Registries. Archives are files with images that are imported into the runtime, in
	// addition to the development images.
	Registries string
	Archives   []string
	Progress   io.Writer
}

// Env is the development environment of one checkout.
type Env struct {
	Options
	began time.Time
	sayMu sync.Mutex // guards Progress
	// fallback is true if the user did not choose a runtime: then the node uses the simulated runtime if no other one can run.
	fallback bool
	// podSubnet is the pod CIDR of the environment's containerd, a part of clusterCIDR.
	podSubnet string
}

// New checks the options and sets their defaults. It starts nothing.
func New(o Options) (*Env, error) {
	fallback := o.Runtime == ""
	if fallback {
		o.Runtime = runtimeContainerd2
	}
	if o.Dir == "" {
		o.Dir = filepath.Join(o.Checkout, ".wherry")
	}
	if len(o.Agent) == 0 {
		o.Agent = []string{filepath.Join(o.Checkout, "bin", "wherry"), "kubelet"}
	}
	if o.NodeName == "" {
		name, err := os.Hostname()
		if err != nil {
			return nil, fmt.Errorf("find node name: %w", err)
		}
		o.NodeName = strings.ToLower(strings.TrimSpace(name))
	}
	switch {
	case o.Runtime == runtimeContainerd2, o.Runtime == runtimeDebian, o.Runtime == runtimeSimulated, filepath.IsAbs(o.Runtime):
	default:
		return nil, fmt.Errorf("RUNTIME=%s is neither %s, %s, %s nor the path of a socket", o.Runtime, runtimeContainerd2, runtimeDebian, runtimeSimulated)
	}
	return &Env{Options: o, began: time.Now(), fallback: fallback, podSubnet: firstSubnet}, nil
}

func (e *Env) path(elem ...string) string {
	return filepath.Join(append([]string{e.Dir}, elem...)...)
}

func (e *Env) bin(name string) string { return filepath.Join(e.Checkout, "bin", name) }

func (e *Env) pidFile(name string) string { return e.path("run", name+".pid") }

// Kubeconfig returns the path of the administrator's kubeconfig.
func (e *Env) Kubeconfig() string { return e.path("admin.kubeconfig") }

// cgroupParent returns the cgroup above all cgroups of this checkout's node.
func (e *Env) cgroupParent() string { return cgroup.Name(e.Dir) }

// containerd returns the configuration of the environment's own containerd, of the given flavor.
func (e *Env) containerd(flavor string) runtime.Config {
	return runtime.Config{
		Flavor: runtime.Flavor(flavor), Dir: e.path("containerd"), Bin: filepath.Join(e.Checkout, "bin"),
		DebianBin: e.path("debian", "bin"), PodSubnet: e.podSubnet, SandboxImage: images.Pause, Registries: e.Registries,
	}
}

// state is what Up stores for Down.
type state struct {
	Runtime   string            `json:"runtime"`
	NodeName  string            `json:"nodeName"`
	NodeIP    string            `json:"nodeIP"`
	Proxy     bool              `json:"proxy"`
	Dummy     string            `json:"dummy,omitempty"`    // interface that Up created, because the machine had no address that pods can reach; "": none
	Sysctls   map[string]string `json:"sysctls"`            // kernel settings as they were before Up
	Tables    []string          `json:"tables"`             // netfilter tables that existed before Up
	Imported  []string          `json:"imported,omitempty"` // images that Up imported into a runtime that the environment did not start
	NodePorts [2]int            `json:"nodePorts"`          // ports of the node's API and of its health endpoint
}

func (e *Env) readState() (*state, bool, error) {
	data, err := os.ReadFile(e.path("run", "state.json"))
	if errors.Is(err, os.ErrNotExist) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	s := &state{}
	if err := json.Unmarshal(data, s); err != nil {
		return nil, false, fmt.Errorf("read %s: %w", e.path("run", "state.json"), err)
	}
	return s, true, nil
}

func (e *Env) writeState(s *state) error {
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	path := e.path("run", "state.json")
	if err := os.WriteFile(path+".new", data, 0o644); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// lock makes sure that no other Up or Down of this environment runs at the same time. If one does, lock returns an error.
func (e *Env) lock() (unlock func(), err error) {
	if err := os.MkdirAll(e.path("run"), 0o755); err != nil {
		return nil, err
	}
	return proc.Lock(e.path("lock"), "another make up or make down is at work in this checkout")
}

// say prints a line of progress. It may be called concurrently.
func (e *Env) say(format string, args ...any) {
	e.sayMu.Lock()
	defer e.sayMu.Unlock()
	fmt.Fprintf(e.Progress, "%6.1f s  %s\n", e.elapsed().Seconds(), fmt.Sprintf(format, args...))
}

func (e *Env) elapsed() time.Duration { return time.Since(e.began) }

// kubectl runs kubectl with the administrator's kubeconfig and returns its output.
func (e *Env) kubectl(ctx context.Context, args ...string) (string, error) {
	program := e.bin("kubectl")
	if _, err := os.Stat(program); err != nil {
		if program, err = exec.LookPath("kubectl"); err != nil {
			return "", fmt.Errorf("find kubectl: %w (bin/wherry-dev build kubectl)", err)
		}
	}
	cmd := exec.CommandContext(ctx, program, append([]string{"--kubeconfig", e.Kubeconfig()}, args...)...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+e.Kubeconfig(), "KUBECACHEDIR="+e.path("cache", "kubectl"))
	return proc.Output(cmd, proc.Line("kubectl", args...))
}

// freePort returns the port want if it is free, otherwise another free port.
func freePort(want int) (int, error) {
	for _, port := range []int{want, 0} {
		listener, err := net.Listen("tcp", fmt.Sprintf(":%d", port))
		if err != nil {
			continue
		}
		port = listener.Addr().(*net.TCPAddr).Port
		return port, listener.Close()
	}
	return 0, fmt.Errorf("no port free in place of %d", want)
}
