// Command csrapprover approves the requests of nodes for their serving certificates (signer kubernetes.io/kubelet-serving), which nobody
// approves in a stock cluster. It approves a request only if a node made it for itself, and if each of its names and addresses is an
// address of that Node. It denies nothing: a request that does not fit stays undecided, and the log says why.
//
// deploy/csrapprover runs it in a cluster. With --once it looks at the requests that wait now, prints a line for each, and ends:
//
//	go run ./examples/csrapprover --kubeconfig .wherry/admin.kubeconfig --once
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

type options struct {
	kubeconfig string
	once       bool
}

func main() {
	o, err := parse(flag.CommandLine, os.Args[1:])
	if err == nil {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		err = run(ctx, o)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "csrapprover:", err)
		os.Exit(1)
	}
}

// parse reads the command line.
func parse(flags *flag.FlagSet, args []string) (o options, err error) {
	flags.StringVar(&o.kubeconfig, "kubeconfig", "", "the cluster, and who approves; without it the service account of this pod")
	flags.BoolVar(&o.once, "once", false, "decide about the requests that wait now, print a line for each, and end")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 {
		return o, errors.New("there are only flags, no arguments: see -h")
	}
	return o, nil
}

func run(ctx context.Context, o options) error {
	cfg, err := clientConfig(o.kubeconfig)
	if err != nil {
		return err
	}
	// A cluster whose nodes start together has a request of each, and each takes three requests to the API server.
	cfg.QPS, cfg.Burst = 50, 100
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	a := &approver{csrs: client.CertificatesV1().CertificateSigningRequests(), nodes: client.CoreV1().Nodes()}
	if o.once {
		return a.once(ctx, os.Stdout)
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	log.Info("Approving the serving certificates of nodes", "server", cfg.Host)
	newLoop(a, log).run(ctx)
	return nil
}

func clientConfig(kubeconfig string) (*rest.Config, error) {
	if kubeconfig == "" {
		cfg, err := rest.InClusterConfig()
		if err != nil {
			return nil, fmt.Errorf("read service account: %w (outside a cluster, use --kubeconfig)", err)
		}
		return cfg, nil
	}
	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig: %w", err)
	}
	return cfg, nil
}
