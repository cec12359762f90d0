// Command syncloop shows what makes a node decide about a pod: a source, the runtime, a probe, a timer, the outcome of an action. It runs
// an agent with a simulated runtime and one pod whose probe begins to fail, and prints the records of the pod's timeline as they appear.
//
//	go run ./examples/labs/syncloop
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/wherry-node/wherry/agent"
	"github.com/wherry-node/wherry/agent/simulated"
	"github.com/wherry-node/wherry/examples/labs/lab"
	"github.com/wherry-node/wherry/internal/core/timeline"
)

func main() {
	listen := flag.String("listen", "localhost:8080", "where the agent's API listens: POST /pods, GET /explain/default/web, ...")
	lab.Main(func(ctx context.Context) error {
		l, err := net.Listen("tcp", *listen)
		if err != nil {
			return err
		}
		return run(ctx, os.Stdout, l)
	})
}

const manifest = `
apiVersion: v1
kind: Pod
metadata: {name: web, annotations: {wherry.dev/sim-fail-after: 2s}}
spec:
  containers:
  - name: main
    image: nginx
    livenessProbe: {exec: {command: [check]}, periodSeconds: 1, failureThreshold: 1}
`

func run(ctx context.Context, out io.Writer, l net.Listener) error {
	node := simulated.New(simulated.Config{})
	defer node.Close()
	deps := node.Deps()
	deps.Control, deps.Log = l, slog.New(slog.DiscardHandler)
	kubelet := agent.DefaultConfiguration()
	*kubelet.EnableServer = false
	a, err := agent.New(agent.Config{NodeName: "lab", Kubelet: kubelet}, deps)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		err := a.Run(ctx)
		cancel() // ends the lab if the agent ends by itself
		ended <- err
	}()
	base := "http://" + l.Addr().String()
	if err := push(ctx, base); err != nil {
		cancel()
		return errors.Join(err, <-ended)
	}
	for shown := 0; ctx.Err() == nil; {
		records := explain(ctx, base)
		for _, rec := range records[min(shown, len(records)):] {
			if rec.Kind == timeline.KindDecision {
				fmt.Fprintf(out, "%-28s %s\n", rec.Cause+":", rec.Why)
			}
		}
		shown = len(records)
		pause(ctx)
	}
	return <-ended
}

func pause(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(50 * time.Millisecond):
	}
}

// push pushes the pod to the agent, and repeats that until the agent accepts the pod.
func push(ctx context.Context, base string) error {
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, base+"/pods", strings.NewReader(manifest))
		if err != nil {
			return err
		}
		req.Header.Set("Content-Type", "application/yaml")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		resp.Body.Close()
		if resp.StatusCode == http.StatusOK {
			return nil
		}
		if resp.StatusCode != http.StatusServiceUnavailable || ctx.Err() != nil {
			return fmt.Errorf("push: %s", resp.Status)
		}
		pause(ctx)
	}
}

// explain returns the timeline of the pod; nil: the agent has none yet.
func explain(ctx context.Context, base string) []timeline.Record {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/explain/default/web", nil)
	if err != nil {
		return nil
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil
	}
	defer resp.Body.Close()
	var e struct{ Records []timeline.Record }
	if json.NewDecoder(resp.Body).Decode(&e) != nil {
		return nil
	}
	return e.Records
}
