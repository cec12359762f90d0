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
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"github.com/wherry-node/wherry/agent"
	"github.com/wherry-node/wherry/agent/simulated"
)

// explainedPods is how many pods the node of BenchmarkExplain has.
const explainedPods = 500

// BenchmarkExplain measures the explanations of a node with 500 pods, of which every tenth crashes again and again. It asks about one pod
// that runs, about one pod that crashes, and about all pods. Its results are in docs/explain.md.
func BenchmarkExplain(b *testing.B) {
	kubelet := agent.DefaultConfiguration()
	kubelet.MaxPods = explainedPods
	get := startFullNode(b, kubelet, func(i int) string {
		crash := ""
		if i%10 == 0 {
			crash = `, command: [sh, -c, "exit 3"]`
		}
		return fmt.Sprintf("metadata: {name: web-%03d}\nspec: {containers: [{name: main, image: registry.example/app:1%s}]}\n", i, crash)
	}).get
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

// fullNode is a simulated node with many pods.
type fullNode struct {
	dial func(ctx context.Context, network, address string) (net.Conn, error) // connects to the control socket
	get  func(path string) (int, []byte)                                      // sends a GET request over it
}

// startFullNode runs a simulated node with kubelet.MaxPods pods until the benchmark ends. manifest returns the metadata and the spec of
// pod i. startFullNode returns when each pod runs, or has crashed.
func startFullNode(b *testing.B, kubelet kubeletv1beta1.KubeletConfiguration, manifest func(i int) string) fullNode {
	b.Helper()
	n := simulated.New(simulated.Config{})
	listener := bufconn.Listen(1 << 20)
	kubelet.EnableServer = new(false)
	pods := int(kubelet.MaxPods)
	deps := n.Deps()
	deps.Log, deps.Control = slog.New(slog.DiscardHandler), listener
	a, err := agent.New(agent.Config{NodeName: "full", Kubelet: kubelet, Console: true}, deps)
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
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) { return listener.DialContext(ctx) }
	client := &http.Client{Transport: &http.Transport{DialContext: dial}}
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
	get := func(path string) (int, []byte) { return ask(http.MethodGet, path, "") }
	for i := range pods {
		body := "apiVersion: v1\nkind: Pod\n" + manifest(i)
		awaitCode(b, http.StatusOK, func() int { // pushes are refused until the agent has read the pods that were pushed before its start
			code, _ := ask(http.MethodPost, "/pods", body)
			return code
		})
	}
	b.Logf("pushed after %v", time.Since(began))
	awaitCode(b, 0, func() (wrong int) { // until each pod runs, or crashes and waits
		_, text := get("/explain")
		var list []struct{ Answer struct{ Cause string } }
		if err := json.Unmarshal(text, &list); err != nil || len(list) != pods {
			return pods
		}
		for _, e := range list {
			if e.Answer.Cause != "Running" && e.Answer.Cause != "CrashLoop" {
				wrong++
			}
		}
		return wrong
	})
	b.Logf("settled after %v", time.Since(began))
	return fullNode{dial, get}
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
