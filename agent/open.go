package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/client-go/rest"

	"github.com/wherry-node/wherry/internal/base/hostfs"
	"github.com/wherry-node/wherry/internal/edge/config"
	"github.com/wherry-node/wherry/internal/edge/cri"
	"github.com/wherry-node/wherry/internal/edge/firewall"
	"github.com/wherry-node/wherry/internal/edge/identity"
	"github.com/wherry-node/wherry/internal/edge/socket"
)

// opened holds what Run has opened because Deps did not contain it.
type opened struct {
	client *identity.Joining // nil: Deps has a client, or there is no API server
	server *identity.Serving // nil: the agent has no certificate for the HTTPS API
	parts  []part
	fails  []func() error // each function returns the error of a part that fails and is tried again, or nil if the part works
	closes []func()
	// downloads lists what the runtime downloads; nil: it cannot be asked.
	downloads func(context.Context) ([]cri.Download, error)
}

// open opens everything that the agent needs before build. The order of the steps matters: the certificate of the HTTPS API
// is requested with the client of the API server. All ports are opened before any part runs, so that a port in use is an
// error of the start.
func (a *Agent) open(ctx context.Context) error {
	for _, step := range []func(context.Context) error{
		a.lockRoot, a.limitProcess, a.setKernel, a.openRuntime, a.openClient, a.openServing, a.openPorts, a.openControl, a.openPodsAPI, a.protectLoopback,
	} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// close closes what open has opened.
func (a *Agent) close() {
	for _, c := range a.opened.closes {
		c()
	}
}

// lockRoot locks the root directory until Run ends, so that two agents never manage the pods of one directory. If the directory cannot be
// created or locked, for example on a network file system without locks, the agent says so and starts: later steps report what is wrong
// with the directory itself.
func (a *Agent) lockRoot(context.Context) error {
	if !a.deps.Machine.real {
		return nil
	}
	dir := a.cfg.RootDir
	err := makeRoot(dir)
	var root *os.File
	if err == nil {
		root, err = hostfs.LockDir(dir)
	}
	switch {
	case err == nil:
		a.opened.closes = append(a.opened.closes, func() { _ = root.Close() })
	case errors.Is(err, hostfs.ErrLocked):
		return fmt.Errorf("another agent uses the root directory %s: %w; end that agent, or start this one with another directory (--root-dir)", dir, err)
	default:
		a.log.Warn("the root directory is not locked, so a second agent with the same directory will not be noticed", "dir", dir, "err", err)
	}
	return nil
}

// openRuntime connects to the container runtime.
func (a *Agent) openRuntime(context.Context) error {
	if a.deps.Runtime != nil {
		return nil
	}
	k := &a.cfg.Kubelet
	runtimeConn, err := cri.Dial(k.ContainerRuntimeEndpoint)
	if err != nil {
		return err
	}
	a.opened.closes = append(a.opened.closes, func() { _ = runtimeConn.Close() })
	imageConn := runtimeConn
	if e := k.ImageServiceEndpoint; e != "" && e != k.ContainerRuntimeEndpoint {
		if imageConn, err = cri.Dial(e); err != nil {
			return err
		}
		a.opened.closes = append(a.opened.closes, func() { _ = imageConn.Close() })
	}
	a.deps.Runtime, a.deps.Images = cri.Services(runtimeConn, imageConn)
	a.opened.downloads = cri.Downloads(imageConn)
	if a.cfg.Owner != "" {
		a.deps.Runtime = cri.Owned(a.deps.Runtime, a.cfg.Owner)
	}
	return nil
}

// openClient makes the client of the API server, if there is one. If the node has no identity yet, the agent starts nevertheless, as it does
// when the API server is away: requests wait until a part of the agent has obtained the identity.
func (a *Agent) openClient(context.Context) error {
	if a.deps.Client != nil {
		return nil
	}
	if a.cfg.standalone(&a.deps) {
		a.log.Info("no kubeconfig: standalone, without an API server")
		return nil
	}
	c, err := identity.OpenJoining(identity.ClientConfig{
		Kubeconfig: a.cfg.Kubeconfig, BootstrapKubeconfig: a.cfg.BootstrapKubeconfig, CertDir: a.cfg.CertDir, NodeName: a.cfg.NodeName,
		Rotate: a.cfg.Kubelet.RotateCertificates, Log: a.log,
		Failed: func() { a.calls.ClientRenewalFailed() }, Refused: func(err error) { a.offline.refused(err) }, // both are built before anything runs
	})
	if err != nil {
		return err
	}
	a.opened.client = c
	a.opened.parts = append(a.opened.parts, part{name: "client certificate", run: c.Run})
	a.opened.fails = append(a.opened.fails, c.Failing)
	k := &a.cfg.Kubelet
	main := a.restConfig()
	main.QPS, main.Burst = float32(*k.KubeAPIQPS), int(k.KubeAPIBurst)
	a.deps.Client = main
	beats := a.restConfig()
	beats.QPS = -1
	beats.Timeout = min(k.NodeStatusUpdateFrequency.Duration, max(time.Duration(k.NodeLeaseDurationSeconds)*time.Second/4, time.Second))
	a.deps.Heartbeats = beats
	a.deps.CloseConnections = c.CloseAll
	return nil
}

func (a *Agent) restConfig() *rest.Config {
	c := a.opened.client.Config()
	c.ContentType = a.cfg.Kubelet.ContentType
	if c.ContentType == "application/vnd.kubernetes.protobuf" {
		c.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	}
	c.UserAgent = "wherry/" + config.WherryVersion + " (kubelet " + config.KubernetesVersion + ")"
	return c
}

// port is a port to listen on.
type port struct {
	field   string
	address string
	port    int32
	to      *net.Listener
	wanted  bool
}

// ports returns the configured ports.
func (a *Agent) ports() []port {
	k := &a.cfg.Kubelet
	return []port{
		{"port", k.Address, k.Port, &a.deps.API, *k.EnableServer},
		{"healthzPort", k.HealthzBindAddress, *k.HealthzPort, &a.deps.Health, *k.HealthzPort > 0},
		{"readOnlyPort", k.Address, k.ReadOnlyPort, &a.deps.ReadOnly, k.ReadOnlyPort > 0}, // enableServer is about the port with authentication only
	}
}

// openPorts opens the ports before anything runs, so that a port in use is an error at once.
func (a *Agent) openPorts(context.Context) error {
	if !a.cfg.Listen {
		return nil
	}
	for _, p := range a.ports() {
		if !p.wanted {
			continue
		}
		l, err := net.Listen("tcp", net.JoinHostPort(p.address, strconv.Itoa(int(p.port))))
		if err != nil {
			return fmt.Errorf("listen on %s: %w (if another node agent runs on this machine, choose another port)", p.field, err)
		}
		*p.to = l
		a.opened.closes = append(a.opened.closes, func() { _ = l.Close() })
	}
	return nil
}

// openControl opens the control socket.
func (a *Agent) openControl(context.Context) error {
	path := a.cfg.ControlSocket
	if path == "" {
		return nil
	}
	l, err := socket.Listen(path, config.SocketDir)
	if err != nil && !a.cfg.ControlSocketOptional {
		return fmt.Errorf("--push-socket: %w", err)
	}
	if err != nil {
		a.log.Warn("no control socket: pods cannot be pushed, and wherry ps, logs and exec do not reach this node; choose another path with --push-socket", "err", err)
		return nil
	}
	a.deps.Control = l
	a.opened.closes = append(a.opened.closes, func() { _ = l.Close() })
	a.log.Info("control socket", "path", path)
	return nil
}

// protectLoopback blocks packets from other hosts to 127.0.0.0/8 (makeIPTablesUtilChains).
func (a *Agent) protectLoopback(context.Context) error {
	if a.cfg.ManageHost && *a.cfg.Kubelet.MakeIPTablesUtilChains {
		rules := firewall.New(firewall.Config{Run: firewall.Exec, Log: a.log})
		a.opened.parts = append(a.opened.parts, part{name: "rules for 127.0.0.0/8", run: rules.Run})
	}
	return nil
}

// limitProcess sets the OOM score and the limit of open files. If the kernel refuses to set one of them, the agent logs that
// and continues.
func (a *Agent) limitProcess(context.Context) error {
	if !a.cfg.ManageHost {
		return nil
	}
	k := &a.cfg.Kubelet
	if k.OOMScoreAdj != nil {
		score := strconv.Itoa(int(*k.OOMScoreAdj))
		if err := os.WriteFile("/proc/self/oom_score_adj", []byte(score), 0o644); err != nil {
			a.log.Warn("the agent's OOM score is not set (oomScoreAdj): it needs CAP_SYS_RESOURCE", "score", score, "err", err)
		}
	}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("read the limit of open files: %w", err)
	}
	a.raiseOpenFiles(limit, uint64(k.MaxOpenFiles))
	return nil
}

// raiseOpenFiles makes the limit of open files at least want (maxOpenFiles); now is the limit in effect. If want is above the hard limit,
// that is raised too, which needs CAP_SYS_RESOURCE and is possible up to the kernel's fs.nr_open. If it is refused, the agent takes what it
// may have, and logs that.
func (a *Agent) raiseOpenFiles(now unix.Rlimit, want uint64) {
	if want <= now.Cur {
		return
	}
	err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: want, Max: max(want, now.Max)})
	if err == nil {
		return
	}
	got := now.Cur
	if want > now.Max && unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: now.Max, Max: now.Max}) == nil {
		got = now.Max
	}
	a.log.Warn("the agent may open fewer files than maxOpenFiles says: raise its hard limit (LimitNOFILE of its systemd unit) or lower maxOpenFiles",
		"want", want, "limit", got, "err", err)
}

// setKernel applies the kernel settings that Kubernetes requires (protectKernelDefaults: false). If a setting is refused, for
// example in a container, it logs a warning.
func (a *Agent) setKernel(context.Context) error {
	if a.setsKernel() {
		setKernelAt("/proc/sys", a.log)
	}
	return nil
}

// setsKernel reports whether the agent may change kernel settings. A node that shares its runtime with others (wherry run) may
// not.
func (a *Agent) setsKernel() bool {
	return a.cfg.ManageHost && a.cfg.Owner == "" && !a.cfg.Kubelet.ProtectKernelDefaults
}

// setKernelAt writes the kernel settings below the directory root that have a wrong value.
func setKernelAt(root string, log *slog.Logger) {
	for _, s := range config.KernelSettings() {
		file := s.File(root)
		was, err := os.ReadFile(file)
		value := strings.TrimSpace(string(was))
		if err == nil && value == s.Value {
			continue
		}
		if err == nil {
			err = os.WriteFile(file, []byte(s.Value), 0o644)
		}
		if err != nil {
			log.Warn("kernel setting not changed (protectKernelDefaults: false)", "setting", s.Name, "want", s.Value, "err", err)
			continue
		}
		log.Info("kernel setting changed (protectKernelDefaults: false)", "setting", s.Name, "was", value, "is", s.Value)
	}
}
