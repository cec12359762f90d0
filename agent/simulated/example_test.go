package simulated_test

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/wherry-node/wherry/agent"
	"github.com/wherry-node/wherry/agent/simulated"
)

// A fleet of nodes in one process, each with a pod that fails once and then runs.
func Example() {
	dir, err := os.MkdirTemp("", "fleet")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	manifest := fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: web, annotations: {%s: "1", %s: "1"}}, spec: {containers: [{name: main, image: nginx}]}}`,
		simulated.AnnotationExitCode, simulated.AnnotationFailAttempts)
	if err := os.WriteFile(filepath.Join(dir, "web.yaml"), []byte(manifest), 0o600); err != nil {
		log.Fatal(err)
	}

	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	var fleet sync.WaitGroup
	var metrics []*prometheus.Registry
	for i := range 3 {
		node := simulated.New(simulated.Config{Seed: uint64(i)})
		defer node.Close()
		deps := node.Deps()
		deps.Log, deps.Metrics = slog.New(slog.DiscardHandler), prometheus.NewRegistry()
		metrics = append(metrics, deps.Metrics)
		kubelet := agent.DefaultConfiguration()
		*kubelet.EnableServer = false
		kubelet.StaticPodPath = dir
		kubelet.CrashLoopBackOff.MaxContainerRestartPeriod = &metav1.Duration{Duration: time.Second}
		a, err := agent.New(agent.Config{NodeName: fmt.Sprint("node-", i), Kubelet: kubelet}, deps)
		if err != nil {
			log.Fatal(err)
		}
		fleet.Go(func() {
			if err := a.Run(ctx); err != nil {
				log.Fatal(err)
			}
		})
	}
	for ctx.Err() == nil && restarted(metrics) < 3 {
		time.Sleep(10 * time.Millisecond)
	}
	fmt.Println(restarted(metrics), "nodes have restarted their container")
	cancel()
	fleet.Wait()
	// Output: 3 nodes have restarted their container
}

// restarted counts the nodes whose pod's container has been started twice.
func restarted(nodes []*prometheus.Registry) (n int) {
	for _, registry := range nodes {
		families, err := registry.Gather()
		if err != nil {
			log.Fatal(err)
		}
		for _, family := range families {
			if family.GetName() == "kubelet_started_containers_total" && family.GetMetric()[0].GetCounter().GetValue() >= 2 {
				n++
			}
		}
	}
	return n
}
