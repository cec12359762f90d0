// Command lease keeps a node Ready without its agent, by renewing its lease. With -ready it also writes the conditions of a node that the
// control plane has marked Unknown. `wherry lease renew` does the same.
//
//	go run ./examples/labs/lease -kubeconfig .wherry/admin.kubeconfig -node NODE -ready
package main

import (
	"context"
	"errors"
	"flag"
	"os"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/wherry-node/wherry/examples/labs/lab"
	"github.com/wherry-node/wherry/internal/cli/handtools"
)

func main() {
	l := handtools.LeaseRenewal{Out: os.Stdout}
	kubeconfig := flag.String("kubeconfig", "", "the cluster")
	flag.StringVar(&l.Node, "node", "myjtthink", "the node")
	flag.BoolVar(&l.Ready, "ready", false, "also write the conditions of a healthy node where they are not")
	flag.DurationVar(&l.Interval, "interval", 10*time.Second, "time between two renewals")
	lab.Main(func(ctx context.Context) error {
		if *kubeconfig == "" {
			return errors.New("name a cluster with -kubeconfig")
		}
		client, _, err := lab.Client(*kubeconfig)
		if err != nil {
			return err
		}
		return run(ctx, client, &l)
	})
}

func run(ctx context.Context, client kubernetes.Interface, l *handtools.LeaseRenewal) error {
	l.Nodes, l.Leases = client.CoreV1().Nodes(), client.CoordinationV1().Leases(v1.NamespaceNodeLease)
	return l.Run(ctx)
}
