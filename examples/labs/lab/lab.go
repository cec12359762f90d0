// Package lab has the common parts of the labs: a client for an API server, real or in memory, and a small HTTP server.
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

// Main parses the flags and runs a lab until Ctrl-C.
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

// Client returns a client for the cluster of a kubeconfig. Without a kubeconfig it starts an API server in memory, and
// returns a client for it and a handler that serves it. kubectl can use the API server over this handler.
func Client(kubeconfig string) (c kubernetes.Interface, handler http.Handler, err error) {
	if kubeconfig == "" {
		k := simkube.New(simkube.Config{})
		c, err := k.Client("lab")
		return c, k, err
	}
	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, nil, fmt.Errorf("read kubeconfig: %w", err)
	}
	c, err = kubernetes.NewForConfig(cfg)
	return c, nil, err
}

// Serve serves until ctx ends.
func Serve(ctx context.Context, l net.Listener, h http.Handler) error {
	s := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}
	stop := context.AfterFunc(ctx, func() { _ = s.Close() })
	defer stop()
	if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
