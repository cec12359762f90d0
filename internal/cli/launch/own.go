package launch

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

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/wherry-node/wherry/internal/base/hostfs"
	"github.com/wherry-node/wherry/internal/edge/config"
	"github.com/wherry-node/wherry/internal/edge/cri"
)

// Own is the configuration of the agent that wherry run starts if no agent listens on a socket.
type Own struct {
	// Complete sets those of Socket, Root and Runtime that are "" to their defaults.
	Socket, Root, Runtime string
	// CgroupRoot is the cgroup of the agent's pods. NodeName is the node's name; "": the host's name.
	CgroupRoot, NodeName string
	// Verbosity is the verbosity of the agent's log on standard error; 0: the agent logs to a file in Root.
	Verbosity int
}

// Complete sets the missing fields, and finds a container runtime that answers.
func (o *Own) Complete(ctx context.Context) error {
	if o.Socket == "" {
		if o.Socket = os.Getenv("WHERRY_SOCKET"); o.Socket == "" {
			o.Socket = OwnSocket()
		}
	}
	if o.Root == "" {
		o.Root = OwnRoot(os.Geteuid())
	}
	var err error
	o.Runtime, err = findRuntime(ctx, o.Runtime)
	return err
}

// usualRuntimes returns the default sockets of container runtimes.
func usualRuntimes() []string {
	return []string{"/run/containerd/containerd.sock", "/run/crio/crio.sock", "/run/k3s/containerd/containerd.sock", "/var/snap/microk8s/common/run/containerd.sock"}
}

// findRuntime returns the endpoint of a runtime that answers: asked, or one of the usual ones if asked is "". If no runtime
// answers, the error says why.
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
		return "", fmt.Errorf("no container runtime found: none of the sockets %s exists: install containerd or CRI-O, name its socket with --container-runtime-endpoint, or try simulated://",
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
		return fmt.Errorf("container runtime at %s does not serve pods (CRI): remove \"cri\" from disabled_plugins in /etc/containerd/config.toml and restart it", endpoint)
	case strings.Contains(err.Error(), "permission denied"):
		return fmt.Errorf("container runtime at %s may not be used by this user: run this as root (sudo)", endpoint)
	}
	return fmt.Errorf("container runtime at %s does not answer: is it running? %s", endpoint, status.Convert(err).Message())
}

// config returns the configuration of the node of wherry run. The node opens no ports, evicts nothing, and keeps its whole
// state in one directory and one cgroup. Config.Owner separates its pods at the runtime from those of a kubelet on the same
// machine.
func (o *Own) config() (config.Config, error) {
	args := []string{
		"--container-runtime-endpoint=" + o.Runtime, "--root-dir=" + o.Root, "--cert-dir=" + filepath.Join(o.Root, "pki"),
		"--push-socket=" + o.Socket, "--enable-server=false", "--healthz-port=0", "--cgroup-root=" + o.CgroupRoot,
		"--cgroups-per-qos=false", "--enforce-node-allocatable=", "--make-iptables-util-chains=false", "--fail-swap-on=false", "--v=" + strconv.Itoa(o.Verbosity),
		"--eviction-hard=memory.available<0%,nodefs.available<0%,imagefs.available<0%,nodefs.inodesFree<0%",
	}
	if o.NodeName != "" {
		args = append(args, "--hostname-override="+o.NodeName)
	}
	cfg, _, err := config.Load(args)
	if err != nil {
		return cfg, err
	}
	cfg.Owner = "wherry run in " + o.Root
	k := &cfg.Kubelet
	k.PodLogsDir = filepath.Join(o.Root, "logs")
	k.FailCgroupV1 = ptr.To(false)
	k.ResolverConfig = ptr.To(resolvConf())
	k.OOMScoreAdj = nil // a user's agent is not more important than the user's other programs
	return cfg, nil
}

// resolvConf returns a resolver file whose name servers are reachable from pods. Pods cannot reach the server of
// systemd-resolved in /etc/resolv.conf, because it listens only on the host's loopback address.
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

// Running is a running agent in this process.
type Running struct {
	cancel context.CancelFunc
	ended  chan struct{} // closed when the agent has ended
	err    error         // why the agent has ended; valid after ended is closed
}

// Start runs the agent until Stop is called or the agent fails; the end of ctx does not end the agent. Start calls answers
// repeatedly, and returns when answers reports that the agent answers on its socket.
func (o *Own) Start(ctx context.Context, answers func(context.Context) bool) (*Running, error) {
	root, err := filepath.Abs(o.Root)
	if err == nil {
		err = os.MkdirAll(root, 0o750)
	}
	if err != nil {
		return nil, fmt.Errorf("make the agent's directory: %w", err)
	}
	o.Root = root
	cfg, err := o.config()
	if err != nil {
		return nil, err
	}
	log, logFile, err := o.log(&cfg)
	if err != nil {
		return nil, err
	}
	inner, cancel := context.WithCancel(context.WithoutCancel(ctx))
	r := &Running{cancel: cancel, ended: make(chan struct{})}
	go func() {
		defer close(r.ended)
		defer func() { _ = logFile.Close() }()
		r.err = Kubelet(inner, cfg, log, nil)
	}()
	for {
		if answers(ctx) {
			return r, nil
		}
		select {
		case <-r.ended:
			cancel()
			if r.err == nil {
				r.err = errors.New("the agent ended without an error")
			}
			return nil, fmt.Errorf("start an agent: %w", r.err)
		default:
		}
		select {
		case <-ctx.Done():
			r.Stop()
			return nil, ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// maxLog is the size of a log in bytes from which on the next agent begins a new one. The old one then has olderLog at the end of its name.
const (
	maxLog   = 8 << 20
	olderLog = ".1"
)

// log returns the agent's logger. It writes to standard error if Verbosity is set, or else to the end of a file in the agent's directory: another agent
// may write to the same file, and then this one ends soon, because it cannot have the directory.
func (o *Own) log(cfg *config.Config) (*slog.Logger, *os.File, error) {
	if o.Verbosity > 0 {
		return cfg.NewLogger(os.Stderr), nil, nil
	}
	path := filepath.Join(o.Root, "agent.log")
	if st, err := os.Stat(path); err == nil && st.Size() > maxLog {
		_ = os.Rename(path, path+olderLog) // if it fails, the log only grows on
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o640)
	if err != nil {
		return nil, nil, fmt.Errorf("open the agent's log: %w", err)
	}
	return cfg.NewLogger(f), f, nil
}

// Ended returns a channel that is closed when the agent has ended. Err then returns the reason.
func (r *Running) Ended() <-chan struct{} { return r.ended }

// Err returns why the agent ended. It is valid after Ended is closed.
func (r *Running) Err() error { return r.err }

// Stop ends the agent and waits for its end. Its pods continue to run.
func (r *Running) Stop() {
	r.cancel()
	<-r.ended
}

// Forget removes what the agent leaves on the machine, if it has no pods any more: its log, its directory with the mount on
// it, the directory of its socket, and its cgroup. A directory with other files stays.
func (o *Own) Forget() {
	pushed, _ := os.ReadDir(filepath.Join(o.Root, "pushed"))
	pods, _ := os.ReadDir(filepath.Join(o.Root, "pods"))
	if len(pushed)+len(pods) > 0 || strings.HasPrefix(o.Runtime, "simulated://") {
		return
	}
	_ = hostfs.Host{}.TakeBackShared(o.Root)
	for _, name := range []string{"pushed", "pods", "logs", "pki", "agent.log", "agent.log" + olderLog} {
		_ = os.Remove(filepath.Join(o.Root, name)) // does not remove a directory with files
	}
	_ = os.Remove(o.Root)
	_ = os.Remove(filepath.Dir(o.Socket))
	name := strings.Trim(o.CgroupRoot, "/")
	groups, _ := filepath.Glob("/sys/fs/cgroup/*/" + name)
	for _, g := range append(groups, "/sys/fs/cgroup/"+name, "/sys/fs/cgroup/"+name+".slice") {
		_ = os.Remove(g) // a cgroup with processes or children stays
	}
}

// OwnRoot returns the root directory of the agent of wherry run, if the user with this ID starts it.
func OwnRoot(user int) string {
	if user == 0 {
		return "/var/lib/wherry"
	}
	return userDir()
}

// OwnSocket returns the socket of the agent of wherry run.
func OwnSocket() string {
	if os.Geteuid() == 0 {
		return config.SystemSocket
	}
	if dir := os.Getenv("XDG_RUNTIME_DIR"); dir != "" {
		return filepath.Join(dir, "wherry.sock")
	}
	return filepath.Join(userDir(), "wherry.sock")
}

// userDir returns the directory in which the agent of a user other than root keeps its state.
func userDir() string {
	if dir := os.Getenv("XDG_DATA_HOME"); dir != "" {
		return filepath.Join(dir, "wherry")
	}
	home, err := os.UserHomeDir()
	if err != nil {
		home = "."
	}
	return filepath.Join(home, ".local", "share", "wherry")
}
