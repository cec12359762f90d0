package agent_test

import (
	"context"
	"log"
	"log/slog"
	"os"
	"os/signal"

	"github.com/wherry-node/wherry/agent"
)

// The machine of this process joins a cluster as with `wherry kubelet`: TLS bootstrap, rotation of certificates, the kubelet's
// ports, and pods on the configured container runtime.
func ExampleNew() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	kubelet := agent.DefaultConfiguration()
	kubelet.ContainerRuntimeEndpoint = "unix:///run/containerd/containerd.sock"
	kubelet.RotateCertificates, kubelet.ServerTLSBootstrap = true, true
	kubelet.Authentication.X509.ClientCAFile = "/etc/kubernetes/pki/ca.crt"
	a, err := agent.New(agent.Config{
		NodeName: "node-1", Kubelet: kubelet, RootDir: "/var/lib/kubelet", CertDir: "/var/lib/kubelet/pki",
		Kubeconfig: "/etc/kubernetes/kubelet.conf", BootstrapKubeconfig: "/etc/kubernetes/bootstrap-kubelet.conf",
		Listen: true, ManageHost: true, LogLinkDir: "/var/log/containers",
	}, agent.Deps{Machine: agent.RealMachine(), Log: slog.Default(), ProcessMetrics: true})
	if err != nil {
		log.Fatal(err)
	}
	if err := a.Run(ctx); err != nil {
		log.Fatal(err)
	}
}
