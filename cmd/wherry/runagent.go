package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/utils/ptr"

	"github.com/wherry-node/wherry/internal/config"
	"github.com/wherry-node/wherry/internal/cri"
	"github.com/wherry-node/wherry/internal/hostfs"
	"github.com/wherry-node/wherry/internal/launch"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ownAgent is the agent that wherry run starts where none listens.
type ownAgent struct {
	socket, root, runtime, cgroupRoot, nodeName string
	verbosity                                   int
}

// usualRuntimes are where container runtimes listen.
func usualRuntimes() []string {
	return []string{"/run/containerd/containerd.sock", "/run/crio/crio.sock", "/run/k3s/containerd/containerd.sock", "/var/snap/microk8s/common/run/containerd.sock"}
}

// findRuntime chooses a runtime that answers, and says what is in the way where none does.
func findRuntime(ctx context.Context, asked string) (string, error) {
	if strings.HasPrefix(asked, "simulated://") {
		return asked, nil
	}
	endpoints := []string{asked}
	if asked == "" {
		endpoints = nil
		for _, path := range usualRuntimes() {
			if _, err := os.Stat(path); err == nil {
				endpoints = append(endpoints, "unix://"+path)
			}
		}
	}
	var errs []error
	for _, e := range endpoints {
		err := askRuntime(ctx, e)
		if err == nil {
			return e, nil
		}
		errs = append(errs, err)
	}
	if len(errs) == 0 {
		return "", fmt.Errorf("no container runtime found: none of %s is there: install containerd or CRI-O, name one with --container-runtime-endpoint, or try simulated://",
			strings.Join(usualRuntimes(), ", "))
	}
	return "", errors.Join(errs...)
}

func askRuntime(ctx context.Context, endpoint string) error {
	conn, err := cri.Dial(endpoint)
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	r, _ := cri.Services(conn, conn)
	_, err = r.Version(ctx, &runtimeapi.VersionRequest{})
	switch {
	case err == nil:
		return nil
	case status.Code(err) == codes.Unimplemented:
		return fmt.Errorf("container runtime at %s does not serve pods (CRI): take \"cri\" out of disabled_plugins in /etc/containerd/config.toml and restart it", endpoint)
	case strings.Contains(err.Error(), "permission denied"):
		return fmt.Errorf("container runtime at %s may not be used by this user: run this as root (sudo)", endpoint)
	}
	return fmt.Errorf("container runtime at %s does not answer: is it running? %s", endpoint, status.Convert(err).Message())
}

// config is that of a node for one person: it takes no ports, evicts nothing, and keeps all that it has in one directory
// and one control group, under a name of its own at the runtime, so that it does not meet a kubelet on the same machine.
func (o *ownAgent) config() (config.Config, error) {
	args := []string{
		"--container-runtime-endpoint=" + o.runtime, "--root-dir=" + o.root, "--cert-dir=" + filepath.Join(o.root, "pki"),
		"--push-socket=" + o.socket, "--enable-server=false", "--healthz-port=0", "--cgroup-root=" + o.cgroupRoot,
		"--cgroups-per-qos=false", "--enforce-node-allocatable=", "--make-iptables-util-chains=false", "--fail-swap-on=false", "--v=" + strconv.Itoa(o.verbosity),
		"--eviction-hard=memory.available<0%,nodefs.available<0%,imagefs.available<0%,nodefs.inodesFree<0%",
	}
	if o.nodeName != "" {
		args = append(args, "--hostname-override="+o.nodeName)
	}
	cfg, _, err := config.Load(args)
	if err != nil {
		return cfg, err
	}
	cfg.Owner = "wherry run in " + o.root
	k := &cfg.Kubelet
	k.PodLogsDir = filepath.Join(o.root, "logs")
	k.FailCgroupV1 = ptr.To(false)
	k.ResolverConfig = ptr.To(resolvConf())
	k.OOMScoreAdj = nil // the agent of a person is no more important than what else they run
	return cfg, nil
}

// resolvConf is the file that names servers which pods can reach too: systemd-resolved's own listens on the host's
// loopback only.
func resolvConf() string {
	const usual, resolved = "/etc/resolv.conf", "/run/systemd/resolve/resolv.conf"
	text, err := os.ReadFile(usual)
	if err == nil && strings.Contains(string(text), "nameserver 127.0.0.53") {
		if _, err := os.Stat(resolved); err == nil {
			return resolved
		}
	}
	return usual
}

// running is an agent in this process.
type runningAgent struct {
	cancel context.CancelFunc
	ended  chan struct{} // closed when it has
	err    error         // valid then
}

// start runs the agent until stop, or until it fails; ctx does not end it. It returns when its socket answers.
func (o *ownAgent) start(ctx context.Context) (*runningAgent, error) {
	root, err := filepath.Abs(o.root)
	if err == nil {
		err = os.MkdirAll(root, 0o750)
	}
	if err != nil {
		return nil, fmt.Errorf("make the agent's directory: %w", err)
	}
	o.root = root
	cfg, err := o.config()
	if err != nil {
		return nil, err
	}
	log, logFile, err := o.log(&cfg)
	if err != nil {
		return nil, err
	}
	captureLibraryLogs(log)
	inner, cancel := context.WithCancel(context.WithoutCancel(ctx))
	r := &runningAgent{cancel: cancel, ended: make(chan struct{})}
	go func() {
		defer close(r.ended)
		defer func() { _ = logFile.Close() }()
		r.err = launch.Kubelet(inner, cfg, log, nil)
	}()
	for {
		conn := newClient(o.socket)
		if _, err := conn.pods(ctx); err == nil {
			return r, nil
		}
		select {
		case <-r.ended:
			cancel()
			if r.err == nil {
				r.err = errors.New("it ended by itself")
			}
			return nil, fmt.Errorf("start an agent: %w", r.err)
		default:
		}
		if err := sleep(ctx, pollEvery/4); err != nil {
			r.stop()
			return nil, err
		}
	}
}

// log is a file in the agent's directory, or our own output where somebody wants to see more.
func (o *ownAgent) log(cfg *config.Config) (*slog.Logger, *os.File, error) {
	if o.verbosity > 0 {
		return cfg.NewLogger(os.Stderr), nil, nil
	}
	f, err := os.OpenFile(filepath.Join(o.root, "agent.log"), os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o640)
	if err != nil {
		return nil, nil, fmt.Errorf("open the agent's log: %w", err)
	}
	return cfg.NewLogger(f), f, nil
}

func (r *runningAgent) stop() {
	r.cancel()
	<-r.ended
}

// forgetNode removes what an agent leaves that has no pods any more: its directory, where it was the usual one, with the mount
// that it is, and its control group.
func (o *ownAgent) forgetNode() {
	pushed, _ := os.ReadDir(filepath.Join(o.root, "pushed"))
	pods, _ := os.ReadDir(filepath.Join(o.root, "pods"))
	if len(pushed)+len(pods) > 0 || strings.HasPrefix(o.runtime, "simulated://") {
		return
	}
	_ = hostfs.Host{}.TakeBackShared(o.root)
	for _, name := range []string{"pushed", "pods", "logs", "pki", "agent.log"} {
		_ = os.Remove(filepath.Join(o.root, name)) // only what is empty
	}
	_ = os.Remove(o.root)
	_ = os.Remove(filepath.Dir(o.socket))
	name := strings.Trim(o.cgroupRoot, "/")
	groups, _ := filepath.Glob("/sys/fs/cgroup/*/" + name)
	for _, g := range append(groups, "/sys/fs/cgroup/"+name, "/sys/fs/cgroup/"+name+".slice") {
		_ = os.Remove(g) // a group that has processes or groups stays
	}
}
