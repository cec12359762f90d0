package agent_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/test/bufconn"

	"github.com/wherry-node/wherry/agent"
	"github.com/wherry-node/wherry/agent/simulated"
)

// explainedPods is how many pods the node of BenchmarkExplain has.
const explainedPods = 500

// BenchmarkExplain measures the explanations of a node with 500 pods, of which every tenth crashes again and again. It asks about one pod
// that runs, about one pod that crashes, and about all pods. Its results are in docs/explain.md.
func BenchmarkExplain(b *testing.B) {
	get := startFullNode(b)
	for _, c := range []struct{ name, path string }{
		{"one pod", "/explain/default/web-001"}, {"one pod that crashes", "/explain/default/web-010"}, {"all pods", "/explain"},
	} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				if code, _ := get(c.path); code != http.StatusOK {
					b.Fatalf("%s: %d", c.path, code)
				}
			}
		})
	}
}

// startFullNode runs a simulated node with explainedPods pods until the benchmark ends. The returned function sends a GET request over
// the control socket.
func startFullNode(b *testing.B) (get func(path string) (int, []byte)) {
	b.Helper()
	n := simulated.New(simulated.Config{})
	listener := bufconn.Listen(1 << 20)
	kubelet := agent.DefaultConfiguration()
	kubelet.EnableServer, kubelet.MaxPods = new(false), explainedPods
	deps := n.Deps()
	deps.Log, deps.Control = slog.New(slog.DiscardHandler), listener
	a, err := agent.New(agent.Config{NodeName: "full", Kubelet: kubelet}, deps)
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	b.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			b.Error(err)
		}
		n.Close()
	})
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return listener.DialContext(ctx) }}}
	ask := func(method, path, body string) (int, []byte) {
		req, err := http.NewRequestWithContext(ctx, method, "http://agent"+path, strings.NewReader(body))
		if err != nil {
			b.Fatal(err)
		}
		resp, err := client.Do(req)
		if err != nil {
			b.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(io.LimitReader(resp.Body, 64<<20))
		if err != nil {
			b.Fatal(err)
		}
		return resp.StatusCode, text
	}
	began := time.Now()
	get = func(path string) (int, []byte) { return ask(http.MethodGet, path, "") }
	for i := range explainedPods {
		command := ""
		if i%10 == 0 {
			command = `, command: [sh, -c, "exit 3"]`
		}
		manifest := fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: web-%03d}\nspec: {containers: [{name: main, image: registry.example/app:1%s}]}\n", i, command)
		awaitCode(b, http.StatusOK, func() int { // pushes are refused until the agent has read the pods that were pushed before its start
			code, _ := ask(http.MethodPost, "/pods", manifest)
			return code
		})
	}
	b.Logf("pushed after %v", time.Since(began))
	awaitCode(b, 0, func() (wrong int) { // until each pod runs, or crashes and waits
		_, text := get("/explain")
		var list []struct{ Answer struct{ Cause string } }
		if err := json.Unmarshal(text, &list); err != nil || len(list) != explainedPods {
			return explainedPods
		}
		for _, e := range list {
			if e.Answer.Cause != "Running" && e.Answer.Cause != "CrashLoop" {
				wrong++
			}
		}
		return wrong
	})
	b.Logf("settled after %v", time.Since(began))
	return get
}

// awaitCode calls ask until it returns want, at most for two minutes.
func awaitCode(b *testing.B, want int, ask func() int) {
	b.Helper()
	pause := time.NewTicker(20 * time.Millisecond)
	defer pause.Stop()
	got := want - 1
	for range 6000 {
		if got = ask(); got == want {
			return
		}
		<-pause.C
	}
	b.Fatalf("%d, want %d", got, want)
}
