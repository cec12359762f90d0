package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	cliflag "k8s.io/component-base/cli/flag"

	"github.com/wherry-node/wherry/agent"
	"github.com/wherry-node/wherry/internal/config"
	"github.com/wherry-node/wherry/internal/cri"
	"github.com/wherry-node/wherry/internal/firewall"
	"github.com/wherry-node/wherry/internal/identity"
	"github.com/wherry-node/wherry/internal/kubeclient"
	"github.com/wherry-node/wherry/internal/server"
)

// runKubelet builds a node from its configuration and runs it until ctx ends. level is that of log, where it may be set
// (enableDebugFlagsHandler); nil: it may not.
func runKubelet(ctx context.Context, cfg config.Config, log *slog.Logger, level *slog.LevelVar) error {
	hostname, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("read host name: %w", err)
	}
	name, err := cfg.NodeName(hostname)
	if err != nil {
		return err
	}
	n := &node{cfg: cfg, name: name, log: log}
	defer n.close()
	if level != nil {
		n.deps.SetVerbosity = func(value string) error { return config.SetVerbosity(level, value) }
	}
	for _, step := range []func(context.Context) error{n.limitProcess, n.setKernel, n.openRuntime, n.openAPI, n.openServing, n.openPorts, n.openControl, n.protectLoopback} {
		if err := step(ctx); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return err
		}
	}
	n.deps.Failing = n.failing
	a, err := agent.New(n.agentConfig(hostname), n.deps)
	if err != nil {
		return err
	}
	n.agent.Store(a)
	n.parts = append(n.parts, a.Run)
	return n.run(ctx)
}

// node is one node in the making: what has to be opened before the agent can be built, and closed after it.
type node struct {
	cfg    config.Config
	name   string
	log    *slog.Logger
	deps   agent.Deps
	client *identity.Client
	agent  agentHolder
	parts  []func(context.Context) error
	fails  []func() error // of the parts: why one fails that tries again
	closes []func()
}

// agentHolder lets the serving certificate ask for addresses before there is an agent.
type agentHolder struct {
	mu sync.Mutex
	a  *agent.Agent
}

func (h *agentHolder) Store(a *agent.Agent) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.a = a
}

func (h *agentHolder) addresses() []v1.NodeAddress {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.a == nil {
		return nil
	}
	return h.a.Addresses()
}

func (n *node) close() {
	for _, c := range n.closes {
		c()
	}
}

// failing are the parts that fail and try again, in words.
func (n *node) failing() (out []string) {
	for _, f := range n.fails {
		if err := f(); err != nil {
			out = append(out, err.Error())
		}
	}
	return out
}

// settleAfter is when a node that was started is at rest. Its start leaves garbage (certificates, lists, the node's first status),
// and a heap below 4 MiB, which is what a quiet node has, is collected each two minutes only and given back later still.
const settleAfter = 20 * time.Second

// run runs all parts until ctx ends or one fails, and waits for all.
func (n *node) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer time.AfterFunc(settleAfter, debug.FreeOSMemory).Stop()
	errs := make([]error, len(n.parts))
	var wg sync.WaitGroup
	for i, run := range n.parts {
		wg.Go(func() {
			defer cancel()
			if err := run(ctx); err != nil && !errors.Is(err, context.Canceled) {
				errs[i] = err
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

func (n *node) openRuntime(context.Context) error {
	n.deps.Log, n.deps.ProcessMetrics = n.log, true
	if s := n.cfg.Simulated; s != nil {
		return n.openSimulated(s)
	}
	n.deps.Machine = agent.RealMachine()
	runtimeConn, err := cri.Dial(n.cfg.RuntimeEndpoint())
	if err != nil {
		return err
	}
	n.closes = append(n.closes, func() { _ = runtimeConn.Close() })
	imageConn := runtimeConn
	if e := n.cfg.ImageEndpoint(); e != n.cfg.RuntimeEndpoint() {
		if imageConn, err = cri.Dial(e); err != nil {
			return err
		}
		n.closes = append(n.closes, func() { _ = imageConn.Close() })
	}
	n.deps.Runtime, n.deps.Images = cri.Services(runtimeConn, imageConn)
	if n.cfg.Owner != "" {
		n.deps.Runtime = cri.Owned(n.deps.Runtime, n.cfg.Owner)
	}
	return nil
}

// openAPI gets the node its identity, where there is an API server.
func (n *node) openAPI(ctx context.Context) error {
	if n.cfg.Standalone() {
		n.log.Info("no kubeconfig: standalone, without an API server")
		return nil
	}
	if n.cfg.BootstrapKubeconfig != "" {
		err := identity.Bootstrap(ctx, identity.BootstrapConfig{
			BootstrapKubeconfig: n.cfg.BootstrapKubeconfig, Kubeconfig: n.cfg.Kubeconfig, CertDir: n.cfg.CertDir, NodeName: n.name, Log: n.log,
		})
		if err != nil {
			return err
		}
	}
	var err error
	n.client, err = identity.OpenClient(identity.ClientConfig{
		Kubeconfig: n.cfg.Kubeconfig, BootstrapKubeconfig: n.cfg.BootstrapKubeconfig, CertDir: n.cfg.CertDir, NodeName: n.name,
		Rotate: n.cfg.Kubelet.RotateCertificates, Log: n.log,
	})
	if err != nil {
		return err
	}
	n.parts = append(n.parts, n.client.Run)
	n.fails = append(n.fails, n.client.Failing)
	k := &n.cfg.Kubelet
	main := n.restConfig()
	main.QPS, main.Burst = float32(*k.KubeAPIQPS), int(k.KubeAPIBurst)
	n.deps.Client = main
	beats := n.restConfig()
	beats.QPS = -1
	beats.Timeout = min(k.NodeStatusUpdateFrequency.Duration, time.Duration(k.NodeLeaseDurationSeconds)*time.Second/4)
	n.deps.Heartbeats = beats
	n.deps.CloseConnections = n.client.CloseAll
	return nil
}

// limitProcess asks for what a node agent needs of its own process. It may be refused: the agent runs without.
func (n *node) limitProcess(context.Context) error {
	k := &n.cfg.Kubelet
	if n.cfg.Simulated != nil {
		return nil
	}
	if k.OOMScoreAdj != nil {
		score := strconv.Itoa(int(*k.OOMScoreAdj))
		if err := os.WriteFile("/proc/self/oom_score_adj", []byte(score), 0o644); err != nil {
			n.log.Warn("the agent's OOM score is not set (oomScoreAdj): it needs CAP_SYS_RESOURCE", "score", score, "err", err)
		}
	}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("read the limit of open files: %w", err)
	}
	if want := uint64(k.MaxOpenFiles); want > limit.Cur {
		limit.Cur = min(want, limit.Max)
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
			n.log.Warn("the limit of open files is not set (maxOpenFiles)", "limit", want, "err", err)
		}
	}
	return nil
}

// setKernel sets what Kubernetes wants of the kernel (protectKernelDefaults: false). What may not be set, in a container for
// example, is a warning.
func (n *node) setKernel(context.Context) error {
	if n.setsKernel() {
		setKernelAt("/proc/sys", n.log)
	}
	return nil
}

// setsKernel: what a person runs for themselves (wherry run) leaves the machine as it is.
func (n *node) setsKernel() bool {
	return n.cfg.Simulated == nil && n.cfg.Owner == "" && !n.cfg.Kubelet.ProtectKernelDefaults
}

// setKernelAt sets those settings below root that are not as they have to be.
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
			log.Warn("a setting of the kernel is not set (protectKernelDefaults: false)", "setting", s.Name, "want", s.Value, "err", err)
			continue
		}
		log.Info("a setting of the kernel is set (protectKernelDefaults: false)", "setting", s.Name, "was", value, "is", s.Value)
	}
}

func (n *node) restConfig() *rest.Config {
	c := n.client.Config()
	c.ContentType = n.cfg.Kubelet.ContentType
	if c.ContentType == "application/vnd.kubernetes.protobuf" {
		c.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	}
	c.UserAgent = "wherry/" + config.WherryVersion + " (kubelet " + config.KubernetesVersion + ")"
	return c
}

// servingConfig says where the certificate of the HTTPS API comes from.
func (n *node) servingConfig() (identity.ServingConfig, error) {
	k := &n.cfg.Kubelet
	cfg := identity.ServingConfig{
		CertFile: k.TLSCertFile, KeyFile: k.TLSPrivateKeyFile, FixedFiles: !n.cfg.Gates.Enabled("ReloadKubeletServerCertificateFile"), Request: k.ServerTLSBootstrap && n.client != nil,
		CertDir: n.cfg.CertDir, NodeName: n.name, Addresses: n.addresses, Log: n.log, Kubeconfig: n.cfg.Kubeconfig,
	}
	if cfg.Request {
		cfg = n.asking(cfg)
	}
	if n.client != nil {
		cfg.Server = n.client.Server()
		c, err := kubeclient.New(n.deps.Client)
		if err != nil {
			return cfg, err
		}
		cfg.Client = func() (identity.CSRs, error) { return c.CertificateSigningRequests(), nil }
	}
	return cfg, nil
}

// asking makes the request for a certificate wait for the Node. Of --node-ip alone it would lack the node's name, and be approved
// for nothing: the Node's addresses ask for another soon after.
func (n *node) asking(cfg identity.ServingConfig) identity.ServingConfig {
	cfg.Addresses = n.agent.addresses
	return cfg
}

// openServing gets the certificate of the HTTPS API.
func (n *node) openServing(context.Context) error {
	if serves, err := n.servesAPI(); err != nil || !serves {
		return err
	}
	cfg, err := n.servingConfig()
	if err != nil {
		return err
	}
	s, err := identity.OpenServing(cfg)
	if err != nil {
		return err
	}
	n.parts = append(n.parts, s.Run)
	n.fails = append(n.fails, s.Failing)
	n.deps.TLS, err = serverTLS(&n.cfg, s.GetCertificate, n.log)
	return err
}

// servesAPI reports whether there is an HTTPS API. Without an API server nobody can be asked who may use it, so it needs
// authorities for client certificates, and the word that whoever has one may do everything.
func (n *node) servesAPI() (bool, error) {
	k := &n.cfg.Kubelet
	switch {
	case !*k.EnableServer || !n.cfg.Standalone():
		return *k.EnableServer, nil
	case *k.Authentication.Anonymous.Enabled:
		return false, errors.New("authentication.anonymous.enabled (--anonymous-auth): a standalone node has no API server to ask what anonymous may do: set it to false, or enableServer to false")
	case k.Authentication.X509.ClientCAFile != "" && k.Authorization.Mode == "AlwaysAllow":
		return true, nil
	}
	*k.EnableServer = false
	n.log.Info("standalone: the HTTPS API is not served; for it set authentication.x509.clientCAFile, and authorization.mode AlwaysAllow: whoever has a certificate may do everything")
	return false, nil
}

// openControl opens the control socket. The usual one, where nobody asked for it, may be missing.
func (n *node) openControl(context.Context) error {
	path, asked := n.cfg.ControlSocket()
	if path != "" && !asked && os.Geteuid() != 0 { // the usual directory is root's
		path = filepath.Join(n.cfg.RootDir, "wherry.sock")
	}
	if path == "" || n.cfg.Simulated != nil && !asked && !n.cfg.Standalone() {
		return nil
	}
	l, err := listenControl(path)
	if err != nil && asked {
		return fmt.Errorf("--push-socket: %w", err)
	}
	if err != nil {
		n.log.Warn("no control socket: pods cannot be pushed, and wherry ps, logs and exec do not reach this node (--push-socket names another)", "err", err)
		return nil
	}
	n.deps.Control = l
	n.closes = append(n.closes, func() { _ = l.Close() })
	n.log.Info("control socket", "path", path)
	return nil
}

// protectLoopback keeps other hosts away from 127.0.0.0/8, where makeIPTablesUtilChains says so and there is a machine.
func (n *node) protectLoopback(context.Context) error {
	if n.cfg.Simulated == nil && *n.cfg.Kubelet.MakeIPTablesUtilChains {
		n.parts = append(n.parts, firewall.New(firewall.Config{Run: firewall.Exec, Log: n.log}).Run)
	}
	return nil
}

// addresses are the node's, or before there is a node those that it was told to have.
func (n *node) addresses() []v1.NodeAddress {
	if a := n.agent.addresses(); len(a) > 0 {
		return a
	}
	var out []v1.NodeAddress
	for _, ip := range n.cfg.NodeIPs {
		if !ip.IsUnspecified() {
			out = append(out, v1.NodeAddress{Type: v1.NodeInternalIP, Address: ip.String()})
		}
	}
	return out
}

// serverTLS is the TLS side of the HTTPS API. Config has checked the values.
func serverTLS(cfg *config.Config, get func(*tls.ClientHelloInfo) (*tls.Certificate, error), log *slog.Logger) (*tls.Config, error) {
	k := &cfg.Kubelet
	version, suites, err := server.ParseTLS(k.TLSMinVersion, k.TLSCipherSuites)
	if err != nil {
		return nil, err
	}
	curves, err := cliflag.TLSCurvePreferences(k.TLSCurvePreferences)
	if err != nil {
		return nil, fmt.Errorf("tlsCurvePreferences: %w", err)
	}
	c := server.TLSConfig{MinVersion: version, CipherSuites: suites, Curves: curves, GetCertificate: get}
	if f := k.Authentication.X509.ClientCAFile; f != "" {
		// The gate is about the authorities that a handshake names. Clients are authenticated by the file as it is, always.
		if cfg.Gates.Enabled("ReloadKubeletClientCAFile") {
			c.ClientCAs, err = server.LoadClientCAs(f, log)
		} else {
			c.ClientCAs, err = server.FixedClientCAs(f)
		}
		if err != nil {
			return nil, err
		}
	}
	return c.New(), nil
}

// port is one place to listen.
type port struct {
	field   string
	address string
	port    int32
	to      *net.Listener
	wanted  bool
}

// ports are those that the configuration names.
func (n *node) ports() []port {
	k := &n.cfg.Kubelet
	return []port{
		{"port", k.Address, k.Port, &n.deps.API, *k.EnableServer},
		{"healthzPort", k.HealthzBindAddress, *k.HealthzPort, &n.deps.Health, *k.HealthzPort > 0},
		{"readOnlyPort", k.Address, k.ReadOnlyPort, &n.deps.ReadOnly, *k.EnableServer && k.ReadOnlyPort > 0},
	}
}

// openPorts listens before anything runs, so that a port that is taken is known at once.
func (n *node) openPorts(context.Context) error {
	for _, p := range n.ports() {
		if !p.wanted {
			continue
		}
		l, err := net.Listen("tcp", net.JoinHostPort(p.address, strconv.Itoa(int(p.port))))
		if err != nil {
			return fmt.Errorf("listen on %s: %w (another node agent on this machine? choose another port)", p.field, err)
		}
		*p.to = l
		n.closes = append(n.closes, func() { _ = l.Close() })
	}
	return nil
}

func serverLimits(s *config.WherryServer) agent.ServerLimits {
	return agent.ServerLimits{
		StreamingByGet: s.StreamingByGet == config.StreamingAsUpstream, ReviewQPS: float32(s.ReviewQPS), ReviewBurst: s.ReviewBurst,
		WaitingReviews: s.MaxWaitingReviews, UnknownConnections: s.MaxUnknownConnections,
	}
}

// logLinks is where log collectors look for the logs of all containers, wherever podLogsDir is. The agent that wherry run
// starts and a node without containers make no links.
func logLinks(cfg *config.Config) string {
	if cfg.Simulated != nil || cfg.Owner != "" {
		return ""
	}
	return "/var/log/containers"
}

func (n *node) agentConfig(hostname string) agent.Config {
	if n.cfg.HostnameOverride != "" {
		hostname = n.name
	}
	var maxDead *int
	if m := int(n.cfg.MaxDeadContainers); m >= 0 {
		maxDead = &m
	}
	return agent.Config{
		NodeName: n.name, Hostname: hostname, Kubelet: n.cfg.Kubelet, RootDir: n.cfg.RootDir, NodeIPs: n.cfg.NodeIPs,
		NodeLabels: n.cfg.NodeLabels, CloudProvider: n.cfg.CloudProvider, LogLinkDir: logLinks(&n.cfg), DeadContainers: int(n.cfg.MaxDeadPerContainer), PushAPI: n.cfg.PushAPI,
		Flags: n.cfg.Flags, Server: serverLimits(&n.cfg.Wherry.Server),
		RuntimeCgroups: n.cfg.RuntimeCgroups, DeadContainerAge: n.cfg.MinimumContainerTTL, MaxDeadContainers: maxDead,
	}
}
