package agenttest

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/wherry-node/wherry/agent"
	"github.com/wherry-node/wherry/agent/simulated"
	"github.com/wherry-node/wherry/internal/sim/simkube"
)

// freePort returns a TCP port on which nothing listens now.
func freePort(t *testing.T) int32 {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return int32(l.Addr().(*net.TCPAddr).Port)
}

// kubeconfigOf writes a kubeconfig for the server s, with a token, and returns its path.
func kubeconfigOf(t *testing.T, s *httptest.Server) string {
	t.Helper()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	text := fmt.Sprintf("apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: %q, certificate-authority-data: %s}}]\n"+
		"users: [{name: u, user: {token: t}}]\ncontexts: [{name: x, context: {cluster: c, user: u}}]\ncurrent-context: x\n", s.URL, base64.StdEncoding.EncodeToString(ca))
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// An agent that is given only a kubeconfig and ports becomes a node: it registers, serves its API only to known clients, reports its
// health, runs the pods that are bound to it, and frees its ports when it ends.
func TestNodeOfAKubeconfig(t *testing.T) {
	t.Parallel()
	kube := simkube.New(simkube.Config{})
	server := httptest.NewTLSServer(kube)
	defer server.Close()
	node := simulated.New(simulated.Config{})
	defer node.Close()
	cfg := agent.Config{NodeName: NodeName, Kubelet: agent.DefaultConfiguration(), Kubeconfig: kubeconfigOf(t, server), CertDir: t.TempDir(), Listen: true}
	k := &cfg.Kubelet
	health := freePort(t)
	k.Address, k.Port, k.HealthzPort = "127.0.0.1", freePort(t), &health
	deps := node.Deps()
	deps.Log = slog.New(slog.DiscardHandler)
	a, err := agent.New(cfg, deps)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	until := func(what string, done func() bool) {
		t.Helper()
		for !done() {
			select {
			case err := <-ended:
				t.Fatalf("%s: the agent ended: %v", what, err)
			case <-time.After(20 * time.Millisecond):
			}
		}
	}
	until("the node is registered with its port", func() bool {
		n := kube.Node(NodeName)
		return n != nil && n.Status.DaemonEndpoints.KubeletEndpoint.Port == k.Port
	})
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}
	for url, want := range map[string]int{
		fmt.Sprintf("http://127.0.0.1:%d/healthz", health): http.StatusOK, fmt.Sprintf("https://127.0.0.1:%d/pods", k.Port): http.StatusUnauthorized,
	} {
		resp, err := client.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%s: %s, want %d", url, resp.Status, want)
		}
	}
	admin, err := kubernetes.NewForConfig(kube.RESTConfig("admin"))
	if err != nil {
		t.Fatal(err)
	}
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: v1.PodSpec{NodeName: NodeName, Containers: []v1.Container{{Name: "main", Image: "registry.example/web:1"}}}}
	if _, err := admin.CoreV1().Pods(Namespace).Create(ctx, p, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	until("the pod runs", func() bool {
		p := kube.Pod(Namespace, "web")
		return p != nil && p.Status.Phase == v1.PodRunning
	})
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("the agent ended with %v", err)
	}
	for _, port := range []int32{k.Port, health} {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			t.Errorf("a port is not free again: %v", err)
			continue
		}
		_ = l.Close()
	}
}
