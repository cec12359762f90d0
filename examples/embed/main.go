// Command embed shows how a program of another Go module embeds a node: a simulated machine that runs one static pod. It ends when the pod
// is Running.
//
//	cd examples/embed && go run .
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/agent"
	"github.com/wherry-node/wherry/agent/simulated"
)

const manifest = `
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  containers: [{name: main, image: registry.example/web:1}]
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "embed:", err)
		os.Exit(1)
	}
}

// run creates a node, runs it until its pod is Running, and ends the node.
func run(ctx context.Context, out io.Writer) (err error) {
	dir, err := os.MkdirTemp("", "embed")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	manifests := filepath.Join(dir, "manifests")
	if err := errors.Join(os.Mkdir(manifests, 0o700), os.WriteFile(filepath.Join(manifests, "web.yaml"), []byte(manifest), 0o600)); err != nil {
		return err
	}
	node := simulated.New(simulated.Config{CPUs: 4})
	defer node.Close()
	cfg := agent.Config{NodeName: "n1", Kubelet: agent.DefaultConfiguration(), ControlSocket: filepath.Join(dir, "node.sock")}
	*cfg.Kubelet.EnableServer = false
	cfg.Kubelet.StaticPodPath = manifests
	deps := node.Deps()
	deps.Log = slog.New(slog.DiscardHandler)
	a, err := agent.New(cfg, deps)
	if err != nil {
		return err
	}
	running, end := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- a.Run(running) }()
	err = waitRunning(ctx, cfg.ControlSocket, out)
	end()
	return errors.Join(err, <-ended)
}

// waitRunning reads the node's pods from the control socket until all of them are Running, and prints them.
func waitRunning(ctx context.Context, socket string, out io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}}
	for {
		pods, _ := podsOf(ctx, &client) // an error is ignored, because the node may not listen yet
		running := 0
		for i := range pods {
			if pods[i].Status.Phase == v1.PodRunning {
				running++
			}
		}
		if running > 0 && running == len(pods) {
			for i := range pods {
				fmt.Fprintln(out, pods[i].Name, pods[i].Status.Phase)
			}
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the node's pods do not run: %w", ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func podsOf(ctx context.Context, client *http.Client) ([]v1.Pod, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://node/pods", nil)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var list v1.PodList
	err = json.NewDecoder(resp.Body).Decode(&list)
	return list.Items, err
}
