package launch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"

	"k8s.io/klog/v2"
	kubelet "k8s.io/kubelet/config/v1beta1"

	"github.com/wherry-node/wherry/agent"
	"github.com/wherry-node/wherry/agent/simulated"
	"github.com/wherry-node/wherry/internal/edge/config"
	"github.com/wherry-node/wherry/internal/edge/sdnotify"
)

// Kubelet builds a node from its configuration and runs it until ctx ends. level is the verbosity of the log, which clients
// of the HTTPS API may change (enableDebugFlagsHandler); nil: they may not.
func Kubelet(ctx context.Context, cfg config.Config, log *slog.Logger, level *slog.LevelVar) error {
	klog.SetSlogLogger(log) // the libraries of Kubernetes log through klog, whose logger is global to the process
	hostname, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("read host name: %w", err)
	}
	c, err := AgentConfig(cfg, hostname)
	if err != nil {
		return err
	}
	deps := agent.Deps{Machine: agent.RealMachine()}
	run := func(ctx context.Context, a *agent.Agent) error { return a.Run(ctx) }
	if cfg.Simulated != nil {
		n := simulatedNode(&cfg, log)
		defer n.Close()
		deps, run = n.Deps(), withStreams(n)
	}
	deps.Log, deps.ProcessMetrics = log, true
	if level != nil {
		deps.SetVerbosity = func(value string) error { return config.SetVerbosity(level, value) }
	}
	started := make(chan struct{})
	deps.Started = func() { close(started) }
	acted, stop := atRest(settle)
	defer stop()
	deps.Acted = acted
	a, err := agent.New(c, deps)
	if err != nil {
		return err
	}
	if cfg.Files.Watches() {
		plain := run
		run = func(ctx context.Context, a *agent.Agent) error {
			return runWatched(ctx, &reload{agent: a, hostname: hostname, log: log}, cfg.Files, started, func(ctx context.Context) error { return plain(ctx, a) })
		}
	}
	if profilesContention(&c.Kubelet) {
		runtime.SetBlockProfileRate(1)
	}
	manager, err := sdnotify.Open(os.Getenv)
	if err != nil {
		return err
	}
	if manager == nil {
		return run(ctx, a)
	}
	return runSupervised(ctx, manager, service{started: started, alive: a.Alive, summary: a.Summary}, log, func(ctx context.Context) error { return run(ctx, a) })
}

// profilesContention reports whether the configuration asks for block profiles (/debug/pprof/block), which record where goroutines wait for
// each other. Package agent does not switch them on, because that is a setting of the whole process.
func profilesContention(k *kubelet.KubeletConfiguration) bool {
	return k.EnableContentionProfiling && k.EnableProfilingHandler != nil && *k.EnableProfilingHandler
}

// AgentConfig converts the configuration from flags and files to the configuration of package agent, for a machine with this host name.
func AgentConfig(cfg config.Config, hostname string) (agent.Config, error) {
	name, err := cfg.NodeName(hostname)
	if err != nil {
		return agent.Config{}, err
	}
	c := agent.Config{
		NodeName: name, Hostname: name, Kubelet: cfg.Kubelet, // upstream's kubelet has one name too, in lower case, for the Node and its label
		RootDir: cfg.RootDir, NodeIPs: cfg.NodeIPs, NodeLabels: cfg.NodeLabels,
		CloudProvider: cfg.CloudProvider, AllocatableIgnoresEviction: cfg.IgnoreEvictionThreshold, DockerConfigs: dockerConfigs(&cfg),
		CredentialProviderConfig: cfg.ImageCredentialProviderConfig, CredentialProviderDir: cfg.ImageCredentialProviderBinDir, RuntimeCgroups: cfg.RuntimeCgroups, LogLinkDir: logLinks(&cfg), Flags: cfg.Flags,
		DeadContainers: new(int(cfg.MaxDeadPerContainer)), DeadContainerAge: cfg.MinimumContainerTTL,
		Kubeconfig: cfg.Kubeconfig, BootstrapKubeconfig: cfg.BootstrapKubeconfig, CertDir: cfg.CertDir, Listen: true, PushAPI: cfg.PushAPI,
		Owner: cfg.Owner, ManageHost: cfg.Simulated == nil, Server: serverLimits(&cfg.Wherry.Server),
		KeepImages: cfg.Wherry.Images.NeverRemove, RecordBytes: cfg.Wherry.FlightRecorder.MaxBytes, OfflineStart: offlineStart(&cfg), Console: cfg.Console(),
	}
	if m := int(cfg.MaxDeadContainers); m >= 0 {
		c.MaxDeadContainers = &m
	}
	if cfg.Simulated != nil {
		c.Kubelet.MaxPods = cfg.Simulated.Pods
	}
	c.ControlSocket, c.ControlSocketOptional = controlSocket(&cfg)
	return c, nil
}

// dockerConfigs returns the files in which an administrator may keep registry credentials of the node, in the order of upstream's kubelet:
// below the root directory, in the working directory, in the home directory, and below "/". A simulated node has none.
func dockerConfigs(cfg *config.Config) []string {
	if cfg.Simulated != nil {
		return nil
	}
	var files []string
	for _, dir := range []string{cfg.RootDir, ".", filepath.Join(os.Getenv("HOME"), ".docker"), "/.docker"} {
		files = append(files, filepath.Join(dir, "config.json"))
	}
	for _, dir := range []string{cfg.RootDir, ".", os.Getenv("HOME"), "/"} {
		files = append(files, filepath.Join(dir, ".dockercfg"))
	}
	return slices.Compact(files)
}

// controlSocket returns the path of the control socket. optional is true if the user has not asked for a socket and the path
// is the default: if the agent cannot open it, the agent runs without a socket.
func controlSocket(cfg *config.Config) (path string, optional bool) {
	path, asked := cfg.ControlSocket()
	switch {
	case path == "":
		return "", false
	case !asked && cfg.Simulated == nil && os.Geteuid() != 0: // only root can write to the default directory
		return filepath.Join(cfg.RootDir, "wherry.sock"), true
	}
	return path, !asked
}

func serverLimits(s *config.WherryServer) agent.ServerLimits {
	return agent.ServerLimits{
		StreamingByGet: s.StreamingByGet == config.StreamingAsUpstream, ReviewQPS: float32(s.ReviewQPS), ReviewBurst: s.ReviewBurst,
		WaitingReviews: s.MaxWaitingReviews, UnknownConnections: s.MaxUnknownConnections,
	}
}

// offlineStart returns the settings of a start without the API server. A simulated node has none, because its containers end with it.
func offlineStart(cfg *config.Config) agent.OfflineStart {
	o := &cfg.Wherry.OfflineStart
	if cfg.Simulated != nil || !o.Enabled {
		return agent.OfflineStart{}
	}
	after, maxAge, maxBytes := o.Limits()
	return agent.OfflineStart{Enabled: true, KeyFile: o.KeyFile, After: after, MaxAge: maxAge, MaxBytes: maxBytes}
}

// logLinks returns the directory for links to the logs of all containers, where log collectors look. It does not depend on
// podLogsDir. A simulated node and the agent of wherry run make no links: the result is "".
func logLinks(cfg *config.Config) string {
	if cfg.Simulated != nil || cfg.Owner != "" {
		return ""
	}
	return "/var/log/containers"
}

// simulatedNode returns a runtime and a machine that exist only in memory. The node's address is the one of --node-ip.
// Without --node-ip it is the host's address, so that the API server can reach the node's API.
func simulatedNode(cfg *config.Config, log *slog.Logger) *simulated.Node {
	s := cfg.Simulated
	sim := simulated.Config{CPUs: int(s.CPU.Value()), Memory: s.Memory, Logs: keepsLogs(cfg, log), Log: log}
	for _, ip := range cfg.NodeIPs {
		if !ip.IsUnspecified() {
			sim.Address = ip
			break
		}
	}
	if !sim.Address.IsValid() {
		// The API server does not forward requests to a loopback address, so take the address of the host. If the host has
		// no other address, HostAddress is not valid and the node gets 127.0.0.1.
		sim.Address = simulated.HostAddress()
	}
	log.Info("simulated node: pods are kept in memory and nothing runs", "cpus", sim.CPUs, "memory", sim.Memory.String(), "pods", s.Pods)
	return simulated.New(sim)
}

// keepsLogs creates the directory of container logs. It reports whether this was possible; only then do simulated containers
// write logs.
func keepsLogs(cfg *config.Config, log *slog.Logger) bool {
	err := os.MkdirAll(cfg.Kubelet.PodLogsDir, 0o750)
	if err != nil {
		log.Warn("the simulated containers write no logs: name a directory that can be written with --root-dir", "err", err)
	}
	return err == nil
}

// withStreams returns a function that runs an agent and serves exec, attach and port-forward into the simulated containers.
func withStreams(n *simulated.Node) func(context.Context, *agent.Agent) error {
	return func(ctx context.Context, a *agent.Agent) error {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return fmt.Errorf("listen for streams of the simulated runtime: %w", err)
		}
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		streams := make(chan error, 1)
		go func() {
			defer cancel()
			streams <- n.ServeStreams(ctx, l)
		}()
		err = a.Run(ctx)
		cancel()
		return errors.Join(err, <-streams)
	}
}
