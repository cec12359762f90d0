// Command wherry-controlplane is a Kubernetes control plane for development in one binary (package plane).
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/wherry-node/wherry/controlplane/internal/component"
	"github.com/wherry-node/wherry/controlplane/internal/pki"
	"github.com/wherry-node/wherry/controlplane/internal/plane"
)

func main() {
	// This check comes before cobra parses the arguments, because a component parses its own flags.
	if len(os.Args) > 2 && os.Args[1] == "component" {
		if plane.Orphaned() {
			fmt.Fprintln(os.Stderr, "the control plane that started this component is gone")
			os.Exit(1)
		}
		os.Exit(component.Run(os.Args[2], os.Args[3:]))
	}
	if err := command().Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "wherry-controlplane:", err)
		os.Exit(1)
	}
}

func command() *cobra.Command {
	cfg := plane.Config{ExtraArgs: map[string][]string{}}
	var readyFile string
	extra := map[string]*[]string{}
	cmd := &cobra.Command{
		Use:   "wherry-controlplane",
		Short: "A Kubernetes control plane for development: etcd, API server, controllers, scheduler, proxy.",
		Long: `A Kubernetes control plane for development: etcd, kube-apiserver, kube-controller-manager, kube-scheduler and,
as root, kube-proxy. Each runs as a child process; an interrupt or SIGTERM ends them all in order. Everything it writes
lies in --data-dir: admin.kubeconfig, bootstrap.kubeconfig, ca.crt, pki/, logs/, run/*.pid, etcd/.

    wherry-controlplane --data-dir /tmp/plane --secure-port 0 &
    kubectl --kubeconfig /tmp/plane/admin.kubeconfig get ns`,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			for name, values := range extra {
				cfg.ExtraArgs[name] = *values
			}
			return run(cmd, cfg, readyFile)
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&cfg.DataDir, "data-dir", "", "where everything is written (required)")
	fs.StringVar(&cfg.BindAddress, "bind-address", "0.0.0.0", "address that kube-apiserver listens on")
	fs.StringVar(&cfg.AdvertiseAddress, "advertise-address", "", "address by which pods reach kube-apiserver (default: the machine's)")
	fs.IntVar(&cfg.SecurePort, "secure-port", 6443, "port of kube-apiserver; 0: the one of the last run, else a free one")
	fs.IntVar(&cfg.EtcdPort, "etcd-port", 0, "etcd's port on loopback; 0: the one of the last run, else a free one")
	fs.IntVar(&cfg.EtcdPeerPort, "etcd-peer-port", 0, "etcd's peer port on loopback; 0: as for --etcd-port")
	fs.StringVar(&cfg.ServiceCIDR, "service-cidr", "10.96.0.0/12", "addresses of Services")
	fs.StringVar(&cfg.ClusterCIDR, "cluster-cidr", "10.244.0.0/16", "addresses of pods")
	fs.BoolVar(&cfg.AllocateNodeCIDRs, "allocate-node-cidrs", true, "give each node a /24 of --cluster-cidr")
	fs.BoolVar(&cfg.AutoApprove, "auto-approve", true, "approve the CSRs of joining and rotating nodes; false: wait for `kubectl certificate approve`")
	fs.StringVar(&cfg.BootstrapToken, "bootstrap-token", "", "token that nodes join with (default: the one of the last run, else random)")
	fs.DurationVar(&cfg.SigningDuration, "signing-duration", 0, "life of certificates signed for CSRs (default: Kubernetes', a year)")
	fs.DurationVar(&cfg.NodeMonitorGracePeriod, "node-monitor-grace-period", 0, "silence after which a node is Unknown (default: Kubernetes', 50 s)")
	fs.BoolVar(&cfg.Proxy, "proxy", proxyPossible(), "run kube-proxy in nftables mode (default: as root where nft is installed); one per network namespace")
	fs.StringVar(&cfg.NodeName, "node-name", hostname(), "the node that kube-proxy runs as")
	fs.BoolVar(&cfg.Fsync, "fsync", false, "etcd waits for the disk: slower, and survives a crash of the machine")
	fs.StringArrayVar(&cfg.ExtraNames, "apiserver-name", nil, "further name or address in the API server's certificate (repeatable)")
	for name, flag := range map[string]string{
		component.Etcd: "etcd-arg", component.APIServer: "apiserver-arg", component.ControllerManager: "controller-manager-arg",
		component.Scheduler: "scheduler-arg", component.Proxy: "proxy-arg",
	} {
		extra[name] = fs.StringArray(flag, nil, "flag `k=v` for "+name+" (repeatable)")
	}
	fs.StringVar(&cfg.AdminKubeconfig, "admin-kubeconfig", "", "where the administrator's kubeconfig is written (default: in --data-dir)")
	fs.StringVar(&cfg.BootstrapKubeconfig, "bootstrap-kubeconfig", "", "where the kubeconfig with the bootstrap token is written (default: in --data-dir)")
	fs.StringVar(&cfg.CAFile, "ca-file", "", "where the cluster's authority is written (default: in --data-dir)")
	fs.StringVar(&readyFile, "ready-file", "", "written when the plane is ready, removed when it ends")
	fs.DurationVar(&cfg.StopGrace, "stop-grace", cfg.StopGrace, "how long a component may take to end before it is killed (default 15s)")
	return cmd
}

func run(cmd *cobra.Command, cfg plane.Config, readyFile string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	executable, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find own executable: %w", err)
	}
	cfg.Executable = executable
	cfg.Progress = cmd.ErrOrStderr()
	if readyFile != "" {
		_ = os.Remove(readyFile) // a run that was killed may have left the file
		defer func() { _ = os.Remove(readyFile) }()
		cfg.Ready = func(e plane.Endpoint) error {
			data, err := json.Marshal(map[string]any{
				"server": e.Server, "adminKubeconfig": e.AdminKubeconfig, "bootstrapKubeconfig": e.BootstrapKubeconfig,
				"caFile": e.CAFile, "seconds": e.Took.Seconds(),
			})
			if err != nil {
				return err
			}
			return pki.WriteFile(readyFile, append(data, '\n'), 0o644)
		}
	}
	return plane.Run(ctx, cfg)
}

func proxyPossible() bool {
	_, err := exec.LookPath("nft")
	return err == nil && os.Geteuid() == 0
}

func hostname() string {
	name, err := os.Hostname()
	if err != nil {
		return "localhost"
	}
	return name
}
