package component

import (
	"fmt"
	"net/url"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.etcd.io/etcd/server/v3/embed"
	"k8s.io/component-base/cli"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

// These are the names of the components, in the order of their start.
const (
	Etcd              = "etcd"
	APIServer         = "kube-apiserver"
	ControllerManager = "kube-controller-manager"
	Scheduler         = "kube-scheduler"
	Proxy             = "kube-proxy"
)

// Run runs the component with this name until a signal ends it, and returns the exit code. args are the component's own command-line
// arguments.
func Run(name string, args []string) int {
	command, err := command(name)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	// The components' commands also read os.Args, when they print or normalise flags.
	os.Args = append([]string{name}, args...)
	command.SetArgs(args)
	return cli.Run(command)
}

func command(name string) (*cobra.Command, error) {
	switch name {
	case Etcd:
		return etcdCommand(), nil
	case APIServer:
		return apiserver.NewAPIServerCommand(), nil
	case ControllerManager:
		return controllermanager.NewControllerManagerCommand(), nil
	case Scheduler:
		return scheduler.NewSchedulerCommand(), nil
	case Proxy:
		return proxy.NewProxyCommand(), nil
	}
	return nil, fmt.Errorf("run component %q: not one of %s, %s, %s, %s, %s", name, Etcd, APIServer, ControllerManager, Scheduler, Proxy)
}

// etcdOptions are the flags of the embedded etcd: only those that a single etcd member on one machine needs.
type etcdOptions struct {
	dataDir              string
	clientPort, peerPort int
	cert, key, ca        string
	unsafeNoFsync        bool
}

func (o *etcdOptions) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.dataDir, "data-dir", "", "where the member keeps its data")
	fs.IntVar(&o.clientPort, "client-port", 2379, "loopback port for clients")
	fs.IntVar(&o.peerPort, "peer-port", 2380, "loopback port for peers (there are none)")
	fs.StringVar(&o.cert, "cert-file", "", "certificate of the server, and of clients and peers")
	fs.StringVar(&o.key, "key-file", "", "key of the certificate")
	fs.StringVar(&o.ca, "trusted-ca-file", "", "authority that clients' certificates must come from")
	fs.BoolVar(&o.unsafeNoFsync, "unsafe-no-fsync", false, "do not wait for the disk: a crash of the machine (not of the process) may lose data")
}

func etcdCommand() *cobra.Command {
	options := &etcdOptions{}
	command := &cobra.Command{
		Use:          Etcd,
		Short:        "One etcd member on loopback.",
		SilenceUsage: true,
		Args:         cobra.NoArgs,
		RunE:         func(*cobra.Command, []string) error { return options.run() },
	}
	options.addFlags(command.Flags())
	return command
}

func (o *etcdOptions) config() *embed.Config {
	cfg := embed.NewConfig()
	cfg.Name = "wherry"
	cfg.Dir = o.dataDir
	cfg.LogLevel = "warn"
	cfg.LogOutputs = []string{"stderr"}
	cfg.WarningUnaryRequestDuration = embed.DefaultWarningUnaryRequestDuration // the zero of NewConfig makes etcd log every request
	cfg.UnsafeNoFsync = o.unsafeNoFsync
	cfg.AutoCompactionMode = "periodic"
	cfg.AutoCompactionRetention = "5m"
	cfg.QuotaBackendBytes = 4 << 30
	loopback := func(port int) []url.URL {
		return []url.URL{{Scheme: "https", Host: fmt.Sprintf("127.0.0.1:%d", port)}}
	}
	cfg.ListenClientUrls, cfg.ListenPeerUrls = loopback(o.clientPort), loopback(o.peerPort)
	// With a port of its own for HTTP (health and metrics, which nobody reads), gRPC need not share a server with it. The shared server passes
	// each gRPC request through net/http, which needs more processor time.
	cfg.ListenClientHttpUrls = loopback(0)
	cfg.AdvertiseClientUrls, cfg.AdvertisePeerUrls = cfg.ListenClientUrls, cfg.ListenPeerUrls
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	cfg.ClientTLSInfo.CertFile, cfg.ClientTLSInfo.KeyFile = o.cert, o.key
	cfg.ClientTLSInfo.TrustedCAFile, cfg.ClientTLSInfo.ClientCertAuth = o.ca, true
	cfg.PeerTLSInfo = cfg.ClientTLSInfo
	return cfg
}

func (o *etcdOptions) run() error {
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT)
	server, err := embed.StartEtcd(o.config())
	if err != nil {
		return fmt.Errorf("start etcd: %w", err)
	}
	select {
	case <-server.Server.ReadyNotify():
		fmt.Fprintln(os.Stderr, "etcd is ready")
	case <-time.After(2 * time.Minute):
		server.Close()
		return fmt.Errorf("start etcd on %s: not ready after 2 minutes", o.dataDir)
	case <-stop:
		server.Close()
		return nil
	}
	select {
	case <-stop:
		server.Close()
		return nil
	case err := <-server.Err():
		server.Close()
		return fmt.Errorf("serve etcd: %w", err)
	case <-server.Server.StopNotify():
		return fmt.Errorf("serve etcd on %s: the member stopped by itself", o.dataDir)
	}
}
