// Package lab has what the labs (the example programs in the directories beside it) share: a client for an API server, which may be a
// simulated one, and a small HTTP server.
package lab

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/wherry-node/wherry/internal/sim/simkube"
)

// Main parses the flags and runs a lab until it ends or gets an interrupt (Ctrl-C).
func Main(run func(ctx context.Context) error) {
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil && !errors.Is(err, context.Canceled) {
		fmt.Fprintln(os.Stderr, "Error:", err)
		stop()
		os.Exit(1)
	}
}

// Client returns a client for the cluster of a kubeconfig. If kubeconfig is "", it returns a client for a simulated API server in memory,
// and a handler that serves this API server, so that kubectl can use it too.
func Client(kubeconfig string) (c kubernetes.Interface, handler http.Handler, err error) {
	if kubeconfig == "" {
		k := simkube.New(simkube.Config{})
		c, err := kubernetes.NewForConfig(k.RESTConfig("lab"))
		return c, k, err
	}
	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, nil, fmt.Errorf("read kubeconfig: %w", err)
	}
	c, err = kubernetes.NewForConfig(cfg)
	return c, nil, err
}

// Serve serves HTTP requests on l until ctx ends.
func Serve(ctx context.Context, l net.Listener, h http.Handler) error {
	s := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}
	stop := context.AfterFunc(ctx, func() { _ = s.Close() })
	defer stop()
	if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
