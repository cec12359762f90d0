// Command podlist shows the pods that are bound to a node, as they are created and deleted. A watch of the API keeps the set of the node's
// pods, and the endpoint /pods prints the set.
//
//	go run ./examples/labs/podlist -kubeconfig .wherry/admin.kubeconfig -node NODE &
//	curl localhost:8080/pods
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/wherry-node/wherry/examples/labs/lab"
	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/edge/podset"
	"github.com/wherry-node/wherry/internal/edge/source"
)

func main() {
	listen := flag.String("listen", "localhost:8080", "where to listen")
	kubeconfig := flag.String("kubeconfig", "", "cluster; without it an API server in memory, which is empty")
	node := flag.String("node", "myjtthink", "the node")
	lab.Main(func(ctx context.Context) error {
		client, _, err := lab.Client(*kubeconfig)
		if err != nil {
			return err
		}
		l, err := net.Listen("tcp", *listen)
		if err != nil {
			return err
		}
		return run(ctx, client, *node, l)
	})
}

func run(ctx context.Context, client kubernetes.Interface, node string, l net.Listener) error {
	set := podset.New(node, []pod.Source{pod.SourceAPI}, func(types.UID) {})
	api := &source.API{Pods: client.CoreV1().Pods(metav1.NamespaceAll), NodeName: node, Target: set, Log: slog.Default()}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- api.Run(ctx) }()

	mux := http.NewServeMux()
	mux.HandleFunc("GET /pods", func(w http.ResponseWriter, _ *http.Request) {
		if !set.Ready() {
			http.Error(w, "the API server has not answered yet", http.StatusServiceUnavailable)
			return
		}
		for _, p := range set.List() {
			fmt.Fprintf(w, "%s/%s %s\n", p.Namespace, p.Name, p.UID)
		}
	})
	err := lab.Serve(ctx, l, mux)
	cancel()
	<-ended
	return err
}
