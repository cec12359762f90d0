package agent_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/agent"
	"github.com/wherry-node/wherry/agent/simulated"
)

// A standalone node on a simulated machine runs the pods of a directory. Its control socket shows their state.
func Example() {
	dir, err := os.MkdirTemp("", "node")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	manifest := "{apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {containers: [{name: main, image: nginx}]}}"
	if err := os.WriteFile(filepath.Join(dir, "web.yaml"), []byte(manifest), 0o600); err != nil {
		log.Fatal(err)
	}

	node := simulated.New(simulated.Config{CPUs: 4})
	defer node.Close()
	deps := node.Deps()
	deps.Log = slog.New(slog.DiscardHandler)
	cfg := agent.Config{NodeName: "n1", Kubelet: agent.DefaultConfiguration(), ControlSocket: filepath.Join(dir, "run", "node.sock")}
	*cfg.Kubelet.EnableServer = false
	cfg.Kubelet.StaticPodPath = dir
	a, err := agent.New(cfg, deps)
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()

	for ctx.Err() == nil {
		if p := podOf(ctx, cfg.ControlSocket, "default/web-n1"); p.Status.Phase == v1.PodRunning {
			fmt.Println(p.Name, p.Status.Phase)
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	cancel()
	if err := <-ended; err != nil {
		log.Fatal(err)
	}
	// Output: web-n1 Running
}

// podOf gets a pod from a node. Without an answer it returns a pod without a phase.
func podOf(ctx context.Context, socket, name string) (p v1.Pod) {
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://node/pods/"+name, nil)
	if err != nil {
		log.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil || resp.StatusCode != http.StatusOK {
		return p
	}
	defer resp.Body.Close()
	_ = json.NewDecoder(resp.Body).Decode(&p)
	return p
}
